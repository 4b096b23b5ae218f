"""Timelines of exchanges: a toy worked out by hand, and what holds of every one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plots.predict.costs import Array, Cost
from plots.predict.step import Profile, StepTimes, step_times
from plots.predict.stream import Buckets, Cycles, Operations

MB = 10**6
ONE = np.array([1.0])


def profile(sizes: list[float], ready_ms: list[float], forward_ms: float = 10) -> Profile:
    return Profile(
        sizes=np.array(sizes, float),
        ready_s=np.array(ready_ms) / 1e3,
        forward_s=forward_ms / 1e3,
        backward_s=ready_ms[-1] / 1e3,
        optimizer_s=0.0,
    )


TOY = profile([10 * MB] * 4, [5, 10, 15, 20])


def affine(latency_s: Array | float, bytes_per_s: float) -> Cost:
    return lambda size: np.asarray(latency_s + size / bytes_per_s)


def run(
    p: Profile, exchange: Buckets | Cycles, cost: Cost, factors: Array = ONE
) -> tuple[StepTimes, Operations]:
    operations = exchange.run(p.sizes, p.arrival_s, factors, cost)
    return step_times(p, factors, operations.last_end_s), operations


def toy_ms(exchange: Buckets | Cycles, gb_per_s: float = 2, factor: float = 1) -> list[float]:
    """Step, exposed and busy time, and the number of operations."""
    times, operations = run(TOY, exchange, affine(1e-3, gb_per_s * 1e9), np.array([factor]))
    milliseconds = times.step_s, times.exposed_s, operations.busy_s
    return [*(1e3 * float(s[0]) for s in milliseconds), int((operations.sizes > 0).sum())]


def of_bytes(*limits: int) -> Buckets:
    return Buckets(limits_bytes=limits)


def test_buckets() -> None:
    assert toy_ms(of_bytes(1)) == pytest.approx([39, 9, 24, 4])
    assert toy_ms(of_bytes(20 * MB)) == pytest.approx([42, 12, 22, 2])
    assert toy_ms(of_bytes(10**9)) == pytest.approx([51, 21, 21, 1])
    slower = toy_ms(of_bytes(1), factor=1.1)
    assert slower == pytest.approx([40.5, 7.5, 24, 4]), "slower compute hides more"


def test_cycles() -> None:
    assert toy_ms(Cycles(cycle_s=4e-3)) == pytest.approx([40, 10, 24, 4])
    assert toy_ms(Cycles(cycle_s=10e-3)) == pytest.approx([42, 12, 22, 2])
    assert toy_ms(Cycles(cycle_s=10e-3, fusion_bytes=15 * MB))[3] == 4, "nothing fits together"
    assert toy_ms(Cycles(cycle_s=4e-3), 1) == pytest.approx([60, 30, 44, 4])
    blocking = toy_ms(Cycles(cycle_s=4e-3, blocking=True), 1)
    assert blocking == pytest.approx([59, 29, 43, 3]), "two gradients piled up"


def test_copies_and_negotiation() -> None:
    """20 MB there and back at 10 GB/s are 4 ms; each tick's first operation waits for 2 ms."""
    assert toy_ms(Cycles(cycle_s=10e-3, copy_bytes_per_s=1e10))[:2] == pytest.approx([50, 20])
    assert toy_ms(Cycles(cycle_s=4e-3, copy_bytes_per_s=1e10))[0] == pytest.approx(40)
    negotiated = Cycles(cycle_s=10e-3, negotiation_s=np.array([2e-3, 12e-3]))
    _, late = run(TOY, negotiated, affine(1e-3, 2e9), np.ones(2))
    assert late.start_s[0] == pytest.approx([0.022, 0.033])
    assert late.start_s[1] == pytest.approx([0.036, 0.048]), "12 ms are the cycle, then"


def test_defaults_are_the_frameworks_own() -> None:
    assert Buckets().limits_bytes == (2**20, 25 * 2**20)
    assert (Cycles().cycle_s, Cycles().fusion_bytes) == (1e-3, 2**27)


UNTIMED = settings(deadline=None)
TENSORS = st.lists(st.tuples(st.floats(1, 1e8), st.floats(0, 50)), min_size=1, max_size=20)
COSTS = st.tuples(st.floats(0, 5e-3), st.floats(1e8, 1e12))
FACTORS = st.lists(st.floats(1, 2), min_size=1, max_size=4).map(sorted).map(np.array)
BUCKETS = st.builds(Buckets, limits_bytes=st.tuples(st.integers(1, 10**8), st.integers(1, 10**8)))
CYCLES = st.builds(
    Cycles,
    cycle_s=st.floats(5e-4, 2e-2),
    fusion_bytes=st.floats(1, 3e8),
    copy_bytes_per_s=st.floats(1e9, 1e12),
    blocking=st.booleans(),
)
HAIR = 1e-9


def of(tensors: list[tuple[float, float]]) -> Profile:
    return profile([round(size) for size, _ in tensors], sorted(ready for _, ready in tensors))


@UNTIMED
@given(TENSORS, COSTS, FACTORS, st.one_of(BUCKETS, CYCLES))
def test_whatever_is_exchanged(
    tensors: list[tuple[float, float]],
    costs: tuple[float, float],
    factors: Array,
    exchange: Buckets | Cycles,
) -> None:
    p = of(tensors)
    times, operations = run(p, exchange, affine(*costs), factors)
    assert operations.sizes.sum(axis=1) == pytest.approx(np.full(len(factors), p.sizes.sum()))
    assert np.all(operations.start_s[:, 1:] >= operations.end_s[:, :-1] - HAIR), "one by one"
    arrived = np.cumsum(operations.sizes, axis=1)
    last = np.searchsorted(np.cumsum(p.sizes), arrived - 0.5)
    ready = p.arrival_s[last] * factors[:, None]
    assert np.all((operations.start_s >= ready - HAIR) | (operations.sizes == 0)), "none too early"
    wait = exchange.cycle_s if isinstance(exchange, Cycles) else 0.0
    most = times.passes_s + operations.busy_s + wait + HAIR
    assert np.all((times.passes_s <= times.step_s) & (times.step_s <= most))
    assert times.exposed_s == pytest.approx(times.step_s - times.passes_s)


@UNTIMED
@given(TENSORS, COSTS, FACTORS, st.one_of(BUCKETS, CYCLES))
def test_rows_do_not_touch(
    tensors: list[tuple[float, float]],
    costs: tuple[float, float],
    factors: Array,
    exchange: Buckets | Cycles,
) -> None:
    p = of(tensors)
    together, _ = run(p, exchange, affine(*costs), factors)
    alone = [run(p, exchange, affine(*costs), factors[i : i + 1])[0] for i in range(len(factors))]
    assert together.step_s == pytest.approx(np.concatenate([each.step_s for each in alone]))


@UNTIMED
@given(TENSORS, COSTS, FACTORS, BUCKETS, st.floats(1, 5))
def test_buckets_take_longer_with_cost_and_compute(
    tensors: list[tuple[float, float]],
    costs: tuple[float, float],
    factors: Array,
    exchange: Buckets,
    dearer: float,
) -> None:
    p, cost = of(tensors), affine(*costs)
    times, _ = run(p, exchange, cost, factors)
    assert np.all(np.diff(times.step_s) >= -HAIR)
    more, _ = run(p, exchange, lambda size: dearer * cost(size), factors)
    assert np.all(more.step_s >= times.step_s - HAIR)
    free, _ = run(p, exchange, np.zeros_like, factors)
    assert free.step_s == pytest.approx(free.passes_s)


@UNTIMED
@given(TENSORS, COSTS, FACTORS, CYCLES, st.floats(1, 5))
def test_cycles_take_longer_with_cost_where_ticks_do_not_wait_for_it(
    tensors: list[tuple[float, float]],
    costs: tuple[float, float],
    factors: Array,
    exchange: Cycles,
    dearer: float,
) -> None:
    """And with compute where a message has no latency; else see the next test."""
    p, cost = of(tensors), affine(*costs)
    cycles = Cycles(cycle_s=exchange.cycle_s, fusion_bytes=exchange.fusion_bytes)
    times, _ = run(p, cycles, cost, factors)
    more, _ = run(p, cycles, lambda size: dearer * cost(size), factors)
    assert np.all(more.step_s >= times.step_s - HAIR)
    by_bytes, _ = run(p, cycles, affine(0.0, costs[1]), factors)
    assert np.all(np.diff(by_bytes.step_s) >= -HAIR)
    free, _ = run(p, cycles, np.zeros_like, factors)
    assert np.all(free.exposed_s <= cycles.cycle_s + HAIR)


def test_slower_compute_can_shorten_a_step_of_cycles() -> None:
    """Two gradients miss their ticks, so two messages carry what four did, and save latency."""
    p = profile([2 * MB] * 4, [3.9, 7, 11.9, 15], forward_ms=0)
    times, operations = run(p, Cycles(cycle_s=4e-3), affine(3e-3, 1e9), np.array([1, 1.05]))
    assert times.step_s == pytest.approx([0.024, 0.023])
    assert (operations.sizes > 0).sum(axis=1).tolist() == [4, 2]
