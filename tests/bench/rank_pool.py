"""Ranks that are launched once for many tests: each case runs in a fresh fork of every rank.

A rank imports torch once and then waits. A case is a module with arguments, as `python -m` takes
them; the fork that runs it meets the others over MPI or Gloo by itself, so no case sees another's
state. A case that loads MPI, or brings the launch down, costs the next one a new launch.
"""

from __future__ import annotations

import atexit
import importlib
import json
import math
import os
import random
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

_MPI = "mpi"  # a file beside the outputs once a rank has loaded it
_ENDS_S = 20  # a launch that lost a rank has so long to end by itself
_NUMBER = 16  # bytes of a rank's message, which is a number
# seconds after a rank has failed at which the others are ended, as by mpirun but with more time
_ENDS = ((1.0, signal.SIGCONT), (1.0, signal.SIGTERM), (6.0, signal.SIGKILL))


class Case(NamedTuple):
    """What one rank is to run: `python -m WORDS...` in a folder."""

    words: Sequence[str]
    env: Mapping[str, str]
    place: str


class Pool:
    """One launch and the connections to its ranks."""

    def __init__(self, launch: Sequence[str], ranks: int, env: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        # another mpirun that ends may clear away what it finds of this one in a folder of both
        self._env = {**env, "TMPDIR": str(self._folder)}
        where = self._folder / "socket"
        with socket.socket(socket.AF_UNIX) as server, (self._folder / "launcher").open("w") as out:
            server.bind(str(where))
            server.listen()
            server.settimeout(120)
            command = [*launch, "-m", __name__, str(where)]
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            self._launcher = subprocess.Popen(
                command, env=self._env, start_new_session=True, **streams
            )
            came = [server.accept()[0] for _ in range(ranks)]
            self._ranks = sorted(came, key=lambda rank: int(rank.recv(_NUMBER)))

    @property
    def alive(self) -> bool:
        """Whether the launch can take another case."""
        return self._launcher.poll() is None

    def run(self, cases: Sequence[Case], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a case on each rank and return the first exit status that is not 0."""
        outputs = [self._folder / name for name in ("stdout", "stderr")]
        for output in outputs:
            output.write_text("")
        (self._folder / _MPI).unlink(missing_ok=True)
        shared = {"launch": self._env, "outputs": [*map(str, outputs)]}
        for rank, case in zip(self._ranks, cases, strict=True):
            rank.sendall(json.dumps({**case._asdict(), **shared}).encode() + b"\n")
            rank.settimeout(timeout_s)
        try:
            codes = self._codes(timeout_s)
        except (TimeoutError, ConnectionError) as error:
            told = "".join(output.read_text(errors="replace") for output in outputs)
            self.close()
            raise AssertionError(f"{cases} did not end within {timeout_s} s: {told}") from error
        stdout, stderr = (output.read_text(errors="replace") for output in outputs)
        code = next(filter(None, codes), 0)
        if (self._folder / _MPI).exists():
            self.close()  # a second start of MPI in one launch hung now and then
        return subprocess.CompletedProcess(cases[0].words, code, stdout, stderr)

    def _codes(self, timeout_s: float) -> list[int]:
        """Wait for the exit status of every rank, in the order in which they end; raises
        TimeoutError where not all of them end in time.
        """
        forks = {rank: int(rank.recv(_NUMBER) or 0) for rank in self._ranks}
        codes: list[int] = []
        limit, signals, failed_at = time.monotonic() + timeout_s, [*_ENDS], math.inf
        while forks:
            ready: list[Any] = wait([*forks], 0.2)
            for rank in ready:
                # a rank that has hung up leaves the launch's own exit status
                codes.append(int(rank.recv(_NUMBER) or self._launcher.wait(_ENDS_S) or 1))
                del forks[rank]
            if (now := time.monotonic()) >= limit:
                raise TimeoutError
            failed_at = min(failed_at, now) if any(codes) else failed_at
            while signals and now >= failed_at + signals[0][0]:
                _, number = signals.pop(0)
                for fork in filter(None, forks.values()):
                    with suppress(ProcessLookupError):
                        os.kill(fork, number)
        return codes

    def close(self) -> None:
        """Let the ranks end, by force where they do not."""
        for rank in self._ranks:
            rank.close()
        try:
            self._launcher.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._launcher.pid, 9)
            self._launcher.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


_POOLS: dict[int, Pool] = {}


def pool(launch: Sequence[str], ranks: int, env: Mapping[str, str]) -> Pool:
    """Provide the pool of that many ranks, and launch it now where there is none."""
    if ranks not in _POOLS or not _POOLS[ranks].alive:
        if ranks in _POOLS:
            _POOLS.pop(ranks).close()
        _POOLS[ranks] = Pool(launch, ranks, env)
        atexit.register(_POOLS[ranks].close)
    return _POOLS[ranks]


def _become(case: dict[str, Any]) -> None:
    """Take on a case's environment, streams and arguments, then run its module."""
    own = {k: v for k, v in os.environ.items() if case["launch"].get(k) != v}  # the launcher's
    os.environ.clear()
    os.environ.update(case["env"] | own)
    for stream, path in zip((1, 2), case["outputs"], strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    mark = Path(case["outputs"][0]).with_name(_MPI)

    def note(event: str, values: tuple[Any, ...]) -> None:
        if event == "import" and values[0] == "mpi4py.MPI":
            mark.touch()

    sys.addaudithook(note)
    random.seed()
    os.chdir(case["place"])
    sys.path[0] = case["place"]
    paths = case["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path]
    # the latter is what multiprocessing calls this module
    ours = ("tests", "__mp_main__")
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]  # a run keeps digests of the user's code that it finds loaded
    module, *sys.argv[1:] = case["words"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(where: str) -> None:
    """Run case after case, each in a fork, until the other end hangs up."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(where)
        server.sendall(os.environ.get("OMPI_COMM_WORLD_RANK", "0").encode())
        with server.makefile() as lines:
            while line := lines.readline():
                if (fork := os.fork()) == 0:
                    server.detach()
                    return _become(json.loads(line))
                server.sendall(f"{fork:<{_NUMBER}}".encode())
                code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
                server.sendall(f"{code if code >= 0 else 128 - code}".encode())
    return None


if __name__ == "__main__":
    # what costs a launch most of its time, and none of the code that is tested
    for library in ("torch._dynamo", "pydantic", "scipy.special", "PIL.Image"):
        importlib.import_module(library)
    _serve(sys.argv[1])
