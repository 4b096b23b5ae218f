"""What a study costs before it is submitted, and the half-width to expect of its intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bench.config import RunConfig
from bench.config.rules import steep_rate
from bench.record import read_run
from bench.record.archive import logs_in
from bench.study.definition import Study
from bench.study.jobs import studies_at
from bench.study.limits import MIN_BLOCKS
from bench.study.plan import Pairs, PlannedPoint, PlannedRun
from bench.study.status import RunStatus
from slurm.directives import Request
from slurm.fit import START_S, Job, assumed_s, minutes
from slurm.session import Work
from slurm.speed import too_slow
from slurm.together import together

# sd of the log ratio of two runs of a launch, pooled over this project's own studies of real
# training on shared machines of two cores: by turns `local`, `local-another-boot`,
# `local-transports`, `handwritten`, `precision`, `aa` and `injected` (0.1 to 2.0 %, 76 degrees
# of freedom), by separate launches `exposed` and `overlap` (32). Nodes of one's own may do
# better: a pilot shows it.
ASSUMED_NOISE_BY_TURNS = 0.011
ASSUMED_NOISE_APART = 0.045
_MOST_LOGS = 200  # of another study: enough for a median, and read in a second
_WORK = ("model", "dataset", "image_size", "device", "precision", "compile")
_STEPS = ("warmup_steps", "windows", "lead_in_steps", "steps_per_window")


@dataclass(frozen=True)
class Noise:
    """The paired sd between blocks, as a share, and where it is from."""

    sd: float
    source: str


def lines(work: Work, assumed: float | None) -> list[str]:
    """All to be known before submitting: provenance, jobs, node-hours, and what they buy."""
    jobs, site = work.jobs, work.site
    times = run_times(work.study, work.statuses, of_other_studies(work.folder.path, site.name))
    measured = noise(work.statuses, work.study, assumed, site.noise, _apart(work))
    bought = precision(work, node_hours(jobs, times), measured)
    price = [f"site {site.name!r}: {site.provenance}"]
    price += table(jobs, work.study, work.request, times)
    price += steep(run.config for run in work.todo)
    return [*filter(None, (*price, too_slow(work))), bought]


def steep(configs: Iterable[RunConfig]) -> list[str]:
    """A line on the planned runs that will probably diverge: those waste their node-hours."""
    risky = [(c.peak_learning_rate, c.world_size, why) for c in configs if (why := steep_rate(c))]
    if not risky:
        return []
    _, ranks, why = max(risky)
    return [f"warning: {len(risky)} runs, up to {ranks} ranks: {why}"]


def table(jobs: Sequence[Job], study: Study, request: Request, times: Times) -> list[str]:
    """One line for each node count, and the sum."""
    limit_min = {job.id: minutes(job, study, request.site, request.minutes) for job in jobs}
    rows = []
    for nodes in sorted({job.nodes for job in jobs}):
        members = [job for job in jobs if job.nodes == nodes]
        runs = sum(len(job.runs) for job in members)
        most = max(limit_min[job.id] for job in members)
        rows.append(
            f"{nodes:5d} node(s): {len(members):3d} jobs, {runs:4d} runs, at most {most} min each, "
            f"about {_hours(node_hours(members, times))} node-h"
        )
    likely = _hours(node_hours(jobs, times))
    at_most = _hours(sum(job.nodes * limit_min[job.id] / 60 for job in jobs))
    total = f"{len(jobs)} jobs, about {likely} node-h, at most {at_most} node-h ({times.source})"
    return [*rows, total]


def node_hours(jobs: Iterable[Job], times: Times) -> float:
    """Node-hours that jobs may well take."""
    return sum(job.nodes * _seconds(job, times) / 3600 for job in jobs)


def _seconds(job: Job, times: Times) -> float:
    return START_S + sum(times.seconds(run.config) for run in job.runs)


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def precision(work: Work, node_h: float, noise: Noise) -> str:
    """'6 launches = 9.2 node-h, ±4 %, at most 20 = 31 node-h, ±2 %': to the first look, to the end.

    Half-widths at the level of a look.
    """
    from bench.study.looks import nominal_level
    from bench.study.stats import half_of_t

    left = len({job.block for job in work.jobs})
    price = f"{work.launches.partition(' of')[0]} = {_hours(node_h)} node-h"
    if left != work.blocks:
        price += f" for the {left} with runs to do"
    if work.blocks < MIN_BLOCKS or not work.study.pairs:
        return f"{price}; fewer than {MIN_BLOCKS} launches give no verdict"
    level = 1 - nominal_level(work.study.looks)
    half = math.expm1(half_of_t(noise.sd, work.blocks, level))
    price += f", about ±{100 * half:.1f} %"
    if work.most > work.blocks:
        most_h = node_h + node_h / left * (work.most - work.blocks)
        half = math.expm1(half_of_t(noise.sd, work.most, level))
        price += f"; at most {work.most} = {_hours(most_h)} node-h, ±{100 * half:.1f} %"
    price += f" on each ratio ({noise.source})"
    if half > work.study.margin:
        price += f"; equality within {100 * work.study.margin:g} % will hardly be shown: widen it"
    return price


def noise(
    statuses: Iterable[RunStatus],
    study: Study,
    assumed: float | None,
    of_site: float | None = None,
    apart: bool = False,
) -> Noise:
    """What the user says, else of this study's own pairs, else of the site or as assumed here."""
    if assumed is not None:
        return Noise(assumed, f"a paired sd of {100 * assumed:g} % assumed")
    done = [status.run for status in statuses if status.state == "ok"]
    measured = paired_sd([(run, read_run(run.log).images_per_s) for run in done], study.pairs)
    if measured is not None:
        sd, blocks = measured
        source = f"a paired sd of {100 * sd:.2g} % measured, at most {blocks} blocks so far"
        return Noise(sd, source)
    assumed, form = ASSUMED_NOISE_APART, "separate launches"
    if study.turns and not apart:
        assumed, form = ASSUMED_NOISE_BY_TURNS, "turns"
    sd = assumed if of_site is None else of_site
    where = f"as by {form} on shared machines" if of_site is None else "by the site file"
    return Noise(sd, f"a paired sd of {100 * sd:g} % assumed, {where}; --noise names another")


def _apart(work: Work) -> bool:
    """Whether some launch of this study cannot take turns at this site."""
    return any(launch.apart for launch in together(work.todo, work.study, work.site))


def paired_sd(rates: Iterable[tuple[PlannedRun, float]], pairs: Pairs) -> tuple[float, int] | None:
    """Pooled sd over blocks of ln(candidate / reference) and the most blocks; None of one block."""
    from bench.study.stats import pooled_sd

    logs = {(run.point, run.config.block): math.log(rate) for run, rate in rates}
    by_point: dict[PlannedPoint, list[float]] = {}
    for reference, candidate in pairs:
        for (point, block), log in logs.items():
            other = replace(point, cell=reference), block
            if point.cell == candidate and other in logs:
                by_point.setdefault(point, []).append(log - logs[other])
    sd = pooled_sd(by_point.values())
    return None if sd is None else (sd, max(map(len, by_point.values())))


@dataclass(frozen=True)
class TimedRun:
    """A run that ended ok, and the seconds from its launcher's start to its end."""

    config: RunConfig
    wall_s: float


@dataclass(frozen=True)
class Times:
    """Seconds that a run may well take, and a phrase that says where they are from."""

    known: list[TimedRun]
    assumed_s: float
    source: str

    def seconds(self, config: RunConfig) -> float:
        """Median of the same point, else of as many ranks, else of all, else the assumption."""
        same = [t.wall_s for t in self.known if _point(t.config) == _point(config)]
        ranks = [t.wall_s for t in self.known if t.config.world_size == config.world_size]
        every = [t.wall_s for t in self.known]
        return statistics.median(same or ranks or every or [self.assumed_s])


def _point(config: RunConfig) -> tuple[object, ...]:
    return config.cell, config.settings, config.world_size, config.samples_per_rank, *_work(config)


def _work(config: RunConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in (*_WORK, *_STEPS))


def run_times(study: Study, statuses: Iterable[RunStatus], others: Iterable[TimedRun]) -> Times:
    """From the study's own runs, else from those of others of equal work, else of any work."""
    ended = [(s.run.config, s.wall_s) for s in statuses if s.state == "ok"]
    measured = [TimedRun(config, wall_s) for config, wall_s in ended if wall_s is not None]
    elsewhere = [] if measured else list(others)
    works = {_work(s.run.config) for s in statuses}
    alike = [timed for timed in elsewhere if _work(timed.config) in works]
    assumed, known = assumed_s(study), measured or alike or elsewhere
    if not known:
        half = "" if study.expected_run_s else ": half of time_limit_s, no expected_run_s is named"
        return Times([], assumed, f"{assumed} s a run assumed{half}")
    names = ", ".join(sorted({timed.config.study or "?" for timed in known}))
    where = "" if measured else f" of {names}" if alike else f" of {names}, which is other work"
    runs = f"{len(known)} run{'s' if len(known) > 1 else ''}"
    median = statistics.median(timed.wall_s for timed in known)
    return Times(known, assumed, f"run time {median:.0f} s measured in {runs}{where}")


def of_other_studies(folder: Path, site: str) -> Iterator[TimedRun]:
    """Runs that ended ok in the studies beside `folder` whose jobs went to this site."""
    for other in studies_at(folder, site):
        logs = logs_in(other / "runs")
        for log in [log for log in logs if ".attempt-" not in log.name][:_MOST_LOGS]:
            with suppress(ValueError, LookupError, TypeError, AttributeError):  # a damaged log
                run = read_run(log)
                wall_s = run.exit.get("wall_s")
                if run.state == "ok" and run.config is not None and isinstance(wall_s, int | float):
                    yield TimedRun(run.config, float(wall_s))
