"""Freed memory stays with the process, unless the user's own settings say otherwise."""

from __future__ import annotations

import subprocess
import sys

from bench.launch.memory import keep_freed, kept

# as a step does: allocate, write to, and free more than glibc keeps by itself; page faults of the
# rounds after the first
_ROUNDS = """
import os, resource, sys
from bench.launch.memory import keep_freed, kept
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
    keep_freed({"PATH": "/bin", "GLIBC_TUNABLES": "x"})
    assert kept() == "left alone: GLIBC_TUNABLES set"
