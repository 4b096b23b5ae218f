"""The check's study: made for the ranks and cells of a check, run here within a budget, read."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.config import UsageError, explain
from bench.record import Run, read_run
from bench.study.definition import Study
from bench.study.files import check_plan, read_study
from bench.study.folder import StudyFolder
from bench.study.plan import plan
from slurm import here, submit, tables
from slurm.check.reference import LEAST_LAUNCHES, CellSpeeds, Sitting
from slurm.directives import Request
from slurm.driver.allocation import end_s
from slurm.fit import EARLY_S, Job, fit
from slurm.load import find_study, read_site
from slurm.next_step import GO_ON
from slurm.render import render_batch
from slurm.session import short
from slurm.site import Site

CPU, GPU = "check", "check-gpu"  # the shipped studies
_ENDING_S = 20.0  # of the budget, for a launch to be stopped and recorded
_KILL_S = 40.0


class NotMeasured(Exception):
    """Why there is no number: not the user's mistake, and no slow machine either."""


@dataclass(frozen=True)
class Plan:
    """A check's study, fitted to its site, and where it is run."""

    study: Study
    text: str
    site: Site
    site_name: str  # as on a command line
    folder: StudyFolder


def site_of(name: str, ranks: int) -> Site:
    """The site named; else this Slurm allocation, as its variables tell; else this machine.

    Raises UsageError for a site with Slurm outside of an allocation, and as one of several tasks.
    """
    for variable in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        if (tasks := _number(variable)) > 1:
            rule = "a check starts its ranks itself; start it once, without srun or mpirun"
            raise UsageError(f"{variable}={tasks}: {rule}")
    if name:
        site = read_site(name)
        if site.scheduler == "slurm" and not _number("SLURM_JOB_NUM_NODES"):
            cure = "run it inside a job, as from a batch script or salloc"
            raise UsageError(f"site {name!r} starts ranks inside a Slurm allocation; {cure}")
        return site
    if not os.environ.get("SLURM_JOB_ID"):
        return read_site("local")
    counts = ("SLURM_JOB_NUM_NODES", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE")
    nodes, cores, gpus = map(_number, counts)
    nodes, cores = max(1, nodes), max(1, cores)
    per_node = -(-ranks // nodes)
    most = gpus or cores
    if per_node > most:
        of = "GPUs" if gpus else "CPUs"
        cure = f"choose at most {nodes * most} --ranks, or a larger job"
        raise UsageError(f"--ranks {ranks} on {nodes} node(s) of {most} {of} each; {cure}")
    return Site(
        name="allocation",
        title="this allocation",
        scheduler="slurm",
        launch="srun",
        transport="nccl" if gpus else "mpi",
        node=tables.NodeHardware(cores=cores, gpus=gpus, vendor="cuda" if gpus else "none"),
        cpu=tables.CpuLayout(ranks_per_node=per_node, per_rank=max(1, cores // per_node)),
        limits=tables.Limits(max_nodes=nodes),
    )


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def make_plan(
    site: Site,
    results: Path,
    budget_s: int,
    *,
    site_name: str,
    study: str,
    ranks: int,
    cells: Sequence[str],
    blocks: int,
    inject_ms: float,
) -> Plan:
    """The study of a check. Raises UsageError where it cannot be."""
    import tomlkit  # here: it takes a tenth of a second to load

    nccl = site.transport == "nccl" if not cells else any("/nccl" in cell for cell in cells)
    source = find_study(study or (GPU if nccl else CPU))
    written = read_study(source)
    cells = tuple(cells) or written.cells
    changes = _changes(written, ranks, cells, blocks, inject_ms, budget_s)
    try:
        wanted = Study(**_set(written) | changes)
    except ValidationError as error:
        raise UsageError(f"{source} as a check of {', '.join(cells)}: {explain(error)}") from None
    fitted = fit(wanted, site, (), source)
    check_plan(fitted, source)
    if len(plan(fitted, 1, Path("runs"))[0]) != len(cells):
        raise UsageError(f"{source} has several curves or variants; a check takes one of each")
    text = tomlkit.dumps(_set(fitted))
    return Plan(fitted, text, site, site_name, StudyFolder(short(results), fitted))


def _changes(
    written: Study,
    ranks: int,
    cells: Sequence[str],
    blocks: int,
    inject_ms: float,
    budget_s: int,
) -> dict[str, Any]:
    """What a check changes of its study."""
    changes: dict[str, Any] = {
        "name": f"check-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}",
        "cells": cells,
        "world_sizes": (ranks,),
        "blocks": blocks,
        "max_blocks": max(blocks, written.max_blocks),
        # a launch, whose limit is that of all its runs together, may take half of the budget
        "time_limit_s": max(10, budget_s // (2 * len(cells))),
        "run": {**written.run, **({"inject_ms": inject_ms} if inject_ms else {})},
    }
    if len(cells) == 2:  # whatever they are, they take turns
        changes |= {"reference": cells[0], "candidate": cells[1]}
    return changes


def _set(study: Study) -> dict[str, Any]:
    """The keys of a study that are not at their defaults, without those of a check's own."""
    left_out = {"seed", "nodes", "up_to_nodes", "primary"}
    return study.model_dump(mode="json", exclude=left_out, exclude_defaults=True, exclude_none=True)


def measure(planned: Plan, budget_s: int) -> tuple[Sitting, str]:
    """Run the study as far as the budget goes; what it measured, and what went wrong, if anything.

    Raises NotMeasured where too few launches are complete, UsageError as the study's runs do.
    """
    deadline = time.monotonic() + budget_s - _ENDING_S
    path = planned.folder.path
    path.parent.mkdir(parents=True, exist_ok=True)
    in_slurm = planned.site.scheduler == "slurm"
    words, env = (_in_allocation if in_slurm else _on_machine)(planned, budget_s)
    code, late = _run(words, env, deadline)
    runs = [read_run(log) for log in sorted((path / "runs").glob("*.jsonl"))]
    wrong = sorted((run for run in runs if run.problem), key=lambda run: "partner" in run.exit)
    bad = [f"{run.path.stem}: {run.verdict.state}, {run.problem}" for run in wrong]
    problem = f"the budget of {budget_s} s was used up" if late else next(iter(bad), "")
    if code not in (0, 1) and not late and not bad:
        problem = f"{' '.join(words[:5])} ended with exit code {code}, see above"
    complete = _complete([run for run in runs if not run.problem], planned.study)
    needed = min(LEAST_LAUNCHES, planned.study.blocks)
    if len(complete) < needed:
        counts = f"{len(complete)} complete launches, {needed} are needed"
        raise NotMeasured(f"{counts}; {problem}" if problem else f"{counts} in {budget_s} s")
    return _sitting(complete), problem


def _on_machine(planned: Plan, budget_s: int) -> tuple[list[str], dict[str, str]]:
    """`slurm run`, which starts no launch that would not end within its budget."""
    if why := here.not_checkout():
        raise UsageError(why)
    here.find_launcher(planned.site.hostfile)
    path = planned.folder.path
    source = path.with_name(f"{path.name}.toml")
    source.write_text(planned.text, encoding="utf-8")
    words = [sys.executable, "-m", "slurm", "run", str(source), "--site", planned.site_name]
    words += ["--results", str(path.parent), "--blocks", str(planned.study.blocks)]
    words += ["--budget", f"{max(1, int(budget_s - _ENDING_S))}s"]
    return words, {GO_ON: "the check again"}


def _in_allocation(planned: Plan, budget_s: int) -> tuple[list[str], dict[str, str]]:
    """A job script as `slurm submit` makes it, started in this allocation: nothing is submitted."""
    # the job is somebody else's: it is not started again for what the check leaves
    policy = planned.site.policy.model_copy(update={"requeue": False})
    site, path = planned.site.model_copy(update={"policy": policy}), planned.folder.path
    nodes = _number("SLURM_JOB_NUM_NODES")
    if why := here.not_checkout() or (nodes > 1 and submit.not_shared(site, path)) or "":
        raise UsageError(why)
    blocks = plan(planned.study, planned.study.blocks, planned.folder.runs)
    job = Job("check", nodes, 0, tuple(chain.from_iterable(blocks)))
    request = Request(site, os.environ.get("SLURM_JOB_ACCOUNT", ""))
    script = render_batch(planned.study, planned.text, request, job, path)
    path.mkdir(parents=True)
    (path / "check.sh").write_text(script, encoding="utf-8")
    # the driver starts no launch that would not end before the job must, less what it keeps free
    needed_s = budget_s - _ENDING_S + site.policy.signal_lead_s + EARLY_S
    ends = int(min(time.time() + needed_s, end_s(math.ceil(needed_s / 60))))
    env = {"SLURM_JOB_END_TIME": str(ends), "PREFLIGHT": "no", "PYTHON": sys.executable}
    return [shutil.which("bash") or "bash", str(path / "check.sh")], env


def _run(words: Sequence[str], env: Mapping[str, str], deadline: float) -> tuple[int, bool]:
    """Exit code, and whether it had to be ended; its output goes to standard error.

    A signal to us ends it too; then SystemExit with 128 + its number.
    """
    late = False
    with here.signals_caught() as caught:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard output is for the answer
            env={**os.environ, **env},
            start_new_session=True,
        )
        while child.poll() is None and not caught and not late:
            time.sleep(0.2)
            late = time.monotonic() > deadline
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if caught:
        sys.exit(128 + caught[0])
    return child.returncode, late


def _complete(runs: Sequence[Run], study: Study) -> list[dict[str, Run]]:
    """Blocks with a good run of every cell."""
    blocks: dict[int, dict[str, Run]] = {}
    for run in runs:
        if run.config is not None and run.config.block is not None:
            blocks.setdefault(run.config.block, {})[run.config.cell] = run
    return [by_cell for _, by_cell in sorted(blocks.items()) if by_cell.keys() == {*study.cells}]


def _sitting(complete: Sequence[Mapping[str, Run]]) -> Sitting:
    first = next(iter(complete[0].values()))
    ranks = first.host["ranks"]
    names = {str(rank[key]) for rank in ranks for key in ("cpu", "gpu") if key in rank}
    return Sitting(
        started=str(first.host.get("started", "")),
        hosts=tuple(rank["hostname"] for rank in ranks),
        processors=tuple(sorted(names)),
        versions=dict(first.host.get("versions", {})),
        cells={
            cell: CellSpeeds(
                images_per_s=tuple(block[cell].images_per_s for block in complete),
                rank_images_per_s=tuple(_of_ranks(block[cell]) for block in complete),
            )
            for cell in complete[0]
        },
    )


def _of_ranks(run: Run) -> tuple[float, ...]:
    """Images/s of each rank by its own clock."""
    assert run.config is not None
    images = run.config.samples_per_rank
    return tuple(images * len(steps) / sum(steps) for steps in run.step_seconds())
