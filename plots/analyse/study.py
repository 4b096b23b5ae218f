"""One study, analysed: everything that figures, report and summary print, computed once and rounded
nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.config import Role, RunConfig, fields_with
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparability, comparison, coverage, input_pipeline, scaling
from plots.analyse import variants as gains
from plots.analyse.nodes import Calibrated, calibrate
from plots.analyse.points import NotCompared, Point, Table, by_point, tabulate
from plots.analyse.runs import Loaded
from plots.read.calibrations import Calibration


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Step time of the slowest rank at one point: medians over runs of each run's percentiles, and
    how many runs to look at.
    """

    point: Point
    runs: int
    median_seconds: Estimate
    p95_seconds: Estimate
    p99_seconds: Estimate
    steps_per_run: int
    outlier_steps: int
    not_steady_runs: int


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What the logs say. `loaded` keeps what they do not: unusable logs, superseded attempts,
    notes.
    """

    loaded: Loaded
    table: Table
    reference: str  # cells or backends, as the study names them
    candidate: str
    throughput: list[scaling.Throughput]
    efficiency: list[scaling.Scaled]
    comparisons: list[comparison.Comparison]
    gains: list[gains.Gain]
    not_compared: list[NotCompared]
    step_times: list[StepTimes]
    digests: list[comparability.DigestCheck]
    varying: list[str]
    pipelines: list[input_pipeline.Pipeline]
    planned: list[coverage.Planned]
    gaps: list[coverage.Gap]
    calibrated: Calibrated | None

    @property
    def blocks(self) -> int:
        """Blocks from which at least one run is usable."""
        return int(self.loaded.runs["block"].nunique())

    @property
    def notes(self) -> list[str]:
        """What had to be assumed, and what is not as planned."""
        lost = self.loaded.study.primary is not None and not any(
            c.primary for c in self.comparisons
        )
        lines = [
            "The primary comparison that the study names is not exactly one here, so none is left "
            "out of Holm's correction."
        ]
        studies = Counter(self.loaded.runs["study"].fillna("none")).most_common()
        foreign = (
            [
                f"The runs are of several studies: "
                f"{', '.join(f'{name} ({n})' for name, n in studies)}."
            ]
            if studies[1:]
            else []
        )
        return [
            *self.loaded.notes,
            *foreign,
            *(lines if lost else []),
            *(f"not the same in all runs: {v}" for v in self.varying),
        ]

    @property
    def tests(self) -> int:
        """Comparisons that Holm's correction spans."""
        return sum(c.holm_p is not None for c in self.comparisons)


def analyse(loaded: Loaded, calibrations: Sequence[Calibration] | None = None) -> Analysis:
    """All numbers of a study whose folder holds at least one usable run; `calibrations` None: it
    was not run by jobs.
    """
    table, planned = tabulate(loaded.runs), coverage.planned(loaded.study)
    efficiency, no_efficiency = scaling.efficiency(table)
    gained, no_gain = gains.measure(table)
    comparisons, no_comparison = comparison.compare(
        table,
        loaded.study.margin,
        loaded.study.primary,
        reference=loaded.study.reference,
        candidate=loaded.study.candidate,
    )
    return Analysis(
        loaded=loaded,
        table=table,
        reference=loaded.study.reference,
        candidate=loaded.study.candidate,
        throughput=scaling.throughput(table),
        efficiency=efficiency,
        comparisons=comparisons,
        gains=gained,
        not_compared=no_comparison + no_gain + no_efficiency,
        step_times=_step_times(loaded.runs),
        digests=comparability.compare_digests(loaded.runs),
        varying=comparability.varying(loaded.runs),
        pipelines=input_pipeline.measure(loaded.pipelines),
        planned=planned,
        gaps=coverage.find(loaded.study.blocks, planned, table),
        calibrated=None if calibrations is None else calibrate(calibrations, table),
    )


def _step_times(runs: pd.DataFrame) -> list[StepTimes]:
    rows = []
    for point, group in by_point(runs):
        median, p95, p99 = (
            stats.median_estimate(group[f"step_seconds_{q}"].tolist())
            for q in ("median", "p95", "p99")
        )
        rows.append(
            StepTimes(
                point=point,
                runs=len(group),
                median_seconds=median,
                p95_seconds=p95,
                p99_seconds=p99,
                steps_per_run=int(group["steps"].max()),
                outlier_steps=int(group["outlier_steps"].sum()),
                not_steady_runs=int((~group["steady"].astype(bool)).sum()),
            )
        )

    def order(p: Point) -> tuple[object, ...]:
        return p.variant, p.world_size, p.samples_per_rank, p.cell != "single", p

    return sorted(rows, key=lambda r: order(r.point))


def machine(host: dict[str, Any]) -> str:
    """The machine of a run in one line: processor, cores, nodes."""
    ranks = comparability.ranks(host)
    cpus = Counter(str(r["cpu"]) for r in ranks if "cpu" in r)
    cores = {r["cpus_on_node"] for r in ranks if "cpus_on_node" in r}
    nodes = len({r["hostname"] for r in ranks if "hostname" in r})
    words = [" + ".join(cpus) or "processor not recorded"]
    words += [f"{'/'.join(map(str, sorted(cores)))} cores per node"] if cores else []
    words += [f"{nodes} node" if nodes == 1 else f"{nodes} nodes"] if nodes else []
    return ", ".join(words)


def workload(a: Analysis) -> str:
    """What was trained, in a few words, from the facts that all runs share; what is not as usual is
    named.
    """
    shared = comparability.shared(a.loaded.runs["cell"], a.loaded.runs["facts"])
    words = [
        shared.get("model", "several models"),
        f"{shared.get('dataset', 'several kinds of')} data",
    ]
    words += [f"{shared['image_size']} px"] if "image_size" in shared else []
    words += [shared["precision"]] if "precision" in shared else []
    named = fields_with(Role.DISCLOSED)
    return ", ".join(
        [*words, *(f"{k}={shared[k]}" for k in named if shared.get(k, usual(k)) != usual(k))]
    )


def usual(field: str) -> str:
    """A field's default as facts write it."""
    return str(RunConfig.model_fields[field].default)
