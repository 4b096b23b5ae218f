"""The analysis of one study: all numbers that a report prints, computed once and not rounded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pandas as pd

from bench.backends.catalogue import gloo, label
from bench.config import Role, fields_with
from bench.record.events import machine_of
from bench.study import comparability, stats
from bench.study.collectives import Measured
from bench.study.comparability import EMULATE, usual
from bench.study.comparison import Comparison, compare
from bench.study.definition import Point, Study
from bench.study.frames import Loaded
from bench.study.plan import config_of, launches_of, points
from bench.study.points import CURVES, NotCompared, Table, alone, by_point, tabulate
from bench.study.stats import Estimate
from plots.analyse import exchange, scaling
from plots.analyse.scaling import Efficiency, Gain, Throughput
from plots.analyse.trainings import RankPaces, Trained, summarise, summarise_ranks

LIMIT = 0.02  # a change of a cell's level that matters
Planned = tuple[str, Point]  # a curve, and a point of it


@dataclass(frozen=True)
class Gap:
    """A planned point of one curve, and the planned launches that hold no usable run of it."""

    curve: str
    point: Point
    planned: int
    missing: tuple[int, ...]


@dataclass(frozen=True)
class Trend:
    """Step time in the last window over that in the first, pooled over a cell's runs in one arm."""

    cell: str
    arm: str
    runs: int
    judged_runs: int  # with enough steps and windows
    over_first: stats.Paired | None  # one value a run; None where no run is judged

    @property
    def changes(self) -> bool:
        """Whether `over_first` is more than LIMIT away from 1, and its interval excludes 1."""
        if self.over_first is None or abs(self.over_first.ratio - 1) <= LIMIT:
            return False
        ends = self.over_first.interval()
        return ends is not None and not ends[0] <= 1 <= ends[1]


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Median, p95 and p99 of a point's step times, all ranks together: each a median over runs."""

    point: Point
    runs: int
    steps_per_run: int
    median_seconds: Estimate
    p95_seconds: Estimate | None
    p99_seconds: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Results of a study's usable runs; `loaded` also lists its unusable runs."""

    loaded: Loaded
    table: Table
    throughput: list[Throughput]
    efficiency: list[Efficiency]
    comparisons: list[Comparison]
    gains: list[Gain]
    not_compared: list[NotCompared]
    step_times: list[StepTimes]
    trends: list[Trend]
    digests: list[comparability.DigestCheck]
    varying: list[str]  # facts that differ though no point asks for it
    planned: list[Planned]
    gaps: list[Gap]
    breakdowns: list[exchange.StepParts]
    costs: list[exchange.Cost]
    overlaps: list[exchange.Overlap]
    bounds: list[exchange.Bound]
    trained: list[Trained]
    served: list[RankPaces]

    @property
    def launches(self) -> int:
        """Number of launches with at least one usable run."""
        return int(self.loaded.runs["launch"].nunique())

    @property
    def timelines(self) -> list[str]:
        """Timelines that emulated compute followed, each as 'NAME SHORT_DIGEST'."""
        facts = self.loaded.runs["facts"]
        return sorted({one[EMULATE] for one in facts if comparability.is_emulated(one)})

    def emulated(self, arm: str | None = None) -> bool:
        """Check whether compute slept in all usable runs, or all of `arm`; False without runs."""
        runs = self.loaded.runs
        slept = runs["emulated"] if arm is None else runs["emulated"][runs["arm"] == arm]
        return bool(len(slept) and slept.all())

    @property
    def primary(self) -> Comparison | None:
        """The comparison that answers the study's question; None if no comparison is primary."""
        return next((c for c in self.comparisons if c.primary), None)

    @property
    def notes(self) -> list[str]:
        """Sentences on what had to be assumed about the runs, and on what is not as planned."""
        study, notes = self.loaded.study, list(self.loaded.notes)
        studies = Counter(self.loaded.runs["study"].fillna("none")).most_common()
        if studies[1:]:
            names = ", ".join(f"{name} ({n})" for name, n in studies)
            notes.append(f"The runs are of several studies: {names}.")
        if study.primary is not None and self.primary is None:
            wrong = "The primary comparison that the study names is not exactly one here"
            notes.append(f"{wrong}, so all share one error.")
        return [*notes, *(f"not the same in all runs: {v}" for v in self.varying)]

    @property
    def attempts(self) -> dict[str, dict[str, int]]:
        """Counts of failed or repeated runs, by cell ('' if not known), then by how they ended."""
        loaded = self.loaded
        ends = [(x.cell, "repeated" if x.state == "ok" else x.state) for x in loaded.superseded]
        ends += [(x.cell, x.state) for x in loaded.unusable if x.state != "ok"]  # else a copy
        cells = {c for row in self.comparisons for c in (row.reference, row.candidate)}
        return {
            cell: dict(Counter(end for of, end in ends if of == cell))
            for cell in sorted(cells | {cell for cell, _ in ends})
        }


def analyse(
    loaded: Loaded,
    collectives: Sequence[Measured] = (),
) -> Analysis:
    """Compute all numbers of a study. It needs a usable run; logs of all-reduces are optional."""
    study, runs, table = loaded.study, loaded.runs, tabulate(loaded.runs)
    planned, missing = planned_points(study), list[NotCompared]()
    held = {p: {launch.number for launch in launches} for p, launches in table.launches.items()}
    gaps = [  # launches beyond those planned do not stand in
        Gap(curve, point, launches, missed)
        for curve, point in planned
        for launches in [launches_of(study, point, study.launches)]
        if (missed := tuple(b for b in range(launches) if b not in held.get(point, ())))
    ]
    facts, observed = runs["facts"].tolist(), tabulate(loaded.observed)
    by_design = (*comparability.OF_THE_POINT, "seed", *comparability.VARIED, *study.varied)
    by_design += (comparability.OWN_CODE,)
    compared = compare(table, study, missing)
    gained = sorted(scaling.gains(table, study, missing), key=_single_first)
    return Analysis(
        loaded=loaded,
        table=table,
        throughput=list(scaling.throughput(table)),
        comparisons=compared,
        gains=gained,
        efficiency=list(scaling.efficiency(table, missing)),
        bounds=list(exchange.bounds(table, runs, collectives, missing)),
        breakdowns=list(exchange.breakdowns(table, observed, missing)),
        costs=list(exchange.costs(table, observed, missing)),
        overlaps=list(exchange.overlaps(table, missing)),
        not_compared=missing,
        step_times=list(_step_times(runs)),
        trends=trends(runs),
        digests=list(comparability.compare_digests(runs)),
        varying=comparability.differences(facts, by_design) + comparability.compute_env(facts),
        planned=planned,
        gaps=gaps,
        trained=sorted(summarise(runs), key=_single_first),
        served=sorted(summarise_ranks(runs), key=lambda s: s.point),
    )


def _single_first(row: Gain | Trained) -> tuple[object, ...]:
    return row.point.cell != "single", row.point


def _step_times(runs: pd.DataFrame) -> Iterator[StepTimes]:
    """Yield each point's step times; p95 and p99 are None if a run has too few steps for them."""

    def order(p: Point) -> tuple[object, ...]:
        return p.arm, p.world_size, p.batch_per_rank, p.cell != "single", p

    for point, group in sorted(by_point(runs), key=lambda entry: order(entry[0])):
        p95, p99 = (group[f"step_seconds_{q}"].astype(float) for q in ("p95", "p99"))
        yield StepTimes(
            point=point,
            runs=len(group),
            median_seconds=stats.median_estimate(group["step_seconds_median"].tolist()),
            p95_seconds=None if p95.hasnans else stats.median_estimate(p95.tolist()),
            p99_seconds=None if p99.hasnans else stats.median_estimate(p99.tolist()),
            steps_per_run=int(group["steps"].max()),
        )


def planned_points(study: Study) -> list[Planned]:
    """List every planned (curve, point), except points whose runs time the parts of steps.

    The list is empty if a study leaves ranks or transports to a site's file. Raises UsageError for
    a plan that cannot run.
    """
    if study.needs_site:
        return []
    plan = [
        (curve, point)
        for point, curves in points(study).items()
        if config_of(study, point, curves).observe == "nothing"
        for curve in curves
    ]
    cells = study.cells.index
    return sorted(plan, key=lambda x: (CURVES.index(x[0]), cells(x[1].cell), *x[1][2:]))


def trends(runs: pd.DataFrame) -> list[Trend]:
    """Return the change of step time within runs, pooled over all runs of each cell and arm."""
    pooled = []
    grouped: Any = runs.groupby(["cell", "arm"])
    for (cell, arm), rows in grouped:
        last = rows.loc[rows["judged"], "last_over_first"].tolist()
        over = stats.paired_ratio(numerator=last, denominator=[1.0] * len(last)) if last else None
        pooled.append(Trend(cell, arm, len(rows), len(last), over))
    return pooled


def machine(host: dict[str, Any]) -> str:
    """Describe in one line the machine of a run's `host` record: GPUs, processor, cores, nodes."""
    ranks = host.get("ranks", ())
    cpus = Counter(rank["cpu"] for rank in ranks if "cpu" in rank)
    cores = {n for rank in ranks if (n := rank.get("cpus_on_node")) is not None}
    nodes, machines = (len({*map(of, ranks)}) for of in (itemgetter("hostname"), machine_of))
    owned = {(r["hostname"], r["gpu_uuid"]): r["gpu"] for r in ranks if "gpu" in r}
    gpus = Counter(owned.values())
    words = [f"{n} x {gpu}" for gpu, n in gpus.items()]
    words += [" + ".join(cpus) or "processor not recorded"]
    place = "machine" if machines < nodes else "node"
    words += [f"{'/'.join(map(str, sorted(cores)))} cores per {place}"] if cores else []
    together = f" on {machines} machine{'s' * (machines > 1)}" if machines < nodes else ""
    words += [f"{nodes} node{'s' * (nodes > 1)}{together}"] if nodes else []
    return ", ".join(words)


def gloo_builds(a: Analysis) -> str:
    """Name the Gloo build of each compared cell that uses Gloo; '' if no cell does."""
    versions = a.loaded.host.get("versions", {})
    cells = [cell for c in a.comparisons for cell in (c.reference, c.candidate)]
    builds = {label(cell): build for cell in cells if (build := gloo(cell, versions))}
    return "; ".join(f"{name}: {build}" for name, build in builds.items())


def workload(a: Analysis) -> str:
    """Describe model, data, image size, precision, and other options that are not at default."""
    values: dict[str, set[str]] = defaultdict(set)
    for cell, facts in zip(a.loaded.runs["cell"], a.loaded.runs["facts"], strict=True):
        work = comparability.varied_of(facts)
        for name, value in (alone(work) if cell == "single" else work).items():
            values[name].add(value)
    shared = {name: next(iter(of)) for name, of in values.items() if len(of) == 1}
    data = "no" if a.emulated() else shared.get("dataset", "several kinds of")
    words = [shared.get("model", "several models"), f"{data} data"]
    words += [f"{shared['image_size']} px"] if "image_size" in shared else []
    words += [shared["precision"]] if "precision" in shared else []
    unusual = [k for k in fields_with(Role.DISCLOSED) if shared.get(k, usual(k)) != usual(k)]
    return ", ".join([*words, *(f"{k}={shared[k]}" for k in unusual)])
