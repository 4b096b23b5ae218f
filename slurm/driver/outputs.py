"""What runs have left that the next ones need: memory they took, and the error they ended with."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.record import read_run
from slurm.driver.closing import is_ok
from slurm.driver.launches import point_of


def rank_bytes(folder: Path) -> dict[str, int]:
    """The most memory that a rank of each point has taken, in the point's last run."""
    last = {point_of(log.stem): log for log in sorted((folder / "runs").glob("*.jsonl"))}
    measured = ((point, peak_bytes(log)) for point, log in last.items() if is_ok(log))
    return {point: peak for point, peak in measured if peak}


def peak_bytes(log: Path) -> int:
    """Of the rank that took most; 0 where the log does not say."""
    return max(read_run(log).end.get("peak_memory_bytes", ()), default=0)


def first_error(out: Path) -> str:
    """Of what a run printed; '' where it printed none."""
    lines = out.read_text(errors="replace").splitlines()
    return next((line[7:] for line in lines if line.startswith("error: ")), "")


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
