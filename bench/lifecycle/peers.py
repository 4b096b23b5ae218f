"""Processes around a rank: its data loading processes, its parent, other ranks of this host."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

ENDED, STOPPED = "Z", "T"  # letters of proc(5)
_EXITING = 0x4  # the kernel's PF_EXITING
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def state(pid: int) -> str:
    """Return a local process's state: ENDED (also if gone), STOPPED or a letter of proc(5)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ENDED
    letter, *_, flags = text.rpartition(")")[2].split()[:7]  # a name may hold brackets too
    return ENDED if letter == "X" or int(flags) & _EXITING else letter.upper()


def vanished(log: Path | None, rank: int, as_lowest: bool) -> list[tuple[int, str]]:
    """List (rank, reason) of other ranks on this host that ended without an `error` event in `log`.

    The list is empty once the log has an `end`. With `as_lowest` it is also empty if any rank below
    `rank` still runs on this host, so that only the lowest reports.
    """
    host = socket.gethostname()
    ranks = next(iter(_events(log, "start")), {}).get("host", {}).get("ranks", [])
    local = [r for r in ranks if r["hostname"] == host and r["rank"] != rank]
    ended = [r for r in local if state(r["pid"]) == ENDED]
    lower = [r for r in local if r["rank"] < rank and r not in ended]
    if _events(log, "end") or (as_lowest and lower):
        return []
    recorded = {event.get("rank") for event in _events(log, "error")}
    unrecorded = {r["rank"]: r["pid"] for r in ended if r["rank"] not in recorded}
    how = f"on {host} is gone: killed, or ended by code that tells nobody"
    return [(rank, f"its process {pid} {how}") for rank, pid in unrecorded.items()]


def _events(log: Path | None, name: str) -> list[dict[str, Any]]:
    """Read the events of one name, parsing no other line; [] if `log` is None or unreadable."""
    start = b'{"event": "%s"' % name.encode()
    try:
        lines = [] if log is None else log.read_bytes().splitlines()
        return [json.loads(line) for line in lines if line.startswith(start)]
    except (OSError, ValueError):
        return []


def signal_others(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes of this host except this one; ignore those that have ended."""
    for pid in pids:
        if pid != os.getpid():
            with suppress(OSError):
                os.kill(pid, number)


def end_with(parent: int, *_: object) -> None:
    """Have the kernel kill this loading process when `parent` ends, or exit if `parent` is gone.

    torch's own watchdog misses a parent that ended early, and does not run in a stopped process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def loading_processes() -> list[Any]:
    """List the data loading processes (all multiprocessing children), also those that ended."""
    return list(getattr(sys.modules.get("multiprocessing.process"), "_children", ()))


def stop_loading() -> None:
    """Kill this rank's data loading processes; any thread may call this at any time."""
    for child in loading_processes():
        child.kill()
