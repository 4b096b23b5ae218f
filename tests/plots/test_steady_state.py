"""Steady state: warm-up left in the windows, drift and outliers are found, and noise is not."""

import numpy as np
import pytest

from plots.analyse import steady_state
from tests.bench.study.test_stats import KNOWN, binomial_tolerance, noise


def test_mser_cuts_a_known_warm_up() -> None:
    logs = np.log(KNOWN["warmup"]["series"]).tolist()
    assert steady_state.mser_cut(logs, 5) == KNOWN["warmup"]["mser5"]
    assert steady_state.mser_cut(logs, 1) == KNOWN["warmup"]["mser1"]
    assert steady_state.mser_cut([1.0] * 20, 1) == 0
    assert steady_state.mser_cut([5.0, 1.0, 1.0], 1) == 0


def test_tukey_flags_the_ancestors_outliers() -> None:
    known = KNOWN["summaries"]["ancestor_D_steps_ms"]
    assert np.percentile(known["x"], [25, 50, 75]) == pytest.approx(
        [known["q1"], known["median"], known["q3"]]
    )
    assert steady_state.tukey_outliers(known["x"]) == known["tukey_outliers"]


def test_a_drifting_run_is_flagged_and_a_steady_one_is_not() -> None:
    drift = np.exp(np.linspace(0, 0.2, 20) + noise(0, (20,), 0.01))
    assert "second half +1" in steady_state.judge(drift.tolist()).not_steady_reason
    step = np.exp(np.r_[np.zeros(10), np.full(10, 0.05)] + noise(0, (20,), 0.01))
    judged = steady_state.judge(step.tolist())
    assert not judged.steady
    assert judged.level_shift == pytest.approx(0.05, abs=0.01)
    # resolved, but below 2 %
    small = np.exp(np.r_[np.zeros(10), np.full(10, 0.015)] + noise(0, (20,), 0.001))
    assert steady_state.judge(small.tolist()).steady


def test_a_warm_up_left_in_the_windows_is_flagged() -> None:
    warm = steady_state.judge(KNOWN["warmup"]["series"])
    assert (warm.steady, warm.mser_cut_steps) == (False, 10)
    assert "without its first 10 of 50 steps" in warm.not_steady_reason
    assert steady_state.judge(KNOWN["warmup"]["series"][10:]).steady
    late = steady_state.judge([2.0, 2.01] * 8 + [1.0, 1.01] * 4)
    assert (late.steady, late.mser_cut_steps) == (False, 16)
    assert steady_state.judge([1.0] * 20) == steady_state.Steadiness(True, "", 0, 0.0, 0)
    assert steady_state.judge([1.0, 5.0]).steady  # too few to judge


@pytest.mark.parametrize("steps", [15, 20, 30, 100])
def test_pure_noise_is_rarely_called_not_steady(steps: int) -> None:
    flagged = [
        not steady_state.judge(x.tolist()).steady for x in np.exp(noise(7, (400, steps), 0.05))
    ]
    assert np.mean(flagged) < 0.04 + binomial_tolerance(0.04, 400)
