"""What a study costs before it is submitted: jobs, node-hours, and the half-width to expect of its intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.record import read_run
from slurm.fit import Job, expected_s, minutes
from slurm.fit import jobs as made_of
from slurm.plan import Run
from slurm.request import Request
from slurm.site import Site
from slurm.status import RunStatus
from slurm.study import Study
from slurm.work import Work

ASSUMED_NOISE = 0.01  # sd of the log ratio of two runs that share nodes; a shared machine has several times as much


@dataclass(frozen=True)
class Noise:
    """The paired sd between blocks, as a share, and where it is from."""

    sd: float
    source: str


def lines(work: Work, assumed: float | None) -> list[str]:
    """All that is to be known before submitting: the site's provenance, jobs, node-hours, and what they buy."""
    jobs = work.jobs
    bought = precision(work.blocks, node_hours(jobs, work.study), noise(work.statuses, assumed), work.study.margin)
    left = len({job.block for job in jobs})
    rest = "" if left == work.blocks else f"; the node-h are those of the {left} blocks with runs to do"
    site = work.request.site
    said = [f"site {site.name!r}: {site.provenance}", *table(jobs, work.study, work.request)]
    return [*said, *_dearer(jobs, work.study, site), bought + rest]


def _dearer(jobs: Sequence[Job], study: Study, site: Site) -> list[str]:
    """What the layout 'single' costs beside the other one: nodes idle, and are paid for, while fewer are measured."""
    if site.policy.layout == "blocks":
        return []
    apart = made_of([run for job in jobs for run in job.runs], site.laid_out("blocks"))
    hours = [_hours(node_hours(each, study)) for each in (jobs, apart)]
    return [f"layout 'single': about {hours[0]} node-h in {len(jobs)} jobs, against {hours[1]} in {len(apart)} with 'blocks'"]


def table(jobs: Sequence[Job], study: Study, request: Request) -> list[str]:
    """One line for each node count, and the sum."""
    rows = []
    for nodes in sorted({job.nodes for job in jobs}):
        members = [job for job in jobs if job.nodes == nodes]
        asked = max(minutes(job, study, request.site, request.minutes) for job in members)
        rows.append(
            f"{nodes:5d} node(s): {len(members):3d} jobs, {sum(len(job.runs) for job in members):4d} runs, "
            f"at most {asked} min each, about {_hours(node_hours(members, study))} node-h"
        )
    likely = node_hours(jobs, study)
    most = sum(job.nodes * minutes(job, study, request.site, request.minutes) / 60 for job in jobs)
    basis = "" if study.expected_run_s else "; the study names no expected_run_s: taken as half of time_limit_s"
    return [*rows, f"{len(jobs)} jobs, about {_hours(likely)} node-h, at most {_hours(most)} node-h{basis}"]


def node_hours(jobs: Iterable[Job], study: Study) -> float:
    """Node-hours that jobs are expected to take."""
    return sum(job.nodes * expected_s(job, study) / 3600 for job in jobs)


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def precision(blocks: int, node_h: float, noise: Noise, margin: float) -> str:
    """'8 blocks = 31 node-h, about ±0.9 %', and how many blocks the margin needs."""
    from plots.stats import MIN_BLOCKS, blocks_for_half_width, half_width  # imported here: it loads scipy

    half = half_width(noise.sd, blocks)
    expect = "no interval from one block" if half is None else f"about ±{100 * half:.1f} %"
    line = f"{blocks} blocks = {_hours(node_h)} node-h, {expect} on a ratio of DDP and Horovod ({noise.source})"
    if blocks < MIN_BLOCKS:
        return line + f"; fewer than {MIN_BLOCKS} blocks give no verdict"
    if half is not None and half > margin:
        needed = blocks_for_half_width(noise.sd, margin)
        line += f"; the margin of {100 * margin:g} % needs {needed or 'more than 10,000'} blocks"
    return line


def noise(statuses: Iterable[RunStatus], assumed: float | None) -> Noise:
    """From this study's own finished pairs if there are any, else what the user or this module assumes."""
    if assumed is not None:
        return Noise(assumed, f"a paired sd of {100 * assumed:g} % assumed")
    done = [status.run for status in statuses if status.state == "ok"]
    measured = paired_sd([(run, read_run(run.log).images_per_s) for run in done])
    if measured is None:
        return Noise(
            ASSUMED_NOISE, f"a paired sd of {100 * ASSUMED_NOISE:g} % assumed; --noise says otherwise, a pilot measures it"
        )
    sd, blocks = measured
    return Noise(sd, f"a paired sd of {100 * sd:.2g} % measured, at most {blocks} blocks so far")


def paired_sd(rates: Iterable[tuple[Run, float]]) -> tuple[float, int] | None:
    """Pooled sd over blocks of ln(Horovod / DDP), and the most blocks a comparison has; None where none has two."""
    cells: dict[tuple[object, ...], dict[tuple[str, int | None], float]] = {}
    for run, rate in rates:
        point, backend = run.point, run.config.backend
        key = (run.config.transport, point.settings, point.world_size, point.batch_per_rank, point.variant)
        cells.setdefault(key, {})[backend, run.config.block] = math.log(rate)
    squares, freedom, most = 0.0, 0, 0
    for values in cells.values():
        pairs = [
            log - values["ddp", block] for (who, block), log in values.items() if who == "horovod" and ("ddp", block) in values
        ]
        if len(pairs) < 2:
            continue
        mean = sum(pairs) / len(pairs)
        squares += sum((d - mean) ** 2 for d in pairs)
        freedom, most = freedom + len(pairs) - 1, max(most, len(pairs))
    return (math.sqrt(squares / freedom), most) if freedom else None
