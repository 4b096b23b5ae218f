"""What a run takes besides its time, as far as its log says: energy, memory and arithmetic."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.record import Run
from bench.record.host import machine_of
from bench.study import stats
from bench.study.stats import Estimate

Logged = Mapping[str, Any]  # a counter, as bench/record/events.py has it
JOULES = "joules_per_image"
# Seconds between two values of a counter, by the first word of its name. NVML's is as seen on an
# H200, whose count moved in steps of a tenth of a second's energy; Cray's is documented.
_UPDATES_S = {"NVML": 0.1, "pm_counters": 0.1}
_FEWEST_UPDATES = 10  # in a window: two readings are then wrong by a tenth of it at most
OLDER = "the logs are older than the reading of counters"


class _NotKnown(Exception):
    """Why the energy of a run is not known."""


@dataclass(frozen=True)
class Resources:
    """Of one run: `values` by name, without what is not known; `energy_reason` says why energy is
    not, and `counters` from what it is summed.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    energy_reason: str = ""


def of_run(run: Run) -> Resources:
    """Joules and operations of an image, bytes of the largest rank, operations/s of a device."""
    config, end = run.config, run.end
    assert config is not None
    values = {
        "rank_memory_bytes": _largest(end.get("peak_memory_bytes", ())),
        "device_memory_bytes": _largest(end.get("peak_device_memory_bytes", ())),
        "flops_per_image": end.get("flops_per_image"),
        "peak_flops_per_s": config.peak_tflops and 1e12 * config.peak_tflops,
    }
    counters: tuple[str, ...] = ()
    reason = ""
    try:
        counters = _summed(run.host)
        images = config.samples_per_step * sum(window["steps"] for window in run.windows)
        values[JOULES] = _joules(run, counters) / images
    except _NotKnown as error:
        reason = str(error)
    known = {name: float(value) for name, value in values.items() if value}
    return Resources(known, counters, reason)


def _largest(of_ranks: Iterable[float | None]) -> float | None:
    return max((x for x in of_ranks if x is not None), default=None)


def _of_nodes(host: Mapping[str, Any]) -> dict[str, set[str]]:
    """Names of the counters that add up to each node: of all of it, or of its parts and devices."""
    nodes: dict[str, list[Logged]] = defaultdict(list)
    for process in host.get("ranks", ()):
        nodes[process["hostname"]] += _of_rank(process)
    return {
        name: {*_named(each, "node")} or {*_named(each, "part", "device")}
        for name, each in nodes.items()
    }


def _of_rank(rank: Mapping[str, Any]) -> Sequence[Logged]:
    counters: Sequence[Logged] = rank.get("energy_counters", ())
    return counters


def _named(counters: Iterable[Logged], *scopes: str) -> tuple[str, ...]:
    return tuple(counter["name"] for counter in counters if counter["scope"] in scopes)


def _summed(host: Mapping[str, Any]) -> tuple[str, ...]:
    """What all nodes' energy is summed from. Raises _NotKnown where nodes or ranks differ in it."""
    ranks = host.get("ranks", ())
    if not any("energy_counters" in rank for rank in ranks):
        raise _NotKnown(OLDER)
    absent = dict.fromkeys(name for rank in ranks for name in rank.get("energy_absent", ()))
    why = f" ({'; '.join(absent)})" if absent else ""
    if len({*map(machine_of, ranks)}) < len({rank["hostname"] for rank in ranks}):
        raise _NotKnown("nodes share a machine, whose counters each of them reads")
    of_nodes = {tuple(sorted(names)) for names in _of_nodes(host).values()}
    if of_nodes == {()}:
        raise _NotKnown(f"no counter could be read{why}")
    if len(of_nodes) > 1 or len({_named(_of_rank(rank), "device") for rank in ranks}) > 1:
        raise _NotKnown(f"not all nodes, or not all ranks, have the same counters{why}")
    return of_nodes.pop()


def _joules(run: Run, summed: Sequence[str]) -> float:
    """Of all windows and nodes; raises _NotKnown. A rank's readings lie outside its window, two
    exchanges apart: by their seconds they are brought to the window's, at equal power.
    """
    ranks, of_nodes = run.host["ranks"], _of_nodes(run.host)
    joules = 0.0
    shortest_s = min((window["seconds"] for window in run.windows), default=math.inf)
    for name in summed:
        least_s = _FEWEST_UPDATES * (update_s := _UPDATES_S.get(name.split()[0], 0.0))
        if shortest_s < least_s:
            counter = f"{name} has a new count every {update_s:g} s"
            raise _NotKnown(f"{counter}, and windows took less than {least_s:g} s")
    for window in run.windows:
        readings = [window.get(name, ()) for name in ("energy_counts", "energy_seconds")]
        if any(len(of_ranks) != len(ranks) for of_ranks in readings):
            raise _NotKnown("a window lacks its readings")
        for rank, counts, seconds in zip(ranks, *readings, strict=True):
            if used := sum(_used(_of_rank(rank), counts, of_nodes[rank["hostname"]])):
                if seconds is None:
                    raise _NotKnown("a window lacks the seconds between its readings")
                joules += used * window["seconds"] / seconds
    if not joules:
        raise _NotKnown("the counters stood still")
    return joules


def _used(
    counters: Sequence[Logged],
    counts: Sequence[Sequence[int | None]],
    summed: Collection[str],
) -> Iterator[float]:
    """Joules between two readings of each counter that is summed. Raises _NotKnown."""
    if [len(both) for both in counts] != [2] * len(counters):
        raise _NotKnown("a window lacks a reading")
    for counter, (before, after) in zip(counters, counts, strict=True):
        if counter["name"] not in summed:
            continue
        if before is None or after is None:
            raise _NotKnown(f"{counter['name']} could not be read in every window")
        # at most once: a window is far shorter than the time from one beginning to the next
        again = (counter["wraps_at"] or 0) if after < before else 0
        if after + again < before:
            raise _NotKnown(f"{counter['name']} went backwards")
        yield (after + again - before) * counter["joules"]


def of_point(
    blocks: Sequence[Resources], rate: Estimate, world_size: int
) -> dict[str, Estimate | tuple[str, ...] | None]:
    """What a point takes, by block, at its images/s; None where it is not known alike in all.

    Utilisation is of the device's peak as stated (model FLOP utilisation, Chowdhery et al. 2022).
    """

    def mean(name: str) -> Estimate | None:
        # of some blocks it would stand beside an n that is not its own
        values = [block.values[name] for block in blocks if name in block.values]
        return stats.geometric_mean(values) if len(values) == len(blocks) else None

    def constant(name: str) -> float | None:
        of_blocks = {block.values.get(name) for block in blocks}
        return of_blocks.pop() if len(of_blocks) == 1 else None

    flops, peak = constant("flops_per_image"), constant("peak_flops_per_s")
    achieved = rate.times(flops / world_size) if flops else None
    counters = {block.counters for block in blocks if JOULES in block.values}
    return {
        JOULES: mean(JOULES) if len(counters) == 1 else None,
        "energy_counters": counters.pop() if len(counters) == 1 else (),
        "rank_memory_bytes": mean("rank_memory_bytes"),
        "device_memory_bytes": mean("device_memory_bytes"),
        "flops_per_s_and_rank": achieved,
        "flop_utilisation": achieved.times(1 / peak) if achieved and peak else None,
    }
