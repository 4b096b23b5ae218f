"""Steps at numbers of ranks: efficiencies worked out by hand, and recorded steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.instrument import timeline
from plots.predict.link import Link, Regime
from plots.predict.step import (
    BatchLine,
    Profile,
    Slowdown,
    predict,
    strong_efficiency,
    weak_efficiency,
)
from plots.predict.stream import Buckets, Cycles

TIMELINES = Path(timeline.__file__).parent / "timelines"
TOY = Profile(
    sizes=np.full(4, 10e6),
    ready_s=np.array([5, 10, 15, 20]) / 1e3,
    forward_s=0.010,
    backward_s=0.020,
    optimizer_s=0.003,
)
# one message of 10 MB over two ranks: 2 * 0.5 ms + 10 MB / (2 GB/s)
LINK = Link(
    source="made up",
    algorithms=("ring",),
    regimes=(Regime(latency_seconds=0.5e-3, bytes_per_s=2e9),),
)
EACH = Buckets(limits_bytes=(1,))


def test_weak_scaling() -> None:
    ranks = np.array([1.0, 2.0])
    times = predict(TOY, LINK, EACH, ranks, np.ones(2))
    assert times.step_s == pytest.approx([0.033, 0.042])
    assert times.exposed_s == pytest.approx([0, 0.009])
    assert weak_efficiency(TOY, times) == pytest.approx([1, 33 / 42])
    ticks = predict(TOY, LINK, Cycles(cycle_s=7e-3), ranks, np.ones(2))
    assert ticks.step_s == pytest.approx([0.033, 0.047]), "one rank waits for no tick"


def test_slowdown_is_of_the_wrapper_then_of_the_overlap_and_the_slowest_rank() -> None:
    ranks = np.array([1.0, 2.0, 8.0])
    slow = Slowdown(wrapper=1.02, overlap=1.1)
    assert slow.factors(ranks) == pytest.approx([1.02, 1.122, 1.122])
    slowest = np.array([1.0, 1.01, 1.03])
    assert slow.factors(ranks, slowest) == pytest.approx([1.02, 1.122 * 1.01, 1.122 * 1.03])
    times = predict(TOY, LINK, EACH, ranks[:1], np.array([1.1]))
    assert weak_efficiency(TOY, times) == pytest.approx(33 / 36), "the optimiser is not slower"


def test_strong_scaling_from_a_sweep_of_batches() -> None:
    """6 ms whatever the batch, and 0.75 ms for each image: 30 ms with the profile's 32."""
    sweep = [8, 16, 32, 64]
    batches = BatchLine.fitted(sweep, [6e-3 + 0.75e-3 * images for images in sweep])
    assert (batches.fixed_s, batches.image_s) == pytest.approx((6e-3, 0.75e-3))
    ranks = np.array([1.0, 2.0])
    factors = batches.factors(32 / ranks, 32)
    assert factors == pytest.approx([1, 0.6])
    times = predict(TOY, LINK, EACH, ranks, factors)
    # ready after 9, 12, 15 and 18 ms, and 6 ms each: 9 + 24, and the optimiser
    assert times.step_s == pytest.approx([0.033, 0.036])
    assert strong_efficiency(TOY, times, ranks, 1.0) == pytest.approx([1, 33 / 72])


@pytest.mark.parametrize("exchange", [Buckets(), Cycles(), Cycles(blocking=True)])
@pytest.mark.parametrize("name", ["resnet50-p100-32px", "resnet50-xeon-32px"])
def test_recorded_steps_on_all_numbers_of_ranks(name: str, exchange: Buckets | Cycles) -> None:
    recorded, _ = timeline.read(TIMELINES / f"{name}.json")
    profile = Profile.of(recorded)
    assert profile.sizes.sum() == 4 * 25_557_032
    assert profile.step_s == pytest.approx(
        recorded.forward_seconds + recorded.backward_seconds + recorded.optimizer_seconds
    )
    ranks = np.arange(1.0, 4097.0)
    times = predict(profile, LINK, exchange, ranks, np.ones_like(ranks))
    efficiency = weak_efficiency(profile, times)
    assert efficiency.shape == ranks.shape
    assert np.all((efficiency > 0) & (efficiency <= 1))
    busy = LINK.seconds(profile.sizes.sum(), ranks)
    assert np.all(times.step_s[1:] >= np.maximum(profile.step_s, busy[1:]))
    if not getattr(exchange, "blocking", False):
        assert np.all(np.diff(times.step_s) >= -1e-9), "a ring costs more with every rank"
