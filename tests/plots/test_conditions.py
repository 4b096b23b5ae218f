"""Steady state: a warm-up that a cell's runs share is found, and noise is not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.study import rows
from bench.study.files import read_study
from bench.study.stats import MIN_LAUNCHES
from plots.analyse import study as analysis
from tests.bench.study.test_stats import noise

ROOT = Path(__file__).parents[2]


def test_what_all_runs_share_is_found_though_none_shows_it_alone() -> None:
    """An arm whose last window is 3 % faster in every run, beside one that is only noisy."""
    wobble = noise(3, (2, 18), 0.015)
    ratios = np.exp(np.r_[wobble[0] - 0.03, wobble[1]])
    runs = pd.DataFrame({"cell": "a", "arm": ["b"] * 18 + ["a"] * 18, "judged": True})
    runs["last_over_first"] = ratios
    few = pd.DataFrame({"cell": ["c"] * 2, "arm": "", "judged": False, "last_over_first": 0.5})
    a, b, c = analysis.trends(pd.concat([runs, few]))
    assert (a.changes, b.changes, c.changes) == (False, True, False)
    assert b.over_first is not None
    assert b.over_first.ratio == pytest.approx(np.exp(wobble[0].mean() - 0.03))
    assert (c.runs, c.judged_runs, c.over_first) == (2, 0, None)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "slurm/studies").glob("*.toml")), ids=lambda p: p.stem
)
def test_a_shipped_study_that_may_settle_something_can_be_judged(path: Path) -> None:
    study = read_study(path)
    if study.launches >= MIN_LAUNCHES:
        # compute that sleeps needs little warm-up, and each of its steps takes a second
        # what is left of a warm-up falls on both sides alike where they take turns
        assert study.run["warmup_steps"] >= (4 if "emulate" in study.run else 8)
        assert study.run["windows"] >= rows.ENOUGH_WINDOWS
        timed = study.run["windows"] * study.run["steps_per_window"]
        assert timed >= rows.ENOUGH_STEPS
