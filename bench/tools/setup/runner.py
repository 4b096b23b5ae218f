"""Runs the steps of the set-up: output to a log, signs of life, failures that name the cure."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SHOWN_LINES = 15
PLAIN_LINE_EVERY_S = 30.0
# pip's own line above a build's output, "error: subprocess-exited-with-error", is none
FIRST_ERROR = re.compile(
    r"CMake Error|\b(fatal )?error: (?!subprocess-)|\b\w*(Error|ERROR): |undefined reference"
)
_PIP = "`pip config list` shows index and proxy"
_NETWORK = r"name resolution|Connection refused|NewConnectionError|(Read|Connect)Timeout"
_NETWORK += "|Network is unreachable"
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
    "complete: load the CUDA that torch was built for, or empty it to build for CPUs",
    r"Could NOT find MPI|Cannot compile MPI programs": "no MPI that compiles: check that mpicc and "
    "mpicxx of MPI_HOME do, and install its development package",
    r"No module named '(\w+)'": "{0} is not installed: run `make clean setup`; with conda, "
    "`conda env create -f environment.yml`, activate it, and start this with its python",
}


class SetupError(Exception):
    """Why set-up cannot go on, and what to do; status 2 where nothing was begun."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def explain(output: str, otherwise: str) -> list[str]:
    """Explain why a command failed; add lines about its first error, which causes later ones."""
    matches = ((re.search(pattern, output), hint) for pattern, hint in HINTS.items())
    why = next((hint.format(*match.groups()) for match, hint in matches if match), otherwise)
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    errors = (n - 3 for n, line in enumerate(lines) if FIRST_ERROR.search(line))
    first = max(0, next(errors, len(lines) - SHOWN_LINES))
    return [why, *lines[first : first + SHOWN_LINES]]


@dataclass
class Runner:
    """The environment of all steps, on whose PATH commands are looked up, and their log."""

    env: dict[str, str]
    log: Path

    def run(
        self,
        step: str,
        *command: str | Path,
        estimate: str = "",
        cure: str = "The lines below say why.",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command; log and return its output. Raises SetupError where it fails."""
        start, every = time.monotonic(), 0.0 if sys.stdout.isatty() else PLAIN_LINE_EVERY_S
        due = every
        if estimate:
            print(f"  {step}: {estimate}", flush=True)
        process, begin = self._start(command, {**self.env, **(env or {})})
        try:
            while process.poll() is None:
                if (seconds := time.monotonic() - start) >= due:
                    show_life(f"  {step}: {seconds:.0f} s", self._output(begin))
                    due += every
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
        finally:
            stop(process)
            if sys.stdout.isatty():
                print("\r\033[K", end="", flush=True)
        if process.returncode:
            status = subprocess.CalledProcessError(process.returncode, command[0])
            lines = explain(self._output(begin), f"{status} {cure}")
            text = "\n    ".join([*lines, f"all of it: {self.log}"])
            raise SetupError(f"set-up stopped at {step}: {text}")
        print(f"  {step}: done in {time.monotonic() - start:.0f} s", flush=True)
        return self._output(begin)

    def _start(
        self, command: Sequence[str | Path], env: Mapping[str, str]
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start the command; return it, and where in the log its output begins."""
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            begin = log.tell()  # before the command, which moves it
            process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its compilers can be stopped with it
            )
            return process, begin

    def _output(self, begin: int) -> str:
        return self.log.read_bytes()[begin:].decode(errors="replace")


def show_life(text: str, output: str) -> None:
    """Print the text and the last line of progress, CMake's if there is one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or [""]
    last = ([line for line in lines if line.startswith("[")] or lines)[-1]
    line = f"{text}  {last}"[: shutil.get_terminal_size((100, 1)).columns - 1]
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end="", flush=True)
    else:
        print(line, flush=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, politely first; nothing to do if it has ended."""
    if process.poll() is None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)  # what it started may live longer than itself
                process.wait(3)
