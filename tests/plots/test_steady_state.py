"""Steady state: warm-up left in the windows, drift and outliers are found, and noise is not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from bench.study.files import read_study
from bench.study.stats import MIN_BLOCKS
from plots.analyse import steady_state
from tests.bench.study.test_stats import KNOWN, binomial_tolerance, noise

ROOT = Path(__file__).parents[2]


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


def test_what_all_runs_share_is_found_though_none_shows_it_alone() -> None:
    """A cell whose last window is 2 % faster in every run, beside one that is only noisy."""
    wobble = noise(3, (2, 18), 0.015)
    ratios = np.exp(np.r_[wobble[0] - 0.02, wobble[1]])
    runs = pd.DataFrame({"cell": ["b"] * 18 + ["a"] * 18, "judged": True})
    runs["last_over_first"] = ratios
    few = pd.DataFrame({"cell": ["c"] * 2, "judged": False, "last_over_first": 0.5})
    a, b, c = steady_state.trends(pd.concat([runs, few]))
    assert (a.changes, b.changes, c.changes) == (False, True, False)
    assert b.over_first is not None
    assert b.over_first.ratio == pytest.approx(np.exp(wobble[0].mean() - 0.02))
    assert b.holm_p == pytest.approx(2 * scipy.stats.ttest_1samp(wobble[0] - 0.02, 0).pvalue)
    assert (c.runs, c.judged_runs, c.over_first) == (2, 0, None)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "slurm/studies").glob("*.toml")), ids=lambda p: p.stem
)
def test_a_shipped_study_that_may_settle_something_can_be_judged(path: Path) -> None:
    study = read_study(path)
    if study.blocks >= MIN_BLOCKS:
        # compute that sleeps needs little warm-up, and each of its steps takes a second
        # what is left of a warm-up falls on both sides alike where they take turns
        assert study.run["warmup_steps"] >= (4 if "emulate" in study.run else 15)
        assert study.run["windows"] >= steady_state.ENOUGH_WINDOWS
        timed = study.run["windows"] * study.run["steps_per_window"]
        assert timed >= steady_state.ENOUGH_STEPS
