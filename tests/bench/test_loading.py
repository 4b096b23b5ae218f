"""Loading processes end with their rank, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tests.bench.ranks import ROOT, environment
from tests.bench.test_faults import left_behind

PARENT = """
import os, signal, sys
from bench.lifecycle.peers import Context

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
