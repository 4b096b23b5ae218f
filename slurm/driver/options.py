"""What a job script says of its study, its site and itself: the driver's command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from bench.options import Options, option


def _split(text: object) -> object:
    return tuple(shlex.split(text)) if isinstance(text, str) else text


_Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class JobOptions(Options):
    """Run the lines `run ID RANKS OPTIONS` of a job."""

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
