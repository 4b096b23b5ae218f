"""What a study costs before it is submitted: jobs, minutes and node-hours."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.config import RunConfig
from bench.config.rules import steep_rate
from bench.study.definition import Study
from bench.study.limits import MIN_BLOCKS
from bench.study.status import RunStatus
from slurm.directives import Request
from slurm.fit import START_S, Job, assumed_s, minutes
from slurm.session import Work


def lines(work: Work) -> list[str]:
    """Say all to be known before submitting: provenance, jobs, node-hours, and their launches."""
    jobs, site, times = work.jobs, work.site, run_times(work.study, work.statuses)
    price = [f"site {site.name!r}: {site.provenance}"]
    price += table(jobs, work.study, work.request, times)
    return [*price, *steep(run.config for run in work.todo), _launches(work, times)]


def steep(configs: Iterable[RunConfig]) -> list[str]:
    """Warn of planned runs that will probably diverge: those waste their node-hours."""
    risky = [(c.peak_learning_rate, c.world_size, why) for c in configs if (why := steep_rate(c))]
    if not risky:
        return []
    _, ranks, why = max(risky)
    return [f"warning: {len(risky)} runs, up to {ranks} ranks: {why}"]


def table(jobs: Sequence[Job], study: Study, request: Request, times: Times) -> list[str]:
    """Make one line for each node count, and the sum."""
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


def _launches(work: Work, times: Times) -> str:
    """Say what the launches up to the first look cost, and all that there may be."""
    node_h, left = node_hours(work.jobs, times), len({job.block for job in work.jobs})
    price = f"{work.launches.partition(' of')[0]} = {_hours(node_h)} node-h"
    if left != work.blocks:
        price += f" for the {left} with runs to do"
    if work.blocks < MIN_BLOCKS or not work.study.pairs:
        return f"{price}; fewer than {MIN_BLOCKS} launches give no verdict"
    if work.most > work.blocks:
        most_h = node_h + node_h / left * (work.most - work.blocks)
        price += f"; at most {work.most} = {_hours(most_h)} node-h"
    return price


def node_hours(jobs: Iterable[Job], times: Times) -> float:
    """Add up the node-hours that jobs may well take."""
    return sum(job.nodes * _seconds(job, times) for job in jobs) / 3600


def _seconds(job: Job, times: Times) -> float:
    return START_S + sum(times.seconds(run.config) for run in job.runs)


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


@dataclass(frozen=True)
class Times:
    """Seconds that a run may well take by its ranks, or any, and where they are from."""

    of_ranks: dict[int, float]
    of_any: float
    source: str

    def seconds(self, config: RunConfig) -> float:
        """Return the median of runs of as many ranks, else of all, else the assumption."""
        return self.of_ranks.get(config.world_size, self.of_any)


def run_times(study: Study, statuses: Iterable[RunStatus]) -> Times:
    """Take the times of the study's own runs that ended ok, else what the study expects."""
    ended = [(s.run.config.world_size, s.wall_s) for s in statuses if s.state == "ok"]
    walls = [(ranks, wall_s) for ranks, wall_s in ended if wall_s is not None]
    if not walls:
        half = "" if study.expected_run_s else ": half of time_limit_s, no expected_run_s is named"
        return Times({}, assumed_s(study), f"{assumed_s(study)} s a run assumed{half}")
    by_ranks = {n: statistics.median(w for m, w in walls if m == n) for n, _ in walls}
    median = statistics.median(wall_s for _, wall_s in walls)
    runs = f"{len(walls)} run{'s' if len(walls) > 1 else ''}"
    return Times(by_ranks, median, f"run time {median:.0f} s measured in {runs}")
