"""What each rank was doing when a run stalled, exchanged through small files, and the cause."""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from bench.backends.catalogue import CATALOGUE
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch
from bench.lifecycle.pulse import Beat
from bench.study.disk import write_whole

Frame = tuple[str, str, int]  # file, qualified function name, line
_HERE = Path(__file__).parents[1]
_SCHEMES = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = ("<", *{sysconfig.get_path(name) for name in _SCHEMES})
# Code that waits for other ranks. DDP's forward pass runs the user's model below itself, so these
# two frames say nothing.
_EXCHANGES = tuple(folder for row in CATALOGUE.values() for folder in row.code_folders)
_AROUND_THE_MODEL = ("forward", "_run_ddp_forward")
_MEETINGS = (str(_HERE / "backends"), str(_HERE / "launch" / "rendezvous.py"))


class Report(NamedTuple):
    """What one rank does while nothing happens."""

    rank: int
    doing: str
    waits: bool  # for other ranks, so it is not the cause


class Board:
    """The folder in which ranks leave their reports; without one that they share, none are left."""

    def __init__(self, folder: Path | None, config: RunConfig, launch: Launch) -> None:
        run = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
        self.shared = folder is not None
        self._folder, self._rank = folder or Path(), launch.rank
        self._name = f"stall.{launch.source}.{launch.key}.{run}"

    def post(self, report: Report) -> None:
        """Leave or replace this rank's report; in a folder that cannot be written, do nothing."""
        if self.shared:
            with suppress(UsageError):
                write_whole(self._folder / f"{self._name}.{self._rank}.json", json.dumps(report))

    def withdraw(self) -> None:
        """Remove this rank's report: it goes on after all."""
        self._remove(f"{self._rank}.json")

    def reports(self) -> dict[int, Report]:
        """Reports of all ranks by now."""
        reports = {}
        for path in self._files("*.json"):
            with suppress(OSError, ValueError, TypeError):  # withdrawn meanwhile, or no report
                report = Report(*json.loads(path.read_text()))
                reports[report.rank] = report
        return reports

    def clear(self) -> None:
        """Remove every rank's report: the run is over, or begins where one was killed."""
        self._remove("*")

    def _files(self, pattern: str) -> list[Path]:
        return list(self._folder.glob(f"{self._name}.{pattern}")) if self.shared else []

    def _remove(self, pattern: str) -> None:
        for path in self._files(pattern):
            with suppress(OSError):
                path.unlink()


def frames(innermost: FrameType | None) -> list[Frame]:
    """A thread's frames, innermost first."""
    walked = traceback.walk_stack(innermost) if innermost is not None else ()
    return [(f.f_code.co_filename, f.f_code.co_qualname, line) for f, line in walked]


def place(stack: Iterable[Frame]) -> str:
    """Innermost frame outside libraries, as 'my_data.py:30 __getitem__'; '' if there is none."""
    for file, function, line in stack:
        if not file.startswith(_LIBRARIES):
            inside = Path(file).is_relative_to(Path.cwd())
            return f"{os.path.relpath(file) if inside else file}:{line} {function}"
    return ""


def activity(
    beat: Beat, stack: list[Frame], world_size: int, helpers: Iterable[str] = ()
) -> tuple[str, bool]:
    """A rank's activity in words, and whether it waits for others; `helpers` load its data."""
    waits = world_size > 1 and _exchanging(stack)
    batches, steps = beat.batches, beat.steps
    if batches is None or steps is None:
        words = f"{beat.phase}, waiting for the other ranks" if waits else beat.phase
    elif (str(_HERE / "train" / "input.py"), "Input.step") in [frame[:2] for frame in stack]:
        words = ", ".join([f"waiting for its batch of step {batches + 1}", *helpers])
    elif waits and batches > steps:
        words = f"waiting in the exchange of step {steps + 1}"
    elif waits:
        words = f"waiting for the others after step {steps}"
    else:
        words = f"in step {steps + 1}"
    where = place(stack)
    return f"{words} ({where})" if where else words, waits


def _exchanging(stack: list[Frame]) -> bool:
    """True if the innermost code outside libraries is an exchange or a meeting, not the user's."""
    for file, function, _ in stack:
        around_the_model = function.rpartition(".")[2] in _AROUND_THE_MODEL
        if any(part in file for part in _EXCHANGES) and not around_the_model:
            return True
        if file.startswith(_MEETINGS):
            return True
        if not file.startswith(_LIBRARIES):  # asked second: an installed copy is among them
            return False
    return False


def explain(
    reports: Mapping[int, Report],
    silent_s: float,
    processes: int,
    states: Mapping[int, str],
    shared: bool,
) -> list[tuple[int, str]]:
    """The ranks that hold the run up, and why; `states` of processes are the kernel's, by rank."""
    ranks_of: dict[str, list[str]] = {}
    for rank, report in sorted(reports.items()):
        if report.waits:
            ranks_of.setdefault(report.doing, []).append(str(rank))
    waiting = "; ".join(f"rank {','.join(ranks)}: {doing}" for doing, ranks in ranks_of.items())
    meanwhile = f"; meanwhile {waiting}" if waiting else ""
    causes = []
    for rank in range(processes):
        if rank in reports and not reports[rank].waits:
            doing = reports[rank].doing
            causes.append((rank, f"no progress for {silent_s:.0f} s: {doing}{meanwhile}"))
        elif rank not in reports and shared:
            state = states.get(rank) or "stopped, ended, or its node is gone"
            causes.append((rank, f"no sign of life for {silent_s:.0f} s ({state}){meanwhile}"))
    if causes:
        return causes
    stop = "all ranks wait for each other, so what carries the exchange has stopped"
    if not shared:
        stop = "what the other ranks do is not known, as no folder is shared with them"
    return [(min(reports), f"no progress for {silent_s:.0f} s, {stop}: {waiting}")]
