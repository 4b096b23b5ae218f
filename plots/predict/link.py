"""A link: latency and bandwidth by regime, stated in a file or fitted to sweeps of all-reduces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import ConfigDict, Field, field_validator

from bench.config import UsageError
from bench.options import one_of
from bench.study import collectives
from bench.study.collectives import CostLine, Measured
from bench.study.definition import StrictTable
from bench.study.files import read as read_table
from plots.predict.costs import ALGORITHMS, Array, Cost, Terms

_KIND = "all_reduce"
_LEAST = 0.05  # of the seconds over several nodes: what is left for the links between them
_FASTEST = 1e15  # bytes/s: a link whose bytes cost nothing

LatencySeconds = Annotated[float, Field(ge=0, le=60)]
LinkRate = Annotated[float, Field(gt=0, le=_FASTEST)]


class Regime(StrictTable):
    """A protocol, or sizes that behave alike; inside a node as between nodes where not stated."""

    model_config = ConfigDict(allow_inf_nan=False)

    latency_seconds: LatencySeconds = Field(description="of a step between nodes")
    bytes_per_s: LinkRate = Field(description="of one rank between nodes")
    node_latency_seconds: LatencySeconds | None = Field(None, description="inside a node")
    node_bytes_per_s: LinkRate | None = Field(None, description="of one rank inside a node")
    start_seconds: LatencySeconds = Field(0.0, description="of every collective, at any size")
    first_step_bytes: float = Field(0.0, ge=0, description="bytes of a step from which it holds")

    def line(self, terms: Terms) -> tuple[Array, Array]:
        """Seconds of a message of no bytes, and per byte, by ranks; no start if nothing is sent."""
        near, rate = self.node_latency_seconds, self.node_bytes_per_s
        near, rate = self.latency_seconds if near is None else near, rate or self.bytes_per_s
        start_s, s_per_byte = terms.line(self.latency_seconds, self.bytes_per_s, near, rate)
        busy = terms.node_volume + terms.network_volume > 0
        return start_s + np.where(busy, self.start_seconds, 0.0), s_per_byte


class Link(StrictTable):
    """What connects the ranks. A collective takes the fastest of the algorithms and of the regimes
    that begin at the same size, as a library chooses.
    """

    source: str = Field(min_length=1, description="who measured or published it, and where")
    algorithms: tuple[str, ...] = Field(min_length=1, description="that the library has")
    ranks_per_node: int = Field(1, ge=1, le=2**16)
    regimes: tuple[Regime, ...] = Field(min_length=1, description="tables of their own")

    @field_validator("algorithms")
    @classmethod
    def _exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        checked: tuple[str, ...] = one_of(ALGORITHMS)(names)
        return checked

    @field_validator("regimes")
    @classmethod
    def _cover(cls, regimes: tuple[Regime, ...]) -> tuple[Regime, ...]:
        if all(regime.first_step_bytes > 0 for regime in regimes):
            raise ValueError("none holds from 0 bytes on; leave first_step_bytes of the first out")
        return regimes

    def seconds(self, size: Array | float, ranks: Array) -> Array:
        """Of one all-reduce of `size` bytes over `ranks`, both of one shape, or the size alone."""
        return self.over(ranks)(size)

    def over(self, ranks: Array) -> Cost:
        """Those seconds by size; what is of the ranks alone is worked out once for all sizes."""
        firsts = sorted({regime.first_step_bytes for regime in self.regimes})
        ends = dict(zip(firsts, [*firsts[1:], np.inf], strict=True))
        lines = []
        for name in self.algorithms:
            terms = ALGORITHMS[name](ranks, self.ranks_per_node)
            for regime in self.regimes:
                first = regime.first_step_bytes
                lines.append((terms.step_share, first, ends[first], *regime.line(terms)))

        def seconds(size: Array | float) -> Array:
            best = np.array(np.inf)
            for share, first, end, start_s, s_per_byte in lines:
                step_bytes = size * share
                holds = (first <= step_bytes) & (step_bytes < end)
                best = np.minimum(best, np.where(holds, start_s + s_per_byte * size, np.inf))
            return best

        return seconds

    def relative_errors(self, sweeps: Sequence[Measured]) -> Array:
        """Of every median all-reduce: this link's seconds over those measured, minus 1."""
        size, ranks, seconds = _medians(sweeps)
        return self.seconds(size, ranks) / seconds - 1


def read(path: Path) -> Link:
    """A stated link. Raises UsageError with the key to mend."""
    return read_table(path, Link)


def alike(sweeps: Sequence[Measured], ranks_per_node: int | None = None) -> list[Measured]:
    """Those that one link explains: of so many ranks on each of several nodes (if not given, the
    most), and of no more on one node. None may be.
    """
    most = ranks_per_node or max((m.ranks_per_node for m in sweeps if m.nodes > 1), default=0)
    if not most:
        return [*sweeps]
    return [m for m in sweeps if m.ranks_per_node == most or (m.nodes == 1 and m.ranks <= most)]


def fitted(sweeps: Sequence[Measured], algorithms: Sequence[str] = ("ring",)) -> Link:
    """The algorithm, and the latency and bandwidth of its steps, that fit all sweeps best.

    Two levels where sweeps of one node stand beside sweeps of several nodes, else one. Least
    relative squares, in at most two regimes of a level by the bytes of a step, in which sweeps of
    several numbers of ranks meet. Sweeps of one number tell no algorithm from another: the first is
    taken then. Beyond the measured sizes the outer regimes go on. Raises UsageError where the
    largest sizes tell no bandwidth.
    """
    if len({m.ranks for m in sweeps}) < 2:
        algorithms = algorithms[:1]
    rows = _medians(sweeps)
    of_nodes = {m.ranks_per_node for m in sweeps if m.nodes > 1}
    two_levels = bool(of_nodes) and any(m.nodes == 1 for m in sweeps)
    per_node = max(of_nodes) if two_levels else 1
    where = sorted({f"{m.cell} on {m.ranks} ranks of {m.machine}" for m in sweeps})
    where += [f"{per_node} of them on a node"] if two_levels else []
    links = [_fitted(rows, name, f"fitted: {'; '.join(where)}", per_node) for name in algorithms]
    return min(links, key=lambda link: float(np.sum(link.relative_errors(sweeps) ** 2)))


def resampled(
    link: Link, sweeps: Sequence[Measured], count: int, generator: np.random.Generator
) -> Iterator[Link]:
    """Fits to the times of `link`, the relative errors of its own dealt out anew: what the sweeps
    leave open. Those that tell no bandwidth are left out.
    """
    size, ranks, seconds = _medians(sweeps)
    on_the_line = link.seconds(size, ranks)
    for _ in range(count):
        drawn = on_the_line * generator.choice(seconds / on_the_line, len(seconds))
        with suppress(UsageError):
            rows = size, ranks, drawn
            yield _fitted(rows, link.algorithms[0], link.source, link.ranks_per_node)


def _fitted(rows: tuple[Array, Array, Array], name: str, source: str, per_node: int) -> Link:
    size, ranks, seconds = rows
    terms = ALGORITHMS[name](ranks, per_node)
    inside, step_bytes = terms.network_steps == 0, size * terms.step_share
    node, rest_s, steps = None, seconds, terms.network_steps
    if inside.any():  # what is known of a node is taken off what several take
        node = _Level.of(step_bytes[inside], terms.node_steps[inside], seconds[inside])
        near_s = terms.node_steps * np.array([node.at(x).latency_s for x in step_bytes])
        rest_s = np.maximum(seconds - near_s, _LEAST * seconds)
    far = ~inside
    sent = terms.network_volume[far] * size[far] / steps[far]
    network = _Level.of(sent, steps[far], rest_s[far])
    network = network.scaled(float(np.median(step_bytes[far] / sent)))
    firsts = sorted({*network.firsts, *(node.firsts if node else ())})
    regimes = tuple(_regime(x, network.at(x), node.at(x) if node else None) for x in firsts)
    return Link(source=source, algorithms=(name,), regimes=regimes, ranks_per_node=per_node)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """Lines inside a node, or between nodes, each from the bytes of a step on where it begins."""

    firsts: tuple[float, ...]
    lines: tuple[CostLine, ...]

    @classmethod
    def of(cls, step_bytes: Array, steps: Array, seconds: Array) -> Self:
        """Of whole collectives, whose seconds have the relative error of a step's."""
        lines = collectives.fit(step_bytes.tolist(), (seconds / steps).tolist())
        if not lines or lines[-1].s_per_byte * _FASTEST < 1:
            rule = "tell no bandwidth; sweep more and larger sizes"
            least = f"{step_bytes.min():g} bytes a step"
            raise UsageError(f"all-reduces of {len(step_bytes)} sizes from {least} on {rule}")
        ends = [line.last_bytes for line in lines]
        begins = [line.first_bytes for line in lines]
        between = [(a * b) ** 0.5 for a, b in zip(ends, begins[1:], strict=False)]
        return cls(firsts=(0.0, *between), lines=tuple(lines))

    def scaled(self, factor: float) -> Self:
        """Of steps whose bytes are counted otherwise."""
        return replace(self, firsts=tuple(factor * first for first in self.firsts))

    def at(self, step_bytes: float) -> CostLine:
        """That which holds there."""
        held = [line for x, line in zip(self.firsts, self.lines, strict=True) if x <= step_bytes]
        return held[-1]


def _regime(first: float, network: CostLine, node: CostLine | None) -> Regime:
    return Regime(
        latency_seconds=network.latency_s,
        bytes_per_s=_rate(network),
        node_latency_seconds=node and node.latency_s,
        node_bytes_per_s=node and _rate(node),
        first_step_bytes=first,
    )


def _rate(line: CostLine) -> float:
    return 1 / max(line.s_per_byte, 1 / _FASTEST)


def _medians(sweeps: Sequence[Measured]) -> tuple[Array, Array, Array]:
    """Bytes, ranks and median seconds of every all-reduce between ranks. Raises UsageError."""
    timed = [t for m in sweeps for t in m.of(_KIND) if t.ranks > 1]
    if not timed:
        raise UsageError("no all-reduce of two or more ranks is in the sweeps; measure one")
    rows = np.array([(t.bytes, t.ranks, t.median_s) for t in timed], float)
    return rows[:, 0], rows[:, 1], rows[:, 2]
