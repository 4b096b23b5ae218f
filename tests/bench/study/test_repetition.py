"""Levels of repetition against the examples of Kalibera & Jones, recomputed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bench.study import repetition, stats

KNOWN = json.loads((Path(__file__).parent / "known_answers.json").read_text())["kalibera_jones"]


def test_known_answers() -> None:
    one, two = KNOWN
    data = np.array(one["data"], float)
    s2, t2 = repetition.level_variances(data)
    assert s2 == pytest.approx(one["S2"], abs=1e-9)
    assert t2 == pytest.approx(one["T2"], abs=1e-9)
    low, high = stats.t_interval(data.mean(axis=(1, 2)).tolist()) or (0, 0)
    assert ((low + high) / 2, (high - low) / 2) == pytest.approx((one["mean"], one["half95"]))
    _, t2 = repetition.level_variances(np.array(two["data"], float))
    assert t2 == pytest.approx(two["T2"], abs=1e-9)
    best = repetition.best_repetitions(t2, two["costs_high_to_low"][::-1])
    assert best == pytest.approx(two["opt_reps_low_to_high"], abs=1e-9)
    assert repetition.best_repetitions([1.0, -0.1], [1.0, 9.0]) == [math.inf]


def test_correlated_steps_count_for_fewer() -> None:
    """A first-order process of 0.5: its mean has three times the variance of independent steps."""
    runs, steps = 4000, 400
    noise = np.random.default_rng(1).normal(size=(runs, steps))
    for i in range(1, steps):
        noise[:, i] += 0.5 * noise[:, i - 1]
    found = np.mean([repetition.autocorrelation(run) for run in noise])
    assert found == pytest.approx(0.5, abs=0.01)
    independent = float(np.mean(noise.var(axis=1, ddof=1))) / steps
    measured = float(noise.mean(axis=1).var(ddof=1)) / independent
    assert measured == pytest.approx(repetition.inflation(0.5), rel=0.1)
    assert repetition.autocorrelation(np.ones(9)) == 0.0
    assert repetition.inflation(-0.3) == 1.0
