"""How a study stands after a command, and what to type next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.study.status import count
from slurm.session import Work, short

# in the environment: the command that goes on with a study, where it is not this one
GO_ON = "STUDY_GO_ON"


def close(
    work: Work, again: Sequence[str], stopped_by: int | None = None, more: bool = False
) -> int:
    """Say how it ended and what goes on with it, with `more` launches too; 0 if all runs are ok."""
    print(f"{work.study.name}: {count(work.statuses)}")
    for status in work.statuses:
        if status.state not in ("ok", "planned"):
            print(f"  {status.run.id}: {status.state}  {status.reason}".rstrip())
    if work.todo or more:
        start = f"{python()} -m slurm {shlex.join(again)}"
        print(f"go on with: {os.environ.get(GO_ON) or start}")
    return 128 + stopped_by if stopped_by is not None else int(bool(work.todo))


def python() -> str:
    """Name this Python as started from here: by its name if that finds it, else by its path."""
    path = Path(sys.executable)
    on_path = shutil.which(path.name) == sys.executable
    return path.name if on_path else shlex.quote(str(short(path, follow=False)))


def say_report(work: Work) -> None:
    """Print the command that makes the report, unless what started this process makes it."""
    if not os.environ.get(GO_ON):
        path = shlex.quote(str(work.folder.path))
        print(f"then, for the answer: {python()} -m plots report {path}")
