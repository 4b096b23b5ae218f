"""Where each rank of a launch works: its cores, their NUMA nodes, and the GPU that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from bench.launch import gpu
from bench.tools.doctor.findings import Finding, ok, ranges, warning

_Facts = Mapping[str, Any]
_BIND = "bind each rank near its GPU: srun --gpus-per-node=N --gpu-bind=closest, numactl -N"
_APART = "give each rank its own: mpirun --map-by slot:PE=N, srun --cpus-per-task=N"


def devices(facts: _Facts, env: Mapping[str, str], sysfs: Path) -> dict[str, Any]:
    """The GPUs that a rank sees, as the probe names them, their NUMA nodes, and what chose them."""
    nodes = [gpu.numa_node(bus, sysfs) for bus in facts.get("buses", [])]
    names = facts.get("devices", [])
    return {"devices": names, "device_nodes": nodes, "visible_devices": gpu.visible(env)}


def find(ranks: Sequence[_Facts], threads: int) -> list[Finding]:
    """One line on all ranks, those at a like place together, and what is wrong with places."""
    by_place: dict[str, list[int]] = {}
    for r in ranks:
        by_place.setdefault(_place(r), []).append(r["rank"])
    text = "; ".join(f"rank {ranges(some)}: {place}" for place, some in by_place.items())
    return [ok("places", text), *_across(ranks), *_shared(ranks, threads)]


def device(r: _Facts) -> int | None:
    """Index of the GPU that a rank takes among those that it sees; None where it has none."""
    count = len(r["devices"])
    index = 0 if count == 1 else r["local_rank"]
    return index if index < count else None


def _place(r: _Facts) -> str:
    text = f"cores {ranges(r['affinity'])}{_at(r['numa_nodes'])}"
    if (index := device(r)) is None:
        return text
    text += f", GPU {index} of {len(r['devices'])}{_at([_device_node(r)])}"
    return text + "".join(f", {name}={value}" for name, value in r["visible_devices"].items())


def _at(nodes: Sequence[int | None]) -> str:
    names = ", ".join(str(node) for node in nodes if node is not None)
    return f" (NUMA node {names or 'not known'})"


def _device_node(r: _Facts) -> int | None:
    index = device(r)
    return None if index is None else r["device_nodes"][index]


def _across(ranks: Sequence[_Facts]) -> Iterator[Finding]:
    """Cores from which every copy to the rank's GPU crosses to another NUMA node."""
    far = [r for r in ranks if r["numa_nodes"] and _device_node(r) not in (None, *r["numa_nodes"])]
    if far:
        pair = f"cores{_at(far[0]['numa_nodes'])} and GPU{_at([_device_node(far[0])])}"
        text = f"rank {ranges([r['rank'] for r in far])}: {pair} are apart, and copies cross"
        yield warning("places", text, _BIND)


def _shared(ranks: Sequence[_Facts], threads: int) -> Iterator[Finding]:
    """Ranks that are bound, and share cores while others of their node are free.

    Ranks that may all use the same cores, enough for their threads and exchanges, are not bound.
    """
    for a, b in combinations(ranks, 2):
        both = {*a["affinity"]} & {*b["affinity"]} if a["hostname"] == b["hostname"] else ()
        if not both:
            continue
        either = {*a["affinity"], *b["affinity"]}
        bound = both != either or len(both) < a["local_size"] * (threads + 1)
        if bound and len(either) < a["cpus_on_node"]:
            who = f"ranks {a['rank']} and {b['rank']} share core(s) {ranges(sorted(both))}"
            text = f"{who} of the {a['cpus_on_node']} of {a['hostname']}"
            yield warning("places", text, _APART)
            return
