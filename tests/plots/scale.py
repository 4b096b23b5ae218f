"""python -m tests.plots.scale --logs 10000: logs per second that are read and reported."""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from plots.analyse.runs import load
from plots.report import write
from tests.plots import logs

CELLS = ("ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo")


def write_study(folder: Path, n: int, ranks: int, steps: int) -> None:
    """`n` logs of `ranks` x `steps` timed steps: blocks of four cells, weak scaling."""
    noise = np.random.default_rng(1)
    (folder / "runs").mkdir(parents=True)
    logs.study_toml(folder, blocks=-(-n // len(CELLS)))
    for i in range(n):
        block, cell = i // len(CELLS), CELLS[i % len(CELLS)]
        path = folder / "runs" / f"b{block:05d}-{cell.replace('/', '-')}.jsonl"
        fields = {"seed": block, "windows": 4, "steps_per_window": steps // 4}
        run = logs.config(cell, ranks, 16, block, log_path=path, **fields)
        seconds = noise.lognormal(-1, 0.02)
        logs.write(path, run, seconds, noise, input_seconds=[1e-3] * ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    said = "where the study is made; default: a temporary folder, removed afterwards"
    parser.add_argument("--folder", type=Path, help=said)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp())
    try:
        write_study(folder / "scale", asked.logs, asked.ranks, asked.steps)
        size = sum(path.stat().st_size for path in (folder / "scale" / "runs").iterdir())
        print(
            f"{asked.logs} logs of {asked.ranks} ranks x {asked.steps} steps, {size / 1e6:.0f} MB"
        )
        for what, call in (
            ("load", lambda: len(load(folder / "scale").runs)),
            ("load and report", lambda: _report(folder)),
        ):
            wall, cpu = time.monotonic(), time.process_time()
            found = call()
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            print(
                f"{what}: {wall:.1f} s wall, {cpu:.1f} s CPU, {asked.logs / wall:.0f} logs/s "
                f"({found})"
            )
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    finally:
        if asked.folder is None:
            shutil.rmtree(folder)


def _report(folder: Path) -> str:
    return f"{len(write.make(folder / 'scale', folder / 'scale'))} files"


if __name__ == "__main__":
    main()
