"""Processes that a job starts: each has a time limit, and hears once of a signal to the job."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

TIMED_OUT, KILLED = 124, 137  # exit codes, as those of `timeout`
_NEVER = float("inf")


class Ended(NamedTuple):
    """How a step ended, as a shell counts exit codes; `shot`: by a SIGKILL that is not ours."""

    code: int
    timed_out: bool
    wall_s: int
    shot: bool = False


class Step:
    """One process, in a session of its own: a Ctrl-C at the terminal comes through the job only."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limit_s: float,
        grace_s: float,
        before_end: Callable[[], object],
    ) -> None:
        self.process, self._grace_s, self._before_end = process, grace_s, before_end
        self.began = time.monotonic()
        self.deadline = self.began + limit_s
        self.told = self.timed_out = self._killed = False

    def end(self) -> None:
        """Ask the launcher to end its ranks, once: after a second signal it gives them no time."""
        if not self.told:
            self.told, self.deadline = True, time.monotonic() + self._grace_s
            self._before_end()
            self.process.terminate()

    def is_late(self) -> None:
        """Ask the step to end when its limit is reached, and kill it when its grace is over too."""
        if self.told:
            self._killed, self.deadline = True, _NEVER
            self.process.kill()
        else:
            self.timed_out = True
            self.end()

    def wait(self) -> Ended:
        code = self.process.wait()  # sleeps until then: the ranks need the cores
        self.deadline = _NEVER
        wall_s = int(time.monotonic() - self.began)
        _kill_session(self.process.pid)  # ranks that outlived their launcher slow the next run
        shot = code == -signal.SIGKILL and not self._killed
        if self._killed or self.timed_out:
            code = KILLED if self._killed else TIMED_OUT
        return Ended(128 - code if code < 0 else code, self.timed_out, wall_s, shot)


class Steps:
    """Starts steps, one or several at a time; `stopped` is the first signal that asked to stop.

    Children hold `keep_open` too: a lock is free only when the last of them is gone.
    """

    def __init__(self, grace_s: float, keep_open: Sequence[int] = ()) -> None:
        self.stopped: signal.Signals | None = None
        self._grace_s, self._keep_open = grace_s, keep_open
        self._running: list[Step] = []

    def listen(self, *signals: signal.Signals) -> None:
        for number in signals:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGALRM, self._look)

    def start(
        self,
        command: Sequence[str],
        out: Path,
        limit_s: float,
        env: dict[str, str] | None = None,
        before_end: Callable[[], object] = lambda: None,
    ) -> Step:
        """Start a command without input; what it prints goes to `out`.

        `before_end` is called before the command is told to end.
        """
        options: dict[str, Any] = {"start_new_session": True, "pass_fds": self._keep_open}
        options |= {"env": env, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, **options)
        step = Step(process, limit_s, self._grace_s, before_end)
        self._running.append(step)
        if self.stopped is not None:  # the signal came before there was a process
            step.end()
        self._set_alarm()
        return step

    def end(self, steps: Iterable[Step]) -> None:
        """Ask steps to end, and kill them where they take too long."""
        for step in steps:
            step.end()
        self._set_alarm()

    def wait(self, step: Step) -> Ended:
        ended = step.wait()
        self._running.remove(step)
        self._set_alarm()  # none that is left over may end us on our way out
        return ended

    def wait_together(
        self, steps: Sequence[Step], on_failure: Callable[[int], object]
    ) -> list[Ended]:
        """Wait for steps that need one another, and tell how each ended.

        One that fails ends the others, after a call of `on_failure` with its index.
        """
        ended: dict[int, Ended] = {}
        failed = False
        with _exits(steps) as next_exit:
            while len(ended) < len(steps):
                index = next_exit()
                ended[index] = self.wait(steps[index])
                if ended[index].code and not failed:
                    failed = True
                    on_failure(index)
                    self.end(step for i, step in enumerate(steps) if i not in ended)
        return [ended[index] for index in range(len(steps))]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped is None:
            self.stopped = signal.Signals(number)
            self.end(self._running)

    def _look(self, number: int, frame: FrameType | None) -> None:
        for step in self._running:
            if step.deadline <= time.monotonic():
                step.is_late()
        self._set_alarm()

    def _set_alarm(self) -> None:
        first = min((step.deadline for step in self._running), default=_NEVER)
        left_s = 0 if first == _NEVER else max(first - time.monotonic(), 0.01)
        signal.setitimer(signal.ITIMER_REAL, left_s)


@contextmanager
def _exits(steps: Sequence[Step]) -> Iterator[Callable[[], int]]:
    """Provide a call that sleeps until one of the steps ends, each once, and gives its index."""
    with selectors.DefaultSelector() as selector:
        for index, step in enumerate(steps):
            selector.register(os.pidfd_open(step.process.pid), selectors.EVENT_READ, index)

        def next_exit() -> int:
            while not (ready := selector.select()):
                pass  # a signal
            key = ready[0][0]
            selector.unregister(key.fileobj)
            os.close(key.fd)
            index: int = key.data
            return index

        yield next_exit


def _kill_session(session: int) -> None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
