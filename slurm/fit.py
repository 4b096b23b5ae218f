"""Fitting of a study to a site: its ranks, its division into jobs, and the minutes of a job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.backends.catalogue import is_bare, parts
from bench.config import ON_DISK, UsageError
from bench.study.definition import Study
from bench.study.files import check_plan
from bench.study.plan import PlannedRun
from slurm.site import Site

PREFLIGHT_S = 300  # limit of the look at the launch: torch on all nodes, every transport once
EARLY_S = 60  # Slurm may warn a job so much earlier than it was asked to
START_S = 60  # what a job usually takes before its first run
REPORT = "report"  # id of the job that writes the report; those that measure are as n004-launch00


@dataclass(frozen=True)
class Job:
    """One Slurm job: the runs of one launch at one node count, in their planned order."""

    id: str  # names the job's files; with the study's name in front, the job in the queue
    nodes: int
    launch: int
    runs: tuple[PlannedRun, ...]


def job_of(run: PlannedRun, site: Site) -> str:
    """Return the id of a run's job, such as n004-launch00. Raises UsageError as `nodes_of`."""
    launch, nodes = _place(run, site)
    return f"n{nodes:03d}-launch{launch:02d}"


def job_name(study: Study, job_id: str) -> str:
    """Name a job in the queue: the study's name, then the job's id."""
    return f"{study.name}-{job_id}"


def fit(study: Study, site: Site, nodes: Sequence[int], source: Path) -> Study:
    """Return `study` fitted to `site`: transports, device, threads, data folder, ranks for `nodes`.

    Without `nodes`, a study that needs no site is unchanged. Raises UsageError if `study` does not
    fit. `source` is the study's file, for messages.
    """
    if not nodes and not study.needs_site:
        return study
    bare = [cell for cell in study.cells if is_bare(cell)]
    if bare and site.transport == "none":
        rule = f"leaves the transport of {bare[0]!r} to the site, and site {site.name!r} names none"
        cure = f"write transport in the site file, or a cell such as '{bare[0]}/gloo' in the study"
        raise UsageError(f"study {study.name!r} {rule}; {cure}")
    named = {cell: f"{cell}/{site.transport}" if cell in bare else cell for cell in study.cells}
    cells = tuple(named.values())
    arms = {
        name: arm.model_copy(update={"cells": tuple(named[cell] for cell in arm.cells)})
        for name, arm in study.arms.items()
    }
    changes: dict[str, Any] = {"cells": cells, "arms": arms, "site": site.title}
    # 1, 2, 4, ... up to the study's and the site's limit
    powers = min(study.up_to_nodes or 0, site.limits.max_nodes).bit_length()
    if counts := tuple(nodes) or study.nodes or tuple(2**k for k in range(powers)):
        _check_nodes(counts, site)
        full = tuple(dict.fromkeys(count * site.ranks_per_node for count in sorted(counts)))
        changes |= {"nodes": (), "up_to_nodes": None}
        if study.weak or study.strong:
            # one rank as well: each framework's own one-rank run stands beside the common baseline
            changes["world_sizes"] = tuple(dict.fromkeys((1, *full)))
        if study.batch:
            changes["batch"] = study.batch.model_copy(update={"world_sizes": full})
    filled: dict[str, Any] = {}  # what the site says of every run where the study does not
    if any(parts(cell).transport == "nccl" for cell in cells):
        filled["device"] = "cuda"
    if study.run.get("dataset") in ON_DISK:
        filled["data_dir"] = site.paths.data
    if site.cpu.threads:
        filled["threads"] = site.cpu.threads
    changes["run"] = {**filled, **study.run}
    fitted = study.model_copy(update=changes)
    check_plan(fitted, source)
    return fitted


def _check_nodes(counts: Iterable[int], site: Site) -> None:
    most = site.limits.max_nodes
    for count in counts:
        if not 1 <= count <= most:
            rule = f"site {site.name!r} allows 1 to {most} (limits.max_nodes)"
            raise UsageError(f"{count} nodes: {rule}; choose fewer, or correct the site file")


def text_of(fitted: Study, study: Study, source: str) -> str:
    """Return the text of study.toml: `source` if `fitted` equals `study`, else `fitted` as TOML."""
    import tomlkit  # here: it takes a tenth of a second to load

    if fitted == study:
        return source
    # what the author left to its default is left out; the seed is for the first run to draw
    unnamed = {"reference", "candidate", "seed"} - fitted.model_fields_set
    values = fitted.model_dump(mode="json", exclude_none=True, exclude=unnamed)
    head = f"# Study {study.name!r} as it was fitted to its site: counts, transports and devices "
    filled = {key: value for key, value in values.items() if value not in ([], {})}
    return f"{head}filled in.\n{tomlkit.dumps(filled)}"


def jobs(runs: Iterable[PlannedRun], site: Site) -> list[Job]:
    """Group runs into jobs, sorted by launch, then by nodes. Raises UsageError as `nodes_of`."""
    grouped: dict[tuple[int, int], list[PlannedRun]] = {}
    for run in runs:
        grouped.setdefault(_place(run, site), []).append(run)
    return [
        Job(job_of(members[0], site), nodes, launch, tuple(members))
        for (launch, nodes), members in sorted(grouped.items())
    ]


def _place(run: PlannedRun, site: Site) -> tuple[int, int]:
    """Return a run's launch and number of nodes; runs that agree in both share a job."""
    assert run.config.launch is not None
    return run.config.launch, nodes_of(run.config.world_size, site)


def nodes_of(world_size: int, site: Site) -> int:
    """Return how many nodes of the site `world_size` ranks take.

    Raises UsageError if several nodes would not all be full, or if the site allows too few.
    """
    full, rest = divmod(world_size, site.ranks_per_node)
    if full and rest:
        rule = f"does not fill nodes of {site.ranks_per_node} ranks (site {site.name!r})"
        cure = f"use {world_size - rest} or {world_size - rest + site.ranks_per_node}"
        raise UsageError(f"world_size={world_size} {rule}; {cure}")
    nodes = math.ceil(world_size / site.ranks_per_node)
    _check_nodes([nodes], site)
    return nodes


def assumed_s(study: Study) -> int:
    """Return a run's seconds: the study's expected_run_s, else half of its time_limit_s."""
    return study.expected_run_s or math.ceil(study.time_limit_s / 2)


def minutes(job: Job, study: Study, site: Site, wanted: int | None) -> int:
    """Return a job's minutes: `wanted`, else an estimate with room for one hung run.

    The site's max_minutes caps the estimate. Raises UsageError if the minutes do not suffice for
    one run, or if `wanted` is more than the site allows.
    """
    most, tail_s = site.limits.max_minutes, study.time_limit_s + site.policy.signal_lead_s
    least = math.ceil((START_S + tail_s + EARLY_S) / 60)
    if least > (wanted or most or least):
        rule = f"too few for one run of at most {study.time_limit_s} s and its surroundings"
        cure = f"use --minutes {least} or more, or --time-limit-s with less"
        raise UsageError(f"{wanted or most} minutes are {rule}; {cure}")
    if most and wanted and wanted > most:
        rule = f"site {site.name!r} allows {most} (limits.max_minutes); use at most {most}"
        raise UsageError(f"--minutes {wanted}: {rule}")
    expected_s = START_S + len(job.runs) * assumed_s(study)
    needed = math.ceil((PREFLIGHT_S + 1.5 * expected_s + tail_s) / 300) * 5
    return wanted or min(needed, most or needed)
