"""A point's means in each launch, and the launches that two points share.

A point is one measured configuration, and a launch one pass over all points. A point's runs in one
launch are averaged as times, never as rates (Hoefler & Belli 2015, rule 3).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.study import comparability, stats
from bench.study.comparability import LaunchId
from bench.study.definition import Point

CURVES = ("weak", "strong", "batch")


def fixed(point: Point, curve: str) -> int:
    """Return a curve's fixed size: batch per rank (weak), global batch (strong), ranks (batch)."""
    each = {"weak": point.batch_per_rank, "strong": point.global_batch}
    return (each | {"batch": point.world_size})[curve]


def series(point: Point, curve: str) -> tuple[object, ...]:
    """Return the sort key of a point's line in a plot of `curve`: arm, result of `fixed`, cell."""
    return point.arm, fixed(point, curve), point.cell != "single", point.cell


@dataclass(frozen=True, kw_only=True)
class LaunchMean:
    """One point in one launch: means over its runs, such as the seconds of a step."""

    step_seconds: float
    median_seconds: float  # of the runs' median steps
    first_step_over_rest: float  # of a window; nan where it is one step
    position: float  # in the order of the launch; nan where a log does not say
    session: str  # '' where it is not known
    runs: int
    facts: tuple[comparability.Facts, ...]
    busy_share: float  # of the windows' time, of the busiest host's cores; nan where not known
    input_share: float  # of the windows' time, of the rank that waited most
    parts: Mapping[str, float]  # mean seconds of each part of a step; empty if not observed
    resources: Mapping[str, float]  # what it takes besides time, in every run


@dataclass(frozen=True)
class NotCompared:
    """Two points that are not compared, in one launch or at all, and why."""

    pair: str  # both of them, in words
    reason: str
    absent: Point | None = None  # the one of which there is no usable run at all


@dataclass(frozen=True)
class Table:
    """The means of all points by launch, and the curves to which each point belongs."""

    launches: Mapping[Point, Mapping[LaunchId, LaunchMean]]
    curves: Mapping[Point, frozenset[str]]

    def work(self, point: Point) -> comparability.Facts:
        """Return the point's facts in which a study's arms may differ, from its first run."""
        return comparability.varied_of(next(iter(self.launches[point].values())).facts[0])

    def twin(self, point: Point, work: comparability.Facts) -> Point | None:
        """Return a point of the same cell and size whose facts are `work`; None if there is none.

        The point's own arm is preferred to others.
        """
        for arm in dict.fromkeys((point.arm, *(p.arm for p in self.launches))):
            other = point._replace(arm=arm)
            if other in self.launches and self.work(other) == work:
                return other
        return None

    def plain_arm(self, point: Point) -> str:
        """Return the arm in which `single` did the same work as a point, apart from the exchange.

        The point's own arm is preferred, and is returned too if `single` has no such arm.
        """
        work = alone(self.work(point))
        same = [p for p in self.launches if p.cell == "single" and alone(self.work(p)) == work]
        # an arm whose method alone is another has a plain process of its own
        return min((p.arm for p in same), key=lambda arm: arm != point.arm, default=point.arm)

    def on(self, curve: str) -> list[Point]:
        """Return the points of a curve, sorted by `series`, then by ranks and batch."""
        points = (p for p, curves in self.curves.items() if curve in curves)
        return sorted(points, key=lambda p: (*series(p, curve), p.world_size, p.batch_per_rank))

    def seconds(self, point: Point, launches: Iterable[LaunchId]) -> list[float]:
        """Return the mean seconds of a step in each of `launches`."""
        return [self.launches[point][launch].step_seconds for launch in launches]

    def facts(self, point: Point, launches: Iterable[LaunchId]) -> list[comparability.Facts]:
        """Return the facts of every run of the point in these launches."""
        return [one for launch in launches for one in self.launches[point][launch].facts]

    def paired(
        self,
        a: Point,
        b: Point,
        launches: Sequence[LaunchId],
        swapped: bool = False,
        of: str = "step_seconds",
    ) -> stats.Paired:
        """Estimate b's images/s over a's: the seconds of a's steps over those of b's, by launch.

        Both points must have all `launches`. `of` names another LaunchMean field to divide. Set
        `swapped` if a and b change their order between launches by design: the effect of the order
        is then fitted too.
        """
        means = [[self.launches[point][launch] for launch in launches] for point in (a, b)]
        before, after = ([getattr(mean, of) for mean in side] for side in means)
        places = np.array([[mean.position for mean in side] for side in means])
        first = (places[1] < places[0]).tolist() if swapped and not np.isnan(places).any() else ()
        return stats.paired_ratio(numerator=before, denominator=after, first=first)

    def shared(
        self, a: Point, b: Point, ignore: Collection[str], pair: str, missing: list[NotCompared]
    ) -> list[LaunchId]:
        """Return the launches in which two points did equal work; append refused ones to `missing`.

        Facts not in `ignore` must agree, and both points must have run in one Slurm job or session.
        `pair` names the two points in messages.
        """
        means_a, means_b = self.launches[a], self.launches[b]
        facts = {x: mean.facts + means_b[x].facts for x, mean in means_a.items() if x in means_b}
        differ = {x: "; ".join(comparability.differences(of, ignore)) for x, of in facts.items()}
        reasons = {x: why for x, why in differ.items() if why}
        split = {x.number for x in means_a} & {x.number for x in means_b} - {
            x.number for x in differ
        }
        for number in sorted(split):
            jobs = (
                " and ".join(x.allocation or "none recorded" for x in means if x.number == number)
                for means in (means_a, means_b)
            )
            reasons[LaunchId(number)] = f"not in one allocation: {' against '.join(jobs)}"
        missing += [NotCompared(f"{pair}, {launch.name}", why) for launch, why in reasons.items()]
        if not differ and not reasons:
            missing.append(NotCompared(pair, "no launch holds both"))
        return [launch for launch, why in differ.items() if not why]


def alone(work: comparability.Facts) -> comparability.Facts:
    """Return `work` without facts of the exchange and of backends, which one process ignores."""
    exchange = comparability.EXCHANGE
    return {
        k: v for k, v in work.items() if k not in exchange and not k.startswith(comparability.TUNED)
    }


def by_point(runs: pd.DataFrame) -> Iterator[tuple[Point, pd.DataFrame]]:
    """Yield each point with its runs, in the order of each point's first run."""
    if runs.empty:
        return
    grouped: Any = runs.groupby(["cell", "arm", "world_size", "batch_per_rank"], sort=False)
    for (cell, arm, world_size, batch), rows in grouped:
        yield Point(cell, arm, int(world_size), int(batch)), rows


def tabulate(runs: pd.DataFrame) -> Table:
    """Average the runs of every point inside every launch."""
    launches: dict[Point, dict[LaunchId, LaunchMean]] = {}
    curves: dict[Point, frozenset[str]] = {}
    for point, rows in by_point(runs):
        curves[point] = frozenset().union(*rows["curves"])
        repeats: dict[LaunchId, list[Mapping[str, Any]]] = defaultdict(list)
        records: Any = rows.to_dict("records")  # frames of launches would cost more
        for row in records:
            repeats[LaunchId(int(row["launch"]), row["allocation"])].append(row)
        launches[point] = {launch: _launch_mean(repeats[launch]) for launch in sorted(repeats)}
    return Table(launches, curves)


def _launch_mean(repeats: Sequence[Mapping[str, Any]]) -> LaunchMean:
    def mean(name: str) -> float:
        return float(np.mean([math.nan if r[name] is None else r[name] for r in repeats]))

    return LaunchMean(
        step_seconds=mean("step_seconds_mean"),
        median_seconds=mean("step_seconds_median"),
        first_step_over_rest=mean("first_step_over_rest"),
        position=mean("position"),
        session=str(repeats[0]["session"]),
        runs=len(repeats),
        facts=tuple(r["facts"] for r in repeats),
        busy_share=mean("busy_share"),
        input_share=mean("input_share"),
        parts=_means([r["parts"] for r in repeats]),
        resources=_means([r["resources"] for r in repeats]),
    )


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over runs of each value that all runs have."""
    names = sorted(set.intersection(*({*run} for run in runs)))
    return {name: sum(run[name] for run in runs) / len(runs) for name in names}


def describe(point: Point) -> str:
    """Describe a point: 'cell/mpi, 2 ranks, 16 images per rank', and its arm if it has one."""
    size = f"{ranks(point.world_size)}, {point.batch_per_rank} images per rank"
    return ", ".join(filter(None, (point.cell, size, point.arm)))


def ranks(n: int) -> str:
    """Count ranks in words: '1 rank', '2 ranks'."""
    return f"{n} rank" if n == 1 else f"{n} ranks"
