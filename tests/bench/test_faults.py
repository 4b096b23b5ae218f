"""Faults of one rank in every backend: each run ends in time, tells the cause, leaves nothing.

With `-s` the table of faults is printed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.record import Run, read_run
from tests.bench import ranks
from tests.bench.ranks import ROOT, environment, horovodrun, mpirun, torchrun

pytestmark = pytest.mark.ranks

STALL_S = 20.0  # the model's module has imported what the first step needs, step by step
SPARE_S = 30.0  # a busy machine lets a rank's last words, and its launcher, take their time

TINY = ["--model", "tests.bench.faulty:model", "--dataset", "tests.bench.faulty:images"]
TINY += ["--image-size", "8", "--batch-per-rank", "4", "--windows", "1000000"]
HERE = r"\(tests/bench/faulty\.py:\d+ \S+\)"
GONE = r"its process \d+ on \S+ is gone: killed, or ended by code that tells nobody"
STALLED = r"no progress for \d+ s: in step \d"

# fault in rank 1 -> what the log says of that rank
CAUSES = {
    "raise": "RuntimeError: planted failure",
    "KeyboardInterrupt": f"KeyboardInterrupt: raised {HERE}",
    "sys.exit(0)": rf"SystemExit: sys\.exit\(0\) was called {HERE}",
    "os._exit(0)": GONE,
    "SIGKILL": GONE,
    "hung model": STALLED,
    "hung loader": r"no progress for \d+ s: waiting for its batch of step \d",
    "hung factory": r"no progress for \d+ s: loading data",
    # torch's own word comes in the main thread, wherever that is; a connection to the process may
    # break first, with or without words
    "killed loader": r"\w+Error"
    r"(: .*DataLoader worker \(pid.* \d+\) (is killed|exited unexpectedly).*|"
    r"(: .*)?; loading process \d+ has ended)",
}
ALONE = "alone"
# each cause once: how the run is started, its cell, and the rank that meets the fault
CASES = [
    ("hung model", "mpirun", "horovod/gloo", 1),
    ("hung loader", ALONE, "single/none", 0),
    ("hung factory", ALONE, "single/none", 0),
    ("raise", "mpirun", "ddp/mpi", 1),
    ("KeyboardInterrupt", "mpirun", "ddp/gloo", 1),
    ("sys.exit(0)", "mpirun", "horovod/mpi", 1),
    ("sys.exit(0)", ALONE, "single/none", 0),  # must not end with code 0
    ("os._exit(0)", "mpirun", "horovod/gloo", 1),
    ("os._exit(0)", "torchrun", "ddp/gloo", 1),
    ("SIGKILL", "mpirun", "ddp/gloo", 1),
    ("SIGKILL", "mpirun", "horovod/mpi", 0),  # another has to tell of it
    ("killed loader", "mpirun", "ddp/gloo", 1),
]


LAUNCH: dict[str, Callable[..., list[str]]] = {
    "mpirun": mpirun,
    "torchrun": torchrun,
    ALONE: lambda _, *words: [sys.executable, *words],
}


@dataclass(frozen=True)
class Ended:
    """What became of one run. `seconds` from the fault to the launcher's end."""

    code: int
    run: Run
    seconds: float
    output: str
    left: list[str]


def words(fault: str, cell: str, log: Path) -> list[str]:
    backend, transport = cell.split("/")
    loader = ["--num-workers", "1"] if fault == "killed loader" else []
    stall = ["--stall-timeout-s", str(STALL_S)]
    size = "1" if backend == "single" else "2"
    where = ["--backend", backend, "--transport", transport, "--world-size", size]
    return ["-m", "bench", *TINY, *loader, *stall, *where, "--log-path", str(log)]


def play(command: list[str], fault: str, rank: int, log: Path) -> Ended:
    mark = uuid.uuid4().hex
    moment = log.with_suffix(".moment")
    extra = {"FAULT": fault, "FAULT_RANK": str(rank), "FAULT_AT": str(moment), "FAULT_MARK": mark}
    done = ranks.run(command, extra, timeout_s=240)
    ended = time.monotonic()
    assert moment.exists(), f"the fault never came: {done.stderr}"
    seconds, output = ended - float(moment.read_text()), done.stdout + done.stderr
    return Ended(done.returncode, read_run(log), seconds, output, left_behind(mark))


def left_behind(mark: str) -> list[str]:
    """List command lines of processes of that run which are still there after a moment."""
    deadline = time.monotonic() + SPARE_S
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FAULT_MARK={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """Start the chosen cases, three at a time: those that hang come first, and are idle."""
    with ThreadPoolExecutor(3) as pool:
        started = {}
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.originalname == "test_a_fault_is_told":
                params: dict[str, Any] = dict(item.callspec.params)
                fault, rank = params["fault"], params["rank"]
                log = tmp_path_factory.mktemp("run") / "run.jsonl"
                command = LAUNCH[params["launcher"]](2, *words(fault, params["cell"], log))
                started[item.name] = pool.submit(play, command, fault, rank, log)
        yield started


@pytest.mark.parametrize(("fault", "launcher", "cell", "rank"), CASES)
def test_a_fault_is_told(
    fault: str,
    launcher: str,
    cell: str,
    rank: int,
    runs: dict[str, Future[Ended]],
    request: pytest.FixtureRequest,
) -> None:
    ended = runs[request.node.name].result()
    reason = str(ended.run.problem)
    row = [f"{fault} in rank {rank}", cell, ended.run.state, reason, f"{ended.seconds:.1f} s"]
    print(f"\n| {' | '.join(row)} | exit code {ended.code} |")
    assert ended.code != 0
    assert ended.run.state == "failed", ended.output
    # a rank that is late cannot be told from those that wait for it but by the stacks
    who = r"\d" if fault == "hung model" else str(rank)
    assert re.fullmatch(f"rank {who}: {CAUSES[fault]}", reason), ended.output
    if fault == "hung model":
        assert re.search(r'File ".*/tests/bench/faulty\.py", line \d+ in happen', ended.output)
    assert fault != "raise" or f"\n{CAUSES[fault]}\n" in ended.output, "the traceback's last line"
    assert launcher != ALONE or ended.output.count("error: ") == 1
    assert ended.seconds < STALL_S + SPARE_S
    assert ended.left == []


LAUNCHERS = {
    "mpirun ddp/mpi": (mpirun, "ddp/mpi"),
    "horovodrun horovod/gloo": (horovodrun, "horovod/gloo"),
}


def begin(command: list[str], log: Path, mark: str, fault: str = "none") -> subprocess.Popen[bytes]:
    """Start a run and return once it is inside its windows, or has met its fault."""
    extra = {"FAULT": fault, "FAULT_AT": str(log.with_suffix(".moment")), "FAULT_MARK": mark}
    own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, "cwd": ROOT}
    with log.with_suffix(".out").open("wb") as out:
        env = environment(extra)
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, **own)

    def is_there() -> bool:
        met = fault != "none" and log.with_suffix(".moment").exists()
        return log.exists() and (met or '"index": 1' in log.read_text())

    wait_for(is_there, log)
    return process


def wait_for(is_there: Callable[[], bool], log: Path) -> None:
    """Return once it is; fails after two minutes with what the run of `log` has printed."""
    deadline = time.monotonic() + 120
    while not is_there():
        assert time.monotonic() < deadline, log.with_suffix(".out").read_text()
        time.sleep(0.1)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_that_is_killed_leaves_no_ranks(name: str, tmp_path: Path) -> None:
    (launcher, cell), log, mark = LAUNCHERS[name], tmp_path / "run.jsonl", uuid.uuid4().hex
    process = begin(launcher(2, *words("none", cell, log)), log, mark)
    killed = time.monotonic()
    process.kill()
    process.wait(10)
    while (left := marked(mark)) and time.monotonic() < killed + SPARE_S:
        time.sleep(0.2)
    result, seconds = read_run(log), time.monotonic() - killed
    print(f"\n| {name} killed | {result.state} | {result.problem} | {seconds:.1f} s |")
    assert left == []
    # horovodrun leaves a process of its own above the ranks, which ends them
    by = " by SIGTERM" if launcher is horovodrun else ": its launcher is gone"
    assert result.problem == f"stopped{by}"
    assert result.state == "interrupted"


def test_a_run_by_hand_outlives_its_shell(tmp_path: Path) -> None:
    """As with nohup or disown: nobody started it who would be missed."""
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    python = shlex.join([sys.executable, *words("none", "single/none", log)])
    shell = begin(["bash", "-c", f"{python} & sleep 3600"], log, mark)
    shell.kill()
    shell.wait(10)
    windows = len(read_run(log).windows)
    time.sleep(3)
    (orphan,) = [line for line in marked(mark) if "bench" in line]
    assert "-m bench" in orphan
    wait_for(lambda: len(read_run(log).windows) > windows, log)
    result = read_run(log)
    os.kill(result.host["ranks"][0]["pid"], signal.SIGTERM)
    group = subprocess.run(["pgrep", "-g", str(shell.pid)], capture_output=True, text=True)
    for pid in group.stdout.split():
        os.kill(int(pid), signal.SIGKILL)  # the shell's sleep
    assert left_behind(mark) == []
    assert read_run(log).problem == "stopped by SIGTERM"


def test_a_stop_of_all_is_no_silence(tmp_path: Path) -> None:
    """Ctrl-Z and fg, or a job that its scheduler suspends for longer than the stall limit."""
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    command = [sys.executable, *words("slow step", "single/none", log)]
    process = begin(command, log, mark, "slow step")
    time.sleep(2)  # in the middle of that step
    process.send_signal(signal.SIGSTOP)
    time.sleep(STALL_S + 1)
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: process.poll() is not None or '"index": 1' in log.read_text(), log)
    assert process.poll() is None, log.with_suffix(".out").read_text()
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
