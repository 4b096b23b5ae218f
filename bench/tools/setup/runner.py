"""Runs the commands of the set-up: output to a log, signs of life, failures that name the cure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SHOWN_LINES = 15
PLAIN_LINE_EVERY_S = 30.0
FIRST_ERROR = re.compile(r"CMake Error|\b(fatal )?error: |\b\w*(Error|ERROR): |undefined reference")
_PIP = "`pip config list` shows index and proxy"
_NETWORK = r"name resolution|Connection refused|NewConnectionError|Timeout|Network is unreachable"
_RETRY = r"WARNING: Retrying \(Retry\(total=\d"
# What a failed command printed -> why, and what to do. The first match wins.
HINTS = {
    r"No space left on device": "the disk is full: make room (df -h; TMPDIR=/path builds there)",
    r"Killed signal|MemoryError": "memory ran out: close other programs",
    _NETWORK: f"the package index could not be reached: check the network; {_PIP}",
    r"(?:No matching distribution found for|Cannot install) (\S+)": "no index pip knows has {0} "
    f"for this Python and machine: try another (make setup PYTHON=python3.11); {_PIP}",
    r"cannot open shared object file": "a library was not found: if MPI_HOME is set, load that "
    "MPI's module or set LD_LIBRARY_PATH",
    r"Could NOT find (CUDA\w*|NCCL)": "HOROVOD_GPU_OPERATIONS asks for GPU code, but {0} is not "
    "complete: load the CUDA that torch was built for, or unset it to build for CPUs",
    r"Could NOT find MPI": "no MPI that compiles: check that mpicxx of MPI_HOME does",
}


class SetupError(Exception):
    """A step failed: which, why, and what to do."""

    def __init__(self, step: str, why_and_cure: str) -> None:
        super().__init__(f"set-up stopped at: {step}\n  {why_and_cure}")


def telling_lines(output: str) -> list[str]:
    """From just before the first error, which causes the later ones; else the last lines."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if FIRST_ERROR.search(line)), None)
    start = len(lines) - SHOWN_LINES if first is None else first - 3
    return lines[max(0, start) :][:SHOWN_LINES]


def explain(output: str) -> str | None:
    """Why a command failed and what to do; None if it is none of the usual troubles."""
    for pattern, hint in HINTS.items():
        if match := re.search(pattern, output):
            return hint.format(*match.groups())
    return None


@dataclass
class Runner:
    """The environment and the log of all commands, and the step that is at work."""

    env: dict[str, str]
    log: Path
    step: str = ""
    started: float = 0.0
    retries: int = 0  # of pip, in the command that runs

    def begin(self, step: str) -> None:
        self.step, self.started = step, time.monotonic()

    def say(self, text: str, *, stays: bool = True) -> None:
        """A line on the step; one that does not stay is written over, on a terminal."""
        clear = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{clear}  {self.step}: {text}", end="\n" if stays else "", flush=True)

    def end(self, result: str) -> None:
        self.say(f"{result} ({time.monotonic() - self.started:.1f} s)")

    def run(
        self,
        *command: str | Path,
        cure: str,
        limit_s: float = float("inf"),
        env: Mapping[str, str] | None = None,
    ) -> str:
        """The command's output, which also goes to the log. Raises SetupError where it fails."""
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            begins, deadline = log.tell(), time.monotonic() + limit_s
            self.retries = 0
            process = subprocess.Popen(
                command,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its compilers can be stopped with it
            )
            try:
                while process.poll() is None and time.monotonic() < deadline:
                    self._show_life(begins)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.5)
            finally:
                late = process.poll() is None
                stop(process)
        output, status = self._output(begins), process.returncode
        if not late and not status:
            return output
        ended = f"ended with exit status {status}: {cure}"
        if status < 0:
            ended = f"was killed by {signal.Signals(-status).name}"
        if late:
            ended = f"did not end within {limit_s:.0f} s: {cure}"
        why = explain(output) or f"the command {ended}"
        lines = [why, *telling_lines(output), f"all of it: {self.log}"]
        raise SetupError(self.step, "\n    ".join(lines))

    def _output(self, begins: int) -> str:
        return self.log.read_bytes()[begins:].decode(errors="replace")

    def _show_life(self, begins: int) -> None:
        """Seconds so far and how far CMake's makefiles are; now and then without a terminal."""
        seconds = time.monotonic() - self.started
        output = self._output(begins)[-20_000:]
        if (retries := len(re.findall(_RETRY, output))) > self.retries:
            self.retries = retries
            self.say(f"... {seconds:.0f} s, an index does not answer and pip asks again; {_PIP}")
        if sys.stdout.isatty() or seconds % PLAIN_LINE_EVERY_S > PLAIN_LINE_EVERY_S - 0.5:
            done = re.findall(r"\[ *(\d{1,3})%\]", output)
            percent = f", {done[-1]} % compiled" if done else ""
            self.say(f"... {seconds:.0f} s{percent}", stays=not sys.stdout.isatty())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, politely first; nothing to do if it has ended."""
    if process.poll() is None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)  # what it started may live longer than itself
                process.wait(3)
