"""Which losses count as those of a training."""

from __future__ import annotations

import math

import pytest

from bench.train.checks import loss_bounded


@pytest.mark.parametrize(
    "losses",
    [
        [2.3, 2.1, 1.9, 1.7],
        [2.3, 6.0, 25.0, 3.0, 8.0, 2.0],  # the first steps overshoot
        [2.6, 4.1, 7.2, 7.2, 34.8, 7.1],  # small batches, one of them far off
        [0.01, 2.3, 2.3, 2.3],  # it began by luck below a guess
        [60.0, 500.0, 450.0, 590.0],  # it began far off
    ],
)
def test_a_noisy_training_is_bounded(losses: list[float]) -> None:
    assert loss_bounded(losses, 3, 10)


@pytest.mark.parametrize("last", [24.0, 3.1e4, 6.3e10, math.inf, math.nan])
def test_an_exploded_one_is_not(last: float) -> None:
    assert not loss_bounded([2.3, 2.3, last, last], 2, 10)


def test_the_last_window_decides() -> None:
    assert loss_bounded([2.3, 1e6, 2.3, 2.3], 2, 10), "what happened before has passed"
    assert not loss_bounded([2.3, 2.3, 2.3, 100.0], 2, 10)
    assert loss_bounded([2.3, 2.3, 2.3, 100.0], 2, 1000**2), "a guess among many classes loses more"
