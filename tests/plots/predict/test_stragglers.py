"""The slowest of many: expectations that tables have, draws that keep to them, and components."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from plots.predict.costs import Array
from plots.predict.stragglers import Spread, draw_slowest, expected_slowest

RANKS = np.array([1.0, 2, 4, 8, 16, 64, 256, 1024, 4096])


def exponential(z: Array) -> Array:
    return np.asarray(-norm.logsf(z))


def lognormal(z: Array) -> Array:
    return np.exp(0.02 * z)


def test_the_largest_of_normals() -> None:
    tables = [0, 0.564, 1.029, 1.424, 1.766, 2.344, 2.827, 3.248, 3.626]
    assert expected_slowest(RANKS, lambda z: z) == pytest.approx(tables, abs=6e-4)
    cost = expected_slowest(np.array([8.0, 1024.0]), lambda z: 1 + 0.01 * z) - 1
    assert cost == pytest.approx([0.014, 0.032], abs=5e-4)


def test_the_largest_of_others() -> None:
    cost = expected_slowest(np.array([8.0, 64.0, 1024.0]), lognormal) - 1
    assert cost == pytest.approx([0.029, 0.048, 0.067], abs=5e-4)
    harmonic = [sum(1 / k for k in range(1, int(p) + 1)) for p in RANKS]
    assert expected_slowest(RANKS, exponential) == pytest.approx(harmonic, rel=1e-6)


def test_draws_keep_to_the_expectation() -> None:
    generator = np.random.default_rng(1)
    for ranks in (1.0, 8.0, 4096.0):
        draws = draw_slowest(np.full(20_000, ranks), exponential, generator)
        error = draws.std() / np.sqrt(len(draws))
        assert draws.mean() == pytest.approx(
            expected_slowest(np.array([ranks]), exponential)[0], abs=4 * error
        )


def test_a_slow_gpu_is_told_from_noise() -> None:
    generator = np.random.default_rng(2)
    ranks, steps = 64, 400
    speeds = np.exp(0.01 * generator.standard_normal(ranks))
    speeds[5] = 1.15
    whole = np.exp(0.05 * generator.standard_normal((steps, 1)))  # all ranks' at a step
    noise = np.exp(0.03 * generator.standard_normal((steps, ranks)))
    spread = Spread.of(0.2 * whole * speeds * noise)
    assert spread.transient_sd == pytest.approx(0.03, rel=0.03)
    assert spread.persistent_sd == pytest.approx(np.log(speeds).std(ddof=1), rel=0.1)
    assert spread.slowest == pytest.approx(1.15 / np.exp(np.log(speeds).mean()), rel=0.01)


def test_alike_ranks_have_no_persistent_part() -> None:
    steps = np.array([[1.0, 1.1], [1.1, 1.0]])
    spread = Spread.of(steps)
    assert (spread.persistent_sd, spread.slowest) == pytest.approx((0, 1))
    assert spread.transient_sd == pytest.approx(np.log(1.1))
