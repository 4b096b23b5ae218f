"""Loading processes end with their rank, however it ends, and leave no names in /dev/shm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bench.config import make_config
from bench.data import batches, load_images
from tests.bench.ranks import ROOT, environment, mpirun
from tests.bench.test_faults import left_behind, words

_SHM = Path("/dev/shm")
PARENT = """
import os, signal, sys
from bench.lifecycle.loading import Context

if __name__ == "__main__":
    from slow import work
    Context().Process(target=work).start()
    os.kill(os.getpid(), signal.SIGKILL)
"""
SLOW = """
import multiprocessing, time
if multiprocessing.current_process().name != "MainProcess":
    time.sleep(60)  # as torch from a file system that hangs
def work(): pass
"""


def names_of(pid: int) -> list[str]:
    """Names in /dev/shm of the semaphores that a process has open; they are links to one file."""
    maps = (Path("/proc") / str(pid) / "maps").read_text()
    files = {int(number) for number in re.findall(r" (\d+) +/dev/shm/sem\.", maps)}
    with os.scandir(_SHM) as entries:
        return [e.name for e in entries if e.name.startswith("sem.mp-") and e.inode() in files]


def test_a_process_whose_parent_dies_during_its_imports_ends(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "slow.py").write_text(SLOW)
    mark = uuid.uuid4().hex
    env = environment({"FAULT_MARK": mark, "PYTHONPATH": str(ROOT)})
    began = time.monotonic()
    done = subprocess.run([sys.executable, str(tmp_path / "parent.py")], env=env, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert left_behind(mark) == []
    assert time.monotonic() - began < 20


def test_names_are_gone_once_every_process_has_made_a_batch() -> None:
    """So that nothing is left of a rank whose whole group is killed in the middle of a run. In a
    process that has named nothing before.
    """
    command = [sys.executable, "-m", "tests.bench.test_loading"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["14", "0", "1"], "and the processes still load"


def load_two_batches() -> None:
    """Print how many names there are before and after, and the size of a third batch."""
    config = make_config({"batch_per_rank": 1, "image_size": 8, "num_workers": 2})
    taken = batches(config, 0, load_images(config))
    print(len(names_of(os.getpid())))
    next(taken), next(taken)
    print(len(names_of(os.getpid())), len(next(taken)[1]))


def pids(mark: str, word: str) -> list[int]:
    """Processes of the run with this mark and a word in their command line, in order of start."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words_of, variables = (
                (folder / "cmdline").read_text(),
                (folder / "environ").read_bytes(),
            )
        except OSError:
            continue
        if f"FAULT_MARK={mark}".encode() in variables and word in words_of:
            found.append(int(folder.name))
    return sorted(found)


@pytest.mark.ranks
@pytest.mark.parametrize(("number", "delay_s"), [(signal.SIGKILL, 0.0), (signal.SIGTERM, 1.0)])
def test_a_run_that_is_ended_while_its_loading_processes_start(
    number: int, delay_s: float, tmp_path: Path
) -> None:
    """A rank is killed, or the launcher is told to stop: no process is left, and no name."""
    log, mark = tmp_path / "run.jsonl", uuid.uuid4().hex
    variables = {"FAULT": "none", "FAULT_AT": "/dev/null", "FAULT_MARK": mark}
    with (tmp_path / "out").open("wb") as out:
        command = mpirun(2, *words("hung loader", "ddp/gloo", log))
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(variables), stdout=out, stderr=out
        )
    while len(pids(mark, "spawn_main")) < 2:
        assert process.poll() is None, (tmp_path / "out").read_text()
        time.sleep(0.05)
    time.sleep(delay_s)
    ranks = [pid for pid in pids(mark, "--num-workers") if pid != process.pid]
    names = [name for pid in ranks for name in names_of(pid)]
    assert names
    os.kill(ranks[-1] if number == signal.SIGKILL else process.pid, number)
    assert process.wait(10) != 0
    assert left_behind(mark) == []
    assert [name for name in names if (_SHM / name).exists()] == []


if __name__ == "__main__":
    load_two_batches()
