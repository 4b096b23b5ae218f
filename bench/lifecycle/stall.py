"""What each rank was doing when a run stalled, exchanged through small files, and the cause."""

from __future__ import annotations

import hashlib
import os
import sysconfig
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.backends.catalogue import CATALOGUE
from bench.config import RunConfig
from bench.launch.world import Launch
from bench.lifecycle.pulse import Beat

_HERE = Path(__file__).parents[1]
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
# Code that waits for other ranks. DDP's forward pass runs the user's model below itself, so these
# two frames say nothing.
_EXCHANGES = tuple(folder for row in CATALOGUE.values() for folder in row.code_folders)
_AROUND_THE_MODEL = ("forward", "_run_ddp_forward")
_STALE_S = 60.0  # clocks of nodes may differ by as much


class Report(BaseModel):
    """What one rank says of a stall.

    `waits`: it waits for other ranks, so it is not the cause. `final`: it has reached its limit.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    rank: int
    doing: str
    waits: bool
    silent_s: float
    final: bool
    written_unix_s: float


class Board:
    """The folder in which ranks leave their reports; None where they share no folder."""

    def __init__(self, folder: Path | None, config: RunConfig, launch: Launch) -> None:
        run = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
        self._folder, self._name, self._rank = (
            folder,
            f"stall.{launch.source}.{launch.key}.{run}",
            launch.rank,
        )

    @property
    def shared(self) -> bool:
        return self._folder is not None

    def post(self, report: Report) -> None:
        """Write or replace this rank's report; in a folder that cannot be written, do nothing."""
        if self._folder is None:
            return
        path = self._path(report.rank)
        partial = path.with_suffix(".tmp")
        try:
            partial.write_text(report.model_dump_json())
            partial.rename(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def withdraw(self) -> None:
        """Remove this rank's report: it goes on after all."""
        if self._folder is not None:
            with suppress(OSError):
                self._path(self._rank).unlink()

    def reports(self, limit_s: float) -> dict[int, Report]:
        """Reports of all ranks by now; older ones, of another launch of this name, are skipped."""
        found = {}
        for path in self._folder.glob(f"{self._name}.*.json") if self._folder else ():
            try:
                report = Report.model_validate_json(path.read_text())
            except (OSError, ValidationError):
                continue
            if time.time() - report.written_unix_s < limit_s + _STALE_S:
                found[report.rank] = report
        return found

    def clear(self) -> None:
        """Remove every rank's report: the run is over."""
        for path in self._folder.glob(f"{self._name}.*") if self._folder else ():
            with suppress(OSError):
                path.unlink()

    def _path(self, rank: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._name}.{rank}.json"


def frames(innermost: FrameType | None) -> list[tuple[str, str, int]]:
    """File, qualified function name and line of each frame, innermost first."""
    found = []
    while innermost is not None:
        found.append(
            (innermost.f_code.co_filename, innermost.f_code.co_qualname, innermost.f_lineno)
        )
        innermost = innermost.f_back
    return found


def place(stack: Iterable[tuple[str, str, int]]) -> str:
    """Innermost frame outside libraries, as 'my_data.py:30 __getitem__'; '' if there is none."""
    for file, function, line in stack:
        if not file.startswith(("<", *_LIBRARIES)):
            inside = Path(file).is_relative_to(Path.cwd())
            return f"{os.path.relpath(file) if inside else file}:{line} {function}"
    return ""


def activity(
    beat: Beat, stack: list[tuple[str, str, int]], world_size: int, helpers: Iterable[str] = ()
) -> tuple[str, bool]:
    """What a rank is doing, in words, and whether it waits for other ranks.

    `helpers` are the states of its loading processes.
    """
    waits = world_size > 1 and _exchanging(stack)
    batches, steps = beat.batches, beat.steps
    if batches is None or steps is None:
        words = f"{beat.phase}, waiting for the other ranks" if waits else beat.phase
    elif any(
        file == str(_HERE / "train" / "input.py") and function == "Input.step"
        for file, function, _ in stack
    ):
        words = f"waiting for its batch of step {batches + 1}"
        words += "".join(f", {state}" for state in helpers)
    elif waits:
        words = (
            f"waiting in the exchange of step {steps + 1}"
            if batches > steps
            else f"waiting for the others after step {steps}"
        )
    else:
        words = f"in step {steps + 1}"
    where = place(stack)
    return f"{words} ({where})" if where else words, waits


def _exchanging(stack: list[tuple[str, str, int]]) -> bool:
    """True if the innermost code outside libraries is an exchange or the ranks' meeting.

    The user's own code called from there does not count.
    """
    for file, function, _ in stack:
        if (
            any(part in file for part in _EXCHANGES)
            and function.rpartition(".")[2] not in _AROUND_THE_MODEL
        ):
            return True
        if file.startswith((str(_HERE / "backends"), str(_HERE / "launch" / "rendezvous.py"))):
            return True
        if not file.startswith(("<", *_LIBRARIES)):
            return False
    return False


def explain(
    reports: Mapping[int, Report], world_size: int, silent: Mapping[int, str], shared: bool
) -> list[tuple[int, str]]:
    """The ranks that hold the run up, each with the cause.

    `silent` is what the kernel knows of ranks without a report.
    """
    longest = max(report.silent_s for report in reports.values())
    mute = [rank for rank in range(world_size) if rank not in reports] if shared else []
    hung = [rank for rank, report in reports.items() if not report.waits]
    others = _grouped({rank: report.doing for rank, report in reports.items() if report.waits})
    meanwhile = "; meanwhile " + "; ".join(others) if others else ""
    causes = [
        (rank, f"no sign of life for {longest:.0f} s ({_unheard(silent.get(rank))}){meanwhile}")
        for rank in mute
    ]
    causes += [
        (rank, f"no progress for {reports[rank].silent_s:.0f} s: {reports[rank].doing}{meanwhile}")
        for rank in sorted(hung)
    ]
    if causes:
        return causes
    what = "all ranks wait for each other, so what carries the exchange has stopped"
    if not shared:
        what = "what the other ranks do is not known, as no folder is shared with them"
    return [(min(reports), f"no progress for {longest:.0f} s, {what}: {'; '.join(others)}")]


def _unheard(known: str | None) -> str:
    return known or "stopped, ended, or its node is gone"


def _grouped(doing: Mapping[int, str]) -> list[str]:
    ranks_of: dict[str, list[int]] = {}
    for rank, words in sorted(doing.items()):
        ranks_of.setdefault(words, []).append(rank)
    return [f"rank {','.join(map(str, ranks))}: {words}" for words, ranks in ranks_of.items()]
