"""What the machine cannot give is refused in one line before anything is allocated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.launch import machine
from tests.bench.ranks import ROOT, run


def test_an_interface_that_is_not_here() -> None:
    here = ["lo", "eth0"]
    machine.require_interface({"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": ""}, here)
    wrong = r"HOROVOD_GLOO_IFACE='eth1' names no interface of this host; unset it, .* lo, eth0"
    with pytest.raises(UsageError, match=wrong):
        machine.require_interface({"HOROVOD_GLOO_IFACE": "eth1"}, here)


def test_frameworks_are_not_compared_over_two_wires() -> None:
    both = {"GLOO_SOCKET_IFNAME": "lo", "HOROVOD_GLOO_IFACE": "eth0"}
    two = "GLOO_SOCKET_IFNAME='lo' and HOROVOD_GLOO_IFACE='eth0' are two wires, .*; unset one"
    with pytest.raises(UsageError, match=two):
        machine.require_interface(both, ["lo", "eth0"])
    machine.require_interface(dict.fromkeys(both, "eth0"), ["lo", "eth0"])


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


def test_without_pydantic_a_run_says_so_in_one_line() -> None:
    """A Python of its own, without this environment's packages, as one forgets to activate it."""
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r});"
    code += "runpy.run_module('bench', run_name='__main__')"
    done = run([str(Path(sys.base_prefix) / "bin" / "python3"), "-I", "-S", "-c", code])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: pydantic is not installed for ")
    assert "make setup" in done.stderr


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


def test_what_the_user_set_wins() -> None:
    machine.keep_freed({"PATH": "/bin", "GLIBC_TUNABLES": "x"})
    assert machine.kept() == "left alone: GLIBC_TUNABLES set"
