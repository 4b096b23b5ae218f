"""Beyond the measured ranks: known factors are solved, and few launches leave much open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from bench.instrument import timeline
from plots.predict.beyond import (
    CurveModel,
    Factors,
    LaunchDraws,
    Projection,
    draw_means,
    helps,
    project,
    solve,
)
from plots.predict.link import Link, Regime
from plots.predict.step import BatchLine, Profile
from plots.predict.stream import Buckets, Cycles
from plots.predict.table import scaled

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "bench/instrument/timelines/resnet50-h200-224px.json"
LINK = Link(
    source="made up",
    algorithms=("ring",),
    regimes=(Regime(latency_seconds=50e-6, bytes_per_s=2e9),),
)
ALONE_S, WRAPPER, OVERLAP = 0.2, 1.03, 1.06
RANKS = np.array([2.0, 8, 64])


def model(exchange: Buckets | Cycles, **changes: object) -> CurveModel:
    profile = scaled(Profile.of(timeline.read(RECORDED)[0]), ALONE_S)
    blank = CurveModel(
        profile=profile, exchange=exchange, links=[LINK], fitted_ranks=np.array([2.0]), images=64
    )
    return replace(blank, **changes)  # type: ignore[arg-type]


def draws(of: CurveModel, sd: float, count: int = 40) -> LaunchDraws:
    """Of steps by the model's own law, with the two factors."""
    generator = np.random.default_rng(3)
    passes_s = of.profile.passes_s

    def noisy(seconds: float) -> np.ndarray:
        return seconds * np.exp(generator.normal(0, sd, count))

    one = WRAPPER * passes_s + of.profile.optimizer_s
    two = of.times(LINK, np.array([2.0]), np.array([WRAPPER * OVERLAP])).step_s[0]
    return LaunchDraws(alone_s=noisy(ALONE_S), own_s=noisy(one), steps_s=noisy(two)[:, None])


def projected(of: CurveModel, drawn: LaunchDraws) -> tuple[Projection, Factors]:
    factors = solve(of, drawn)
    return project(of, drawn, factors, RANKS, np.random.default_rng(0)), factors


@pytest.mark.parametrize("exchange", [Buckets(), Cycles(), Cycles(blocking=True)])
@pytest.mark.parametrize("strong", [False, True])
def test_known_factors_are_solved_and_go_on(exchange: Buckets | Cycles, strong: bool) -> None:
    batches = BatchLine(fixed_s=0.01, image_s=0.002) if strong else None
    truth = model(exchange, batches=batches)
    expected = truth.times(LINK, RANKS, np.full(3, WRAPPER * OVERLAP))
    projection, factors = projected(truth, draws(truth, 0.0))
    assert np.median(factors.wrapper) == pytest.approx(WRAPPER, rel=1e-6)
    if not isinstance(exchange, Cycles):  # a tick hides some factors behind others
        assert np.median(factors.overlap) == pytest.approx(OVERLAP, rel=1e-3)
    step_s = np.median(projection.step_s, axis=0)
    assert step_s == pytest.approx(expected.step_s, rel=0.02)
    assert step_s[0] == pytest.approx(expected.step_s[0], rel=1e-3), "what was fitted"
    divisor = RANKS if strong else 1.0
    efficiency = np.median(projection.efficiency, axis=0)
    assert efficiency == pytest.approx(ALONE_S / step_s / divisor, rel=0.01)


@pytest.mark.parametrize("exchange", [Buckets(), Cycles(blocking=True)])
def test_passes_that_sleep_are_not_slowed_but_the_exchange_is(exchange: Buckets | Cycles) -> None:
    slow = Link(
        source="made up",
        algorithms=("ring",),
        regimes=(Regime(latency_seconds=50e-6, bytes_per_s=4e8),),
    )
    truth = model(exchange, links=[slow], slept=True)
    two = truth.times(slow, np.array([2.0]), np.array([WRAPPER]), 1.3).step_s
    one_s = np.full(40, WRAPPER * truth.profile.passes_s + truth.profile.optimizer_s)
    drawn = LaunchDraws(
        alone_s=np.full(40, ALONE_S), own_s=one_s, steps_s=np.broadcast_to(two, (40, 1))
    )
    _, factors = projected(truth, drawn)
    assert np.median(factors.exchange) == pytest.approx(1.3, rel=1e-9)
    assert np.median(factors.overlap) == pytest.approx(1.0, abs=0.01)
    awake = solve(replace(truth, slept=False), drawn)
    assert np.all(awake.exchange == 1.0)
    assert np.median(awake.overlap) > 1.1


def test_launches_that_differ_leave_more_open_and_each_doubling_too() -> None:
    truth = model(Buckets())
    widths = []
    for sd in (0.001, 0.02):
        drawn, _ = projected(truth, draws(truth, sd, 400))
        low, high = np.quantile(drawn.efficiency, (0.05, 0.95), axis=0)
        widths.append(high / low)
        expected = truth.times(LINK, RANKS, np.full(3, WRAPPER * OVERLAP)).step_s
        assert np.all((low < ALONE_S / expected) & (ALONE_S / expected < high))
    assert np.all(widths[0] < widths[1])
    assert np.all(np.diff(widths[0]) > 0)


def test_few_launches_have_students_interval_and_pairs_cancel() -> None:
    generator = np.random.default_rng(5)
    blocks = np.exp(generator.normal(0, 0.02, (4, 1)))
    seconds = blocks * np.array([[0.1, 0.2]]) * np.exp(generator.normal(0, 1e-4, (4, 2)))
    means = draw_means(seconds, 20_000, generator)
    logs = np.log(seconds[:, 0])
    half = t.ppf(0.95, 3) * logs.std(ddof=1) / 2
    low, high = np.log(np.quantile(means[:, 0], (0.05, 0.95)))
    assert (low, high) == pytest.approx((logs.mean() - half, logs.mean() + half), abs=0.1 * half)
    assert np.std(np.log(means[:, 1] / means[:, 0])) < 1e-3 < np.std(np.log(means[:, 0]))


def test_what_helps_is_what_holds_up() -> None:
    slow = model(
        Buckets(),
        links=[
            LINK.model_copy(update={"regimes": (Regime(latency_seconds=0.0, bytes_per_s=2e8),)})
        ],
    )
    _, factors = projected(slow, draws(slow, 0.0))
    gains = dict(helps(slow, factors, 64.0))
    assert gains["twice the bandwidth"] > 0.1 > abs(gains["half the latency"])
    assert gains["twice the images of a rank"] > 0.1
    assert len(gains) == 4
