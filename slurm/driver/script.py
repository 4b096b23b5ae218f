"""What a job script tells the driver: options on its command line, runs on its standard input."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator

from bench.config import UsageError
from bench.options import Options, option

_COUNT = re.compile("[1-9][0-9]{0,8}")


def _split(text: object) -> object:
    return tuple(shlex.split(text)) if isinstance(text, str) else text


_Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class JobOptions(Options):
    """Do the runs of a job, which standard input lists in lines `run ID RANKS OPTIONS`."""

    study_dir: Path = option(..., "folder of the study's logs")
    study: str = option("", "text of the study, kept beside the logs")
    limit_s: int = option(0, "time limit of one run, seconds")
    python: str = option(..., "what starts `-m bench`")
    container: _Words = option((), "words that start a program in a container")
    launcher: Literal["mpirun", "srun", "ibrun"] = option("mpirun", "starts a run's ranks")
    launch_args: _Words = option((), "arguments of the launcher in every step")
    job: str = option("", "name of a Slurm job's files; left out: no scheduler")
    nodes: int = option(1, "that the job needs")
    ranks_per_node: int = option(1, "that fill a node")
    cpus_per_rank: int | None = option(None, "as Slurm counts CPUs")
    minutes: int = option(0, "that the job asks for")
    lead_s: int = option(0, "seconds kept free at the job's end")
    requeue: bool = option(False, "let Slurm start the job again for what is left")
    cells: _Words = option((), "tried before the first run")
    preflight: _Words = option((), "other options of the doctor")
    report: bool = option(False, "write the report, and run nothing")
    again: _Words = option((), "of `-m slurm`: submits the next launches, if any")


class RunLine(NamedTuple):
    """One line `run ID RANKS OPTIONS` of a job script."""

    id: str
    ranks: int
    options: list[str]


class GroupLines(NamedTuple):
    """Runs that take turns, or a single run; `apart` says why the single run takes no turns."""

    lines: list[RunLine]
    apart: str = ""


def read_groups(text: str) -> list[GroupLines]:
    """Read a script's groups of runs; skip comments and empty lines. Raises UsageError.

    A line `turns N` makes one group of the next N runs. Any other run is a group of its own. A line
    `apart N REASON` gives its reason to each of the next N runs.
    """
    groups: list[GroupLines] = []
    head, left, reason = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError(f"run line {number}: {error}; correct it: {line}") from None
        match words:
            case []:
                continue
            case ["turns", count] if _COUNT.fullmatch(count):
                head, left, reason = "turns", int(count), ""
                groups.append(GroupLines([]))
                continue
            case ["apart", count, *rest] if _COUNT.fullmatch(count):
                head, left, reason = "apart", int(count), " ".join(rest)
                continue
            case ["run", name, ranks, *options] if _COUNT.fullmatch(ranks):
                run = RunLine(name, int(ranks), options)
            case _:
                form = "`run ID RANKS OPTIONS`, `turns N` or `apart N REASON`"
                raise UsageError(f"run line {number} is not {form}: {line}")
        if left and head == "turns":
            groups[-1].lines.append(run)
        else:
            groups.append(GroupLines([run], reason if left else ""))
        left = max(0, left - 1)
    return [group for group in groups if group.lines]
