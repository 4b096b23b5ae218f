"""Site: how a machine or cluster starts the ranks of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slurm.study import Table


class Site(Table):
    """One machine or cluster. Every cell of a study starts under the same line: a launcher of its own would be a difference."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]*$", description="the file's name without .toml")
    title: str = Field(min_length=1, description="what the machine is, in a few words")
    launch: Literal["mpirun"] = Field(description="the launcher of all cells")
    mpirun_args: tuple[str, ...] = Field((), description="arguments of mpirun before -n RANKS")
    env: dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default_factory=dict, description="environment variables exported for every run"
    )
