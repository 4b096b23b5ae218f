"""Faults of one rank: each run ends in time, tells the cause, leaves nothing."""

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
from tests.bench.ranks import ROOT, environment, mpirun, torchrun

pytestmark = pytest.mark.ranks

STALL_S = 20.0  # the model's module has imported what the first step needs, step by step
SPARE_S = 30.0  # a busy machine lets a rank's last words, and its launcher, take their time

TINY = ["--model", "tests.bench.faulty:model", "--dataset", "tests.bench.faulty:images"]
TINY += ["--image-size", "8", "--batch-per-rank", "4", "--windows", "1000000"]
GONE = r"its process \d+ on \S+ is gone: killed, or ended by code that tells nobody"
ALONE = "alone"
# each cause once: how the run is started, its cell, the rank that meets it, what the log says of it
CASES = [
    ("hung model", "mpirun", "horovod/gloo", 1, r"no progress for \d+ s: in step \d"),
    ("hung loader", ALONE, "single/none", 0, r"no progress for \d+ s: waiting for its .* step \d"),
    ("raise", "mpirun", "ddp/mpi", 1, "RuntimeError: planted failure"),
    ("sys.exit(0)", ALONE, "single/none", 0, "SystemExit: 0"),  # must not end with code 0
    ("os._exit(0)", "torchrun", "ddp/gloo", 1, GONE),
    ("SIGKILL", "mpirun", "horovod/mpi", 0, GONE),  # another has to tell of it
    # torch's own word comes in the main thread, wherever that is; a connection to the process may
    # break first, with or without words
    (
        *("killed loader", "mpirun", "ddp/gloo", 1),
        r"\w+Error"
        r"(: .*DataLoader worker \(pid.* \d+\) (is killed|exited unexpectedly).*|"
        r"(: .*)?; loading process \d+ has ended)",
    ),
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
    # a busy machine may take longer before the fault
    stall = ["--stall-timeout-s", str(STALL_S if fault.startswith(("hung", "held")) else 200)]
    size = "1" if backend == "single" else "2"
    where = ["--backend", backend, "--transport", transport, "--world-size", size]
    return ["-m", "bench", *TINY, *loader, *stall, *where, "--log-path", str(log)]


def play(command: list[str], fault: str, rank: int, log: Path) -> Ended:
    mark, moment = uuid.uuid4().hex, log.with_suffix(".moment")
    code = start(command, log, mark, fault, FAULT_RANK=str(rank)).wait(240)
    ended, output = time.monotonic(), log.with_suffix(".out").read_text()
    assert moment.exists(), f"the fault never came: {output}"
    seconds = ended - float(moment.read_text())
    return Ended(code, read_run(log), seconds, output, left_behind(mark))


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


@pytest.mark.parametrize(("fault", "launcher", "cell", "rank", "cause"), CASES)
def test_a_fault_is_told(
    fault: str,
    launcher: str,
    cell: str,
    rank: int,
    cause: str,
    runs: dict[str, Future[Ended]],
    request: pytest.FixtureRequest,
) -> None:
    ended = runs[request.node.name].result()
    assert ended.code != 0
    assert ended.run.state == "failed", ended.output
    # a rank that is late cannot be told from those that wait for it but by the stacks
    who = r"\d" if fault == "hung model" else str(rank)
    assert re.fullmatch(f"rank {who}: {cause}", str(ended.run.problem)), ended.output
    if fault == "hung model":
        assert re.search(r'File ".*/tests/bench/faulty\.py", line \d+ in happen', ended.output)
    assert fault != "raise" or f"\n{cause}\n" in ended.output, "the traceback's last line"
    assert launcher != ALONE or ended.output.count("error: ") == 1
    assert ended.seconds < STALL_S + SPARE_S
    assert ended.left == []


def start(
    command: list[str], log: Path, mark: str, fault: str = "none", **extra: str
) -> subprocess.Popen[bytes]:
    told = {"FAULT": fault, "FAULT_AT": str(log.with_suffix(".moment")), "FAULT_MARK": mark}
    own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, "cwd": ROOT}
    with log.with_suffix(".out").open("wb") as out:
        env = environment({**told, **extra})
        return subprocess.Popen(command, env=env, stdout=out, stderr=out, **own)


def begin(command: list[str], log: Path, mark: str) -> subprocess.Popen[bytes]:
    """Start a run and return once it is inside its windows."""
    process = start(command, log, mark)
    wait_for(lambda: log.exists() and '"index": 1' in log.read_text(), log)
    return process


def wait_for(is_there: Callable[[], bool], log: Path) -> None:
    """Return once it is; fails after two minutes with what the run of `log` has printed."""
    deadline = time.monotonic() + 120
    while not is_there():
        assert time.monotonic() < deadline, log.with_suffix(".out").read_text()
        time.sleep(0.1)


def test_a_launcher_that_is_killed_leaves_no_ranks(tmp_path: Path) -> None:
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    process = begin(mpirun(2, *words("none", "ddp/mpi", log)), log, mark)
    process.kill()
    process.wait(10)
    assert left_behind(mark) == []
    result = read_run(log)
    assert (result.state, result.problem) == ("interrupted", "stopped: its launcher is gone")


def test_a_run_by_hand_outlives_its_shell(tmp_path: Path) -> None:
    """As with nohup or disown: nobody started it who would be missed."""
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    python = shlex.join([sys.executable, *words("none", "single/none", log)])
    shell = begin(["bash", "-c", f"{python} & exec sleep 3600"], log, mark)
    shell.kill()
    shell.wait(10)
    time.sleep(3)
    windows = len(read_run(log).windows)
    wait_for(lambda: len(read_run(log).windows) > windows, log)
    os.kill(read_run(log).host["ranks"][0]["pid"], signal.SIGTERM)
    assert left_behind(mark) == []
    assert read_run(log).problem == "stopped by SIGTERM"


def test_a_stop_of_all_is_no_silence(tmp_path: Path) -> None:
    """Ctrl-Z and fg, or a job that its scheduler suspends for longer than the stall limit."""
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    command = [sys.executable, *words("held step", "single/none", log)]
    process = start(command, log, mark, "held step")
    wait_for(log.with_suffix(".moment").exists, log)
    time.sleep(2)  # in the middle of that step
    process.send_signal(signal.SIGSTOP)
    time.sleep(STALL_S + 1)
    process.send_signal(signal.SIGCONT)
    log.with_suffix(".moment").unlink()
    wait_for(lambda: process.poll() is not None or '"index": 1' in log.read_text(), log)
    assert process.poll() is None, log.with_suffix(".out").read_text()
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
