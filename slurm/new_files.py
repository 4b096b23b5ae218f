"""`site new` and `study new`: files to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.called import command
from bench.shell import new_app
from slurm.next_step import python

site_app = new_app("Describe a cluster.")
study_app = new_app("Write a study of your own.")


@site_app.command("new")
def new_site(
    name: Annotated[str, typer.Argument(metavar="NAME", help="short name of the cluster")],
) -> None:
    """Write NAME.toml, every key explained, filled in from sinfo and scontrol where they are."""
    from slurm.new_site import write_skeleton

    path, source = write_skeleton(name)
    print(f"{path} written: {source}")
    print(f"correct it, then: {command('slurm', python())} submit smoke --site {path} --dry-run")


@study_app.command("new")
def new_study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="short name of the study")],
) -> None:
    """Write NAME.toml, a study of this machine with every key explained."""
    from slurm.new_study import write_study

    path = write_study(name)
    print(f"{path} written: a small study of this machine")
    print(f"edit it, then: {command('slurm', python())} run {path}")
