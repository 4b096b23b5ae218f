"""Smoke test of this machine: two ranks train with both frameworks, over MPI and over Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.backends.catalogue import CANDIDATE, REFERENCE
from bench.launch import launcher
from bench.progress import quantity
from bench.record import read_run

CELLS = [f"{name}/{wire}" for wire in ("mpi", "gloo") for name in (REFERENCE, CANDIDATE)]
LIMIT_S = 120  # of one run, which takes about ten
_RUN = ["--model", "resnet18", "--dataset", "digits", "--batch-per-rank", "8", "--world-size", "2"]
_RUN += ["--warmup-steps", "3", "--windows", "2", "--steps-per-window", "4", "--max-lr", "0.001"]


class TriedCell(NamedTuple):
    """Result of one cell (framework/transport); `problem` is '' if its run is ok."""

    cell: str
    problem: str
    images_per_s: float = 0.0
    parity: bool | None = None
    parameters: str = ""  # their SHA-256 at the end

    def __str__(self) -> str:
        if self.problem:
            return f"{self.cell:14} FAILED: {self.problem}"
        rate, parity = quantity(self.images_per_s), "holds" if self.parity else "NOT PROVEN"
        return (
            f"{self.cell:14}{rate:>8} images/s  parity {parity}  parameters {self.parameters[:8]}"
        )


def try_cell(cell: str, log: Path) -> TriedCell:
    """Train a few steps of `cell`, such as 'ddp/mpi', under mpirun; write the run log to `log`."""
    backend, _, transport = cell.partition("/")
    words = [*_RUN, "--backend", backend, "--transport", transport, "--log-path", str(log)]
    ranks = launcher.command("mpirun", 2, args=launcher.ON_THIS_MACHINE)
    env = {**os.environ, **launcher.root_variables()}
    command = [*ranks, sys.executable, "-m", "bench", *words]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return TriedCell(cell, str(error))
    run = read_run(log) if log.exists() else None
    if run is None or run.problem is not None or done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        last = (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        return TriedCell(cell, (run and run.problem) or last.removeprefix("error: "))
    end = run.end
    return TriedCell(cell, "", run.images_per_s, end["checks"]["parity"], end["parameters_sha256"])


def problem(rows: Sequence[TriedCell]) -> str:
    """Return what is wrong, such as a failed cell or unequal final parameters; '' if nothing is."""
    if bad := [row.cell for row in rows if not row.parity]:
        return f"{', '.join(bad)} failed, or parity is not proven"
    parted = len({row.parameters for row in rows}) > 1
    return "cells did equal work and ended with different parameters" if parted else ""


def main() -> int:
    """Try every cell and print its row; return 0, or print what is wrong and return 1."""
    rows = []
    with TemporaryDirectory(prefix="smoke-") as folder:
        for cell in CELLS:
            rows.append(try_cell(cell, Path(folder, f"{cell.replace('/', '-')}.jsonl")))
            print(rows[-1], flush=True)
    if wrong := problem(rows):
        print(f"error: {wrong}; see python -m bench doctor", file=sys.stderr)
        return 1
    print("all ended with the same parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
