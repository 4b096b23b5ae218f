"""Before a study's first run its user hears who else keeps the machine busy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOK = "from slurm.here import warn_if_busy; warn_if_busy()"


def test_a_busy_machine_is_said_before_the_first_run() -> None:
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
    finally:
        other.kill()
        other.wait()
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: other processes take ")
    assert line.endswith("above 2 % a report calls a run disturbed: end them, or run later")
