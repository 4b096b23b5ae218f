"""What a job script says of its study, its site and itself: the driver's command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from bench.options import Options, Shown


def _split(text: object) -> object:
    return tuple(shlex.split(text)) if isinstance(text, str) else text


def _own_env(texts: object) -> object:
    """'BACKEND NAME=VALUE ...' of each as a mapping."""
    if not isinstance(texts, list):
        return texts
    return {words[0]: tuple(words[1:]) for words in map(shlex.split, texts)}


_Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class JobOptions(Options):
    """Run the lines `run ID RANKS OPTIONS` of a job."""

    study_dir: Path = Field(description="folder of the study's logs")
    study: str = Field("", description="text of the study, kept beside the logs")
    limit_s: int = Field(0, description="time limit of one run, seconds")
    python: str = Field(description="what starts `-m bench`")
    container: _Words = Field((), description="words that start a program in a container")
    launcher: Literal["mpirun", "srun", "ibrun"] = Field(
        "mpirun", description="starts a run's ranks"
    )
    launch_args: _Words = Field((), description="arguments of the launcher in every step")
    own_env: Annotated[
        dict[str, tuple[str, ...]], BeforeValidator(_own_env), Shown(action="append")
    ] = Field({}, description="BACKEND NAME=VALUE ...")
    job: str = Field("", description="name of a Slurm job's files; left out: no scheduler")
    nodes: int = Field(1, description="that the job needs")
    ranks_per_node: int = Field(1, description="that fill a node")
    cpus_per_rank: int | None = Field(None, description="as Slurm counts CPUs")
    minutes: int = Field(0, description="that the job asks for")
    lead_s: int = Field(0, description="seconds kept free at the job's end")
    requeue: bool = Field(False, description="let Slurm start the job again for what is left")
    no_kill: bool = Field(False, description="go on without a lost node, as far as that goes")
    cells: _Words = Field((), description="tried before the first run")
    preflight: _Words = Field((), description="other options of the doctor")
    calibration: _Words = Field((), description="options of one plain process")
    report: bool = Field(False, description="write the report, and run nothing")
    again: _Words = Field((), description="of `-m slurm`: submits the next launches, if any")
