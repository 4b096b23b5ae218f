"""Runs that take turns, started by the driver, with a fault in one of them: both end in a recorded
state, nothing of them is left, and the same command does them again.

With `-s` the table of faults is printed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bench.lifecycle.peers import STOPPED, state
from bench.lifecycle.turn_table import table_path
from bench.record import Run, read_run
from tests.bench.ranks import ROOT, environment
from tests.bench.test_faults import GONE, left_behind

pytestmark = pytest.mark.ranks

STUDY = """\
name = "tiny"
question = "What does a fault do to both?"
cells = ["ddp/{transport}", "horovod/{transport}"]
scaling = ["weak"]
world_sizes = [2]
blocks = 1
time_limit_s = {limit_s}

[weak]
batch_per_rank = 4

[run]
model = "tests.bench.faulty:model"
dataset = "tests.bench.faulty:images"
image_size = 8
warmup_steps = 3
windows = 3
steps_per_window = 3
stall_timeout_s = {stall_s}
"""
LIMIT_S = 300.0  # for what a test waits for
STALL_S = 45.0  # in which a busy machine must come to the first step
PARTNER = "ended with {other}, the run that it took turns with"
LATE = "timed out after 80 s"
KILLED = "error: the launcher was killed by SIGKILL"
STOPPED_BY = r"stopped( by SIG\w+)?"
SILENT = r"rank 0: no progress for \d+ s: in step \d+"


@dataclass(frozen=True)
class Fault:
    """What happens while world 0 is in a step and world 1 is stopped, or while both load.

    `told`: what the log says of the world of the fault; `partner`: of the other.
    """

    told: str
    partner: str = PARTNER
    planned: str = "held step"  # of faulty.py, in `rank` of `world`
    act: Callable[[Launched], None] | None = None
    world: int = 0
    rank: int = 0
    states: tuple[str, str] = ("failed", "failed")
    limit_s: int = 600
    stall_s: float = 600.0
    again: bool = False  # the same command is tried afterwards
    transport: str = "gloo"
    launcher_may_hang: bool = False  # its time limit is the end then


@dataclass
class Launched:
    """A `python -m slurm run` of two runs, in their order, on its way."""

    folder: Path
    fault: Fault
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self, planned: str) -> subprocess.Popen[str]:
        source = self.folder / "tiny.toml"
        fault = self.fault
        limits = {"limit_s": fault.limit_s, "stall_s": fault.stall_s}
        source.write_text(STUDY.format(transport=fault.transport, **limits))
        command = [sys.executable, "-m", "slurm", "run", str(source), "--results", str(self.folder)]
        told = {"FAULT": planned, "FAULT_RANK": str(fault.rank), "FAULT_WORLD": str(fault.world)}
        told |= {"FAULT_AT": str(self.moment), "FAULT_MARK": self.mark}
        own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        own |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=environment(told), **own)

    @property
    def moment(self) -> Path:
        return self.folder / "moment"

    def logs(self) -> list[Path]:
        """Of both worlds, in the order of their turns: the script's."""
        runs = self.folder / "tiny" / "runs"
        return sorted(path for path in runs.glob("*.jsonl") if ".attempt-" not in path.name)

    def runs(self) -> list[Run]:
        return [read_run(log) for log in self.logs()]

    def pid(self, world: int, rank: int) -> int:
        return int(self.runs()[world].host["ranks"][rank]["pid"])

    def launcher(self, world: int) -> int:
        """The mpirun above a world's ranks."""
        return _parent(self.pid(world, 0))

    def driver(self) -> int:
        return _parent(self.launcher(0))

    def wait_for_both(self, process: subprocess.Popen[str]) -> None:
        """Return once world 0 is held in a step and world 1 stands still."""

        def are_there() -> bool:
            assert process.poll() is None, process.communicate()[0]
            if not self.moment.exists():
                return False
            return all(state(self.pid(1, rank)) == STOPPED for rank in range(2))

        _wait_for(are_there)

    def place(self) -> str:
        """The launch's name, which the start of a log holds."""
        return next((run.host["turns"]["launch"] for run in self.runs() if run.host), "")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s in vain"
        time.sleep(0.1)


def _rank(world: int, number: signal.Signals) -> Callable[[Launched], None]:
    return lambda launched: os.kill(launched.pid(world, 1), number)


def _launcher(world: int) -> Callable[[Launched], None]:
    return lambda launched: os.kill(launched.launcher(world), signal.SIGKILL)


def _driver(number: signal.Signals) -> Callable[[Launched], None]:
    return lambda launched: os.kill(launched.driver(), number)


def _stop_running(launched: Launched) -> None:
    """The other rank must go on, to wait for the one that does not."""
    _rank(0, signal.SIGSTOP)(launched)
    launched.moment.unlink()


def _end_the_driver(launched: Launched) -> None:
    """The worlds, which nobody stops, go on."""
    _driver(signal.SIGKILL)(launched)
    launched.moment.unlink()


_OWN = rf"rank 1: {GONE}"
_RAISED = "RuntimeError: planted failure"
# under load, prterun of Open MPI 5.0.11 aborted in 10 of 50 launches whose rank left MPI without a
# word, in 3 of them before it could say so; in another one it hung
_LAUNCHER_ABORTS = r"prterun: pthread_mutex_lock\.c:\d+: .*"
_INTERRUPTED = ("interrupted", "interrupted")
FAULTS = {
    "rank of the running world killed": Fault(_OWN, act=_rank(0, signal.SIGKILL), again=True),
    "rank of the running world stopped": Fault(SILENT, act=_stop_running, stall_s=STALL_S),
    "rank of the waiting world raises": Fault(
        f"rank 1: dataset=.*{_RAISED}.*", planned="raise while loading", world=1, rank=1
    ),
    "rank of the waiting world exits": Fault(
        f"(rank 0: exit code 3|{_LAUNCHER_ABORTS})",
        planned="os._exit while loading",
        transport="mpi",
        limit_s=90,
        launcher_may_hang=True,
    ),
    "launcher of the stopped world killed": Fault(KILLED, act=_launcher(1)),
    "Ctrl-C": Fault(STOPPED_BY, STOPPED_BY, states=_INTERRUPTED, again=True),
    "driver killed": Fault("", "", act=_end_the_driver, states=("ok", "ok"), again=True),
    "time limit": Fault(LATE, LATE, limit_s=40, states=("timed out", "timed out")),
}


@dataclass(frozen=True)
class Result:
    """What became of a launch."""

    runs: list[Run]
    code: int
    said: str
    left: list[str]
    table: bool
    again: tuple[int, list[str]] | None


def play(name: str, folder: Path) -> Result:
    fault = FAULTS[name]
    launched = Launched(folder, fault)
    process = launched.start(fault.planned)
    if fault.planned == "held step" and name != "time limit":
        launched.wait_for_both(process)
        if fault.act is None:
            process.send_signal(signal.SIGINT)
        else:
            fault.act(launched)
    said, _ = process.communicate(timeout=LIMIT_S)
    left, runs = left_behind(launched.mark), launched.runs()
    there = bool(launched.place()) and table_path(launched.place()).exists()
    again = None
    if fault.again:
        process = launched.start("none")
        said += process.communicate(timeout=LIMIT_S)[0]
        again = process.returncode, [run.state for run in launched.runs()]
    return Result(runs, process.returncode, said, left, there, again)


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Result]]]:
    """The chosen faults, three at a time: each is idle most of the while."""
    with ThreadPoolExecutor(3) as pool:
        started: dict[str, Future[Result]] = {}
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.originalname == "test_a_fault":
                name = str(item.callspec.params["name"])
                started[name] = pool.submit(play, name, tmp_path_factory.mktemp("launch"))
        yield started


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault(name: str, results: dict[str, Future[Result]]) -> None:
    result, fault = results[name].result(), FAULTS[name]
    words = [f"{run.state}: {run.problem}" for run in result.runs]
    if fault.launcher_may_hang and "timed out" in (run.state for run in result.runs):
        late = f"timed out after {len(words) * fault.limit_s} s"
        fault = replace(fault, told=late, partner=late, states=("timed out", "timed out"))
    print(f"\n| {' | '.join([name, *words])} |")
    culprit = 1 if "stopped world" in name else fault.world
    first, second = result.runs[culprit], result.runs[1 - culprit]
    partner = fault.partner.format(other=re.escape(first.path.stem))
    assert (first.state, second.state) == fault.states, result.said
    assert re.fullmatch(rf"(exit code \d+: )?{fault.told}", first.problem or ""), result.said
    assert re.fullmatch(partner, second.problem or ""), result.said
    assert result.left == []
    assert not result.table
    if fault.again:
        assert result.again == (0, ["ok", "ok"]), result.said
