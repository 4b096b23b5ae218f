"""Estimate of what a study will cost, before its submission: jobs, minutes and node-hours."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from bench.study.definition import Study
from bench.study.looks import MIN_LAUNCHES
from bench.study.status import RunStatus
from slurm.fit import START_S, Job, assumed_s, minutes
from slurm.session import Work


def lines(work: Work) -> list[str]:
    """Return lines to print before jobs are submitted: their number, minutes and node-hours."""
    site, jobs = work.site, work.jobs
    seconds, source = run_seconds(work.study, work.statuses)
    limit_min = {job.id: minutes(job, work.study, site, work.options.minutes) for job in jobs}
    price = [f"site {site.name!r}: {site.provenance}"]
    for nodes in sorted({job.nodes for job in jobs}):
        members = [job for job in jobs if job.nodes == nodes]
        runs = sum(len(job.runs) for job in members)
        price.append(
            f"{nodes:5d} node(s): {len(members):3d} jobs, {runs:4d} runs, at most "
            f"{max(limit_min[job.id] for job in members)} min each, "
            f"about {_shown(node_hours(members, seconds))} node-h"
        )
    likely, left = node_hours(jobs, seconds), len({job.launch for job in jobs})
    most = _shown(sum(job.nodes * limit_min[job.id] / 60 for job in jobs))
    total = f"{len(jobs)} jobs, about {_shown(likely)} node-h, at most {most} node-h ({source})"
    launches = f"{work.launches_planned.partition(' of')[0]} = {_shown(likely)} node-h"
    launches += f" for the {left} with runs to do" if left != work.launches else ""
    if work.launches < MIN_LAUNCHES or not work.study.pairs:
        launches += f"; fewer than {MIN_LAUNCHES} launches settle nothing"
    elif work.most > work.launches:
        most_h = likely + likely / left * (work.most - work.launches)
        launches += f"; at most {work.most} = {_shown(most_h)} node-h"
    return [*price, total, launches]


def node_hours(jobs: Iterable[Job], seconds: Mapping[int, float]) -> float:
    """Estimate the node-hours of `jobs` from `seconds` per run, as `run_seconds` returns them."""
    each = (
        job.nodes * (START_S + sum(seconds.get(r.config.world_size, seconds[0]) for r in job.runs))
        for job in jobs
    )
    return sum(each) / 3600


def run_seconds(study: Study, statuses: Iterable[RunStatus]) -> tuple[dict[int, float], str]:
    """Return median seconds per run, keyed by ranks, and the source of these times in words.

    Key 0 has the median of all ok runs. If no run is ok, key 0 alone holds an assumed time.
    """
    ended = [(s.run.config.world_size, s.wall_s) for s in statuses if s.state == "ok"]
    walls = [(ranks, wall_s) for ranks, wall_s in ended if wall_s is not None]
    if not walls:
        half = "" if study.expected_run_s else ": half of time_limit_s, no expected_run_s is named"
        return {0: assumed_s(study)}, f"{assumed_s(study)} s a run assumed{half}"
    by_ranks = {n: statistics.median(w for m, w in walls if m == n) for n, _ in walls}
    median = statistics.median(wall_s for _, wall_s in walls)
    runs = f"{len(walls)} run{'s' if len(walls) > 1 else ''}"
    return {**by_ranks, 0: median}, f"run time {median:.0f} s measured in {runs}"


def _shown(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 10 else f"{hours:.1f}"
