"""Processes that a job starts, and ends at their time limit or when the job gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

TIMED_OUT, KILLED = 124, 137  # exit codes, as those of `timeout`
_POLL_S = 0.1  # a look takes some microseconds of the cores that the ranks need


class Ended(NamedTuple):
    """How a process ended: `code` is as in a shell; `shot`: SIGKILL came from outside the job."""

    code: int
    timed_out: bool
    wall_s: int
    shot: bool = False


class Step:
    """One process in a session of its own, which the Ctrl-C of a terminal does not reach."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limit_s: float,
        grace_s: float,
        before_end: Callable[[], object],
    ) -> None:
        self.process, self._grace_s, self._before_end = process, grace_s, before_end
        self._began = time.monotonic()
        self._deadline = self._began + limit_s
        self._told = self._timed_out = self._killed = False

    def end(self) -> None:
        """Send SIGTERM to the process, once; a second call does nothing.

        The callback `before_end` is called first, even if the process has ended by itself.
        """
        if not self._told:
            self._told, self._deadline = True, time.monotonic() + self._grace_s
            self._before_end()
            self.process.terminate()

    def look(self) -> Ended | None:
        """Return how the process ended, None while it runs; end it if it is over its time limit."""
        code = self.process.poll()
        if code is None:
            if time.monotonic() >= self._deadline and not self._told:
                self._timed_out = True
                self.end()
            elif time.monotonic() >= self._deadline and not self._killed:
                self._killed = True
                self.process.kill()
            return None
        wall_s = int(time.monotonic() - self._began)
        _kill_session(self.process.pid)  # ranks that outlived their launcher slow the next run
        shot = code == -signal.SIGKILL and not self._killed
        if self._killed or self._timed_out:
            code = KILLED if self._killed else TIMED_OUT
        return Ended(128 - code if code < 0 else code, self._timed_out, wall_s, shot)


class Steps:
    """Processes of a job, one or several at a time; `stopped` is the first signal to the job.

    Children inherit the files `keep_open`: a lock is free only when the last child has ended.
    """

    def __init__(self, grace_s: float, keep_open: Sequence[int] = ()) -> None:
        self.stopped: signal.Signals | None = None
        self._grace_s, self._keep_open = grace_s, keep_open
        self._running: list[Step] = []

    def listen(self, *signals: signal.Signals) -> None:
        for number in signals:
            signal.signal(number, self._stop)

    def start(
        self,
        command: Sequence[str],
        out: Path,
        limit_s: float,
        env: dict[str, str] | None = None,
        before_end: Callable[[], object] = lambda: None,
    ) -> Step:
        """Start a command with output `out`; call `before_end` before SIGTERM. Raises OSError."""
        with out.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=self._keep_open,
                start_new_session=True,
            )
        step = Step(process, limit_s, self._grace_s, before_end)
        self._running.append(step)
        if self.stopped is not None:  # the signal came before there was a process
            step.end()
        return step

    def wait(self, *steps: Step) -> list[Ended]:
        """Wait for all processes and return how each ended; if one fails, end the others."""
        ended: dict[Step, Ended] = {}
        while len(ended) < len(steps):
            time.sleep(_POLL_S)
            for step in steps:
                if step in ended or (outcome := step.look()) is None:
                    continue
                ended[step] = outcome
                self._running.remove(step)
                if outcome.code:
                    for one in (step, *steps):
                        one.end()
        return [ended[step] for step in steps]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped is None:
            self.stopped = signal.Signals(number)
            for step in self._running:
                step.end()


def _kill_session(session: int) -> None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
