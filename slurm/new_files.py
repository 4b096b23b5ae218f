"""`site new` and `study new`: files to start from."""

from __future__ import annotations

from bench.options import Shown, option
from bench.shell import Command
from slurm.next_step import python


class NewSite(Command):
    """Write NAME.toml, every key explained, filled in from sinfo and scontrol where they are."""

    name: str = option(..., "short name of the cluster", shown=Shown("NAME"))

    def run(self) -> None:
        from slurm.new_site import write_skeleton

        path, (source, *notes) = write_skeleton(self.name)
        print(f"{path} written: {source}", *(f"note: {note}" for note in notes), sep="\n")
        start = f"{python()} -m slurm submit smoke --site {path} --dry-run"
        print(f"correct it, then: {start}")


class NewStudy(Command):
    """Write NAME.toml, a study of this machine with every key explained."""

    name: str = option(..., "short name of the study", shown=Shown("NAME"))

    def run(self) -> None:
        from slurm.new_study import write_study

        path = write_study(self.name)
        print(f"{path} written: a small study of this machine")
        print(f"edit it, then: {python()} -m slurm run {path}")
