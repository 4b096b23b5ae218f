"""The machine: what it cannot give is refused in one line, and its cores are read."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.config import UsageError
from bench.launch import machine
from bench.launch.machine import Ticks, busy_share
from tests.bench.ranks import run


@pytest.mark.parametrize(
    ("env", "wrong"),
    [
        ({"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": ""}, ""),
        ({"GLOO_SOCKET_IFNAME": "eth0", "HOROVOD_GLOO_IFACE": "eth0"}, ""),
        (
            {"HOROVOD_GLOO_IFACE": "eth1"},
            "HOROVOD_GLOO_IFACE='eth1' names no interface of this host; unset it, .* lo, eth0",
        ),
        (
            {"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": "eth0"},
            "GLOO_SOCKET_IFNAME='lo' and HOROVOD_GLOO_IFACE='eth0' are two wires, .*; unset one",
        ),
    ],
)
def test_both_frameworks_take_one_wire_that_is_there(env: dict[str, str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong) if wrong else nullcontext():
        machine.require_interface(env, ["lo", "eth0"])


def test_without_torch_a_run_says_so_in_one_line() -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more);"
        "import bench.command as m; sys.exit(m.main(sys.argv[1:]))"
    )
    done = run([sys.executable, "-c", code, "--batch-per-rank", "4"])
    assert done.returncode == 2
    cure = "run make setup, then . .venv/bin/activate"
    assert done.stderr == f"error: {sys.executable} has no torch, which a run needs; {cure}\n"


# as a step does: allocate, write to, and free more than glibc keeps by itself; page faults of the
# rounds after the first
_ROUNDS = """
import os, resource, sys
from bench.launch.machine import keep_freed, kept
keep_freed(os.environ)
def faults():
    blocks = [b"1" * 100_000 for _ in range(400)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
for _ in range(10):
    last = faults()
print(last - first, kept())
"""


def _faults(env: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-c", _ROUNDS]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    count, _, words = said.strip().partition(" ")
    return int(count), words


def test_freed_memory_is_kept_and_the_log_says_so() -> None:
    count, words = _faults({})
    assert words == "trim_threshold=1073741824 mmap_threshold=33554432"
    given_back, left = _faults({"MALLOC_TRIM_THRESHOLD_": "131072"})
    assert left == "left alone: MALLOC_TRIM_THRESHOLD_ set"
    assert count < 100 < given_back


@pytest.mark.parametrize("libc", [object(), SimpleNamespace(mallopt=lambda *_: 0)])
def test_thresholds_that_are_not_set_are_not_logged(
    libc: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: libc)
    monkeypatch.setattr(machine, "_outcome", "")
    machine.keep_freed({})
    assert machine.kept() == "left alone: the C library refused trim_threshold, mmap_threshold"


STAT = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 10 0 20 60 5 1 1 3 99 99
cpu1 100 0 0 0 0 0 0 0 0 0
cpu10 1000 0 0 0 0 0 0 0 0 0
"""


def test_busy_cores_are_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(machine, "_STAT", tmp_path / "stat")
    for affinity, expected in (
        ({0}, Ticks(worked=30, interrupted=2, stolen=3, idle=65)),
        ({0, 1}, Ticks(130, 2, 3, 65)),
        ({0, 2}, None),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, known=affinity: known)
        assert machine.core_ticks() == expected
    assert machine.node_ticks() == Ticks(27, 18, 9, 18)
    assert busy_share(Ticks(30, 2, 3, 65), Ticks(50, 7, 8, 75)) == 0.75
    assert busy_share(Ticks(1, 0, 0, 1), Ticks(1, 0, 0, 1)) is None
    assert busy_share(None, Ticks(1, 0, 0, 1)) is None
