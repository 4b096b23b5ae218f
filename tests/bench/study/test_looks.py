"""Levels of repeated looks, against those of another simulation and of Pocock."""

from __future__ import annotations

import pytest

from bench.study.looks import schedule
from bench.study.stats import nominal_level


@pytest.mark.parametrize(
    ("looks", "nominal"),
    [
        ((6,), 0.05),
        ((6, 8), 0.0327),
        ((6, 12), 0.0286),
        ((6, 8, 12), 0.0225),
        ((6, 12, 24), 0.0194),
        ((6, 12, 24, 48), 0.0150),
    ],
)
def test_levels(looks: tuple[int, ...], nominal: float) -> None:
    assert nominal_level(looks) == pytest.approx(nominal, abs=0.001)


def test_many_launches_are_pococks_own_case() -> None:
    """Five looks at equal steps of a known deviation: 0.0158 (Pocock 1977, table 1)."""
    assert nominal_level((200, 400, 600, 800, 1000)) == pytest.approx(0.0158, abs=0.0006)


def test_several_comparisons_share_the_error() -> None:
    assert nominal_level((6,), 0.01) == 0.01
    assert nominal_level((6, 8), 0.01) == pytest.approx(0.0061, abs=0.0004)


def test_a_look_at_each_two_launches_from_the_sixth_on() -> None:
    assert schedule(6, 20) == schedule(2, 20) == (6, 8, 10, 12, 14, 16, 18, 20)
    assert schedule(8, 8) == (8,)
    assert schedule(1, 4) == ()
    assert nominal_level(schedule(6, 20)) == pytest.approx(0.0131, abs=0.0003)
