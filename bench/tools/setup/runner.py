"""Run one step of the set-up: output to a log file, a sign of life on the screen, and a failure
that says what to do.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SHOWN_LOG_LINES = 15
POLL_SECONDS = 0.5
HINT_LOG_LINES = 60
NOTE_LOG_BYTES = 20_000
PLAIN_LINE_EVERY_SECONDS = 30.0

# What the log of a failed step says -> (why, what to do). The first match wins.
HINTS = (
    (
        r"No space left on device",
        "the disk is full",
        "free some space (df -h shows where; TMPDIR=/path builds elsewhere), then run it again",
    ),
    (
        r"Killed signal|cc1plus.*[Kk]illed|MemoryError",
        "memory ran out",
        "close other programs, then run it again",
    ),
    (
        r"name resolution|Connection "
        r"refused|NewConnectionError|ConnectTimeout|ReadTimeout|Network is unreachable",
        "the package index could not be reached",
        "check the network and `pip config list` (index, proxy), then run it again: it goes on "
        "from here",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        "the index's certificate is not trusted",
        "set pip's `cert` (see `pip config`)",
    ),
    (
        # the latter where it is also in the constraints
        r"(?:No matching distribution found for|Cannot install) (\S+)",
        "no index pip knows has {0} for this Python and machine",
        "check `pip config list`, or use another Python: make setup PYTHON=python3.11",
    ),
    (
        r"cannot open shared object file",
        "a library was not found at run time",
        "if MPI_HOME is set, load that MPI's module (or set LD_LIBRARY_PATH) and run it again",
    ),
    (
        r"Could NOT find (CUDA\w*|NCCL)",
        "HOROVOD_GPU_OPERATIONS asks for GPU code and {0} is not complete here",
        "load the CUDA that torch was built for, or unset it to build for CPUs",
    ),
    (
        r"Could NOT find MPI",
        "CMake found no MPI that compiles",
        "check that mpicxx of MPI_HOME compiles a program",
    ),
    (
        r"Permission denied: '([^']+)'",
        "{0} is not writable",
        "use a folder of your own: make setup VENV=/path",
    ),
)


class SetupError(Exception):
    """A step failed: which, why, what to do, and the lines of its output that tell."""

    def __init__(
        self, step: str, why: str, cure: str, log_lines: Sequence[str] = (), log: Path | None = None
    ) -> None:
        super().__init__(f"{step}: {why}; {cure}")
        self.step, self.why, self.cure, self.log_lines, self.log = step, why, cure, log_lines, log

    def text(self) -> str:
        lines = [
            f"set-up stopped at: {self.step}",
            f"  why:        {self.why}",
            f"  what to do: {self.cure}",
        ]
        if self.log_lines:
            lines += ["  from its output:", *(f"    {line}" for line in self.log_lines)]
        if self.log:
            lines.append(f"  all of it:  {self.log}")
        return "\n".join(lines)


FIRST_ERROR = re.compile(r"CMake Error|\b(fatal )?error: |\b\w*(Error|ERROR): |undefined reference")
LEAD_LINES = 3


def telling_lines(output: str) -> list[str]:
    """The lines to show: from just before the first error, which causes the later ones; else the
    last.
    """
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if FIRST_ERROR.search(line)), None)
    if first is None:
        return lines[-SHOWN_LOG_LINES:]
    start = max(0, first - LEAD_LINES)
    return lines[start : start + SHOWN_LOG_LINES]


def explain(log_text: str) -> tuple[str, str] | None:
    """Why a step failed and what to do, read from its output; None if it is none of the usual
    troubles.
    """
    for pattern, why, cure in HINTS:
        if match := re.search(pattern, log_text):
            return why.format(*match.groups()), cure
    return None


def percent(log_text: str) -> int | None:
    """How far `make` is, from the last `[ 42%]` that CMake's makefiles print."""
    found = re.findall(r"\[ *(\d{1,3})%\]", log_text)
    return int(found[-1]) if found else None


@dataclass
class Screen:
    """One line per step: rewritten while it runs on a terminal, printed now and then elsewhere."""

    terminal: bool = field(default_factory=sys.stdout.isatty)
    title: str = ""
    started: float = 0.0
    last_line: float = 0.0

    def begin(self, title: str) -> None:
        self.title, self.started = title, time.monotonic()
        self.last_line = self.started

    def alive(self, note: str = "") -> None:
        now = time.monotonic()
        text = f"  {self.title} ... {now - self.started:.0f} s{note}"
        if self.terminal:
            print(f"\r{text}\033[K", end="", flush=True)
        elif now - self.last_line >= PLAIN_LINE_EVERY_SECONDS:
            self.last_line = now
            print(text, flush=True)

    def say(self, text: str) -> None:
        self.clear()
        print(f"  {self.title}: {text}", flush=True)

    def end(self, result: str) -> None:
        self.clear()
        print(f"  {self.title}: {result} ({time.monotonic() - self.started:.1f} s)", flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\033[K", end="", flush=True)


@dataclass
class Runner:
    """Runs commands with one environment and one log."""

    env: Mapping[str, str]
    log: Path
    screen: Screen

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """One step; the block says in a word how it ended by calling what it is given."""
        self.screen.begin(title)
        results: list[str] = []
        yield results.append
        self.screen.end(results[-1] if results else "done")

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cure: str,
        estimate_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> str:
        """Output of the command, which also goes to the log. Raises SetupError where it fails or
        takes too long.
        """
        with self.log.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n")
            log.flush()
            start = self.log.stat().st_size
            process = subprocess.Popen(
                command,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its compilers can be stopped with it
            )
            timed_out = not self._wait(process, start, estimate_seconds, timeout_seconds)
        output = self._output(start)
        if timed_out or process.returncode != 0:
            raise self._failure(
                output, process.returncode, cure, timeout_seconds if timed_out else None
            )
        return output

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        start: int,
        estimate_seconds: float | None,
        timeout_seconds: float | None,
    ) -> bool:
        """True once the process has ended by itself, False if its time was up; it never outlives
        this call.
        """
        deadline = time.monotonic() + (timeout_seconds or float("inf"))
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    return False
                self.screen.alive(self._note(start, estimate_seconds))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
            return True
        finally:
            stop(process)

    def _note(self, start: int, estimate_seconds: float | None) -> str:
        """How far the build is."""
        if estimate_seconds is None:
            return ""
        done = percent(self._output(max(start, self.log.stat().st_size - NOTE_LOG_BYTES)))
        note = f" (about {estimate_seconds:.0f} s on an idle machine)"
        return note + (f", {done} % compiled" if done is not None else "")

    def _output(self, start: int) -> str:
        with self.log.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", errors="replace")

    def _failure(
        self, output: str, returncode: int, cure: str, timeout_seconds: float | None
    ) -> SetupError:
        self.screen.clear()
        why = f"the command ended with exit status {returncode}"
        if returncode < 0:
            why = (
                f"the command was killed by {signal.Signals(-returncode).name} (memory ran out, "
                f"or somebody stopped it)"
            )
        if timeout_seconds is not None:
            why = f"the command did not end within {timeout_seconds:.0f} s"
        elif hint := explain(
            "\n".join([*telling_lines(output), *output.splitlines()[-HINT_LOG_LINES:]])
        ):
            why, cure = hint
        return SetupError(self.screen.title, why, cure, telling_lines(output), self.log)


def stop(process: subprocess.Popen[bytes], grace_seconds: float = 3.0) -> None:
    """End a process and all it started, politely first; nothing to do if it has ended."""
    if process.poll() is not None:
        return
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGKILL,
    ):  # at the first, pip still tidies up
        try:
            os.killpg(process.pid, number)
            process.wait(grace_seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
