"""`site new`: a file to start from."""

from __future__ import annotations

import re
from pathlib import Path

from bench.config import UsageError
from bench.options import Shown, option
from bench.shell import Command
from bench.study.disk import write_whole
from slurm.next_step import python


class NewSite(Command):
    """Write NAME.toml, every key explained, filled in from sinfo and scontrol where they are."""

    name: str = option(..., "short name of the cluster", shown=Shown("NAME"))

    def run(self) -> None:
        from slurm.new_site import read_skeleton

        path = _new_file(self.name)
        text, (source, *notes) = read_skeleton(self.name)
        _write_new(path, text)
        print(f"{path} written: {source}", *(f"note: {note}" for note in notes), sep="\n")
        start = f"{python()} -m slurm submit smoke --site {path} --dry-run"
        print(f"correct it, then: {start}")


def _new_file(name: str) -> Path:
    """Name NAME.toml in this folder. Raises UsageError if the name will not do."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
        raise UsageError(f"{name!r} also names a file; use lower-case letters, digits, '-' and '_'")
    return Path(f"{name}.toml")


def _write_new(path: Path, text: str) -> None:
    """Write a file. Raises UsageError if it is there."""
    try:
        write_whole(path, text, replace=False)
    except FileExistsError:
        cure = "choose another name, or remove it"
        raise UsageError(f"{path} exists and is never overwritten; {cure}") from None
