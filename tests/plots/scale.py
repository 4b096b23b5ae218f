"""python -m tests.plots.scale --logs 10000: how long many long logs take to read and to report, in
logs per second.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.record import CHECKS, SCHEMA, RunLog, append_event
from plots.analyse.runs import load
from plots.report import write
from tests.plots import logs

CELLS = ("ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo")


def write_study(folder: Path, n: int, ranks: int, steps: int) -> None:
    """`n` logs of `ranks` x `steps` timed steps each: as many blocks as that makes of four cells,
    weak scaling.
    """
    noise = np.random.default_rng(1)
    (folder / "runs").mkdir(parents=True)
    logs.study_toml(folder, blocks=-(-n // len(CELLS)))
    for i in range(n):
        block, cell = i // len(CELLS), CELLS[i % len(CELLS)]
        path = folder / "runs" / f"b{block:05d}-{cell.replace('/', '-')}.jsonl"
        config = logs.config(
            cell,
            ranks,
            16,
            block,
            seed=block,
            windows=4,
            steps_per_window=steps // 4,
            log_path=path,
        )
        log = RunLog(path)
        log.write(
            "start",
            schema=SCHEMA,
            config=config.model_dump(mode="json"),
            host=logs.host(ranks),
            workload={},
        )
        log.write(
            "steps",
            phase="warmup",
            index=0,
            seconds=noise.lognormal(-1, 0.02, (ranks, config.warmup_steps)).tolist(),
        )
        for index in range(config.windows):
            seconds = noise.lognormal(-1, 0.02, (ranks, config.steps_per_window))
            slowest = float(seconds.sum(axis=1).max()) * (1 + 1e-6)
            log.write("steps", phase="window", index=index, seconds=seconds.tolist())
            log.write(
                "window",
                index=index,
                steps=config.steps_per_window,
                seconds=slowest,
                input_seconds=[1e-3] * ranks,
            )
        log.write(
            "end",
            status="ok",
            checks=dict.fromkeys(CHECKS, True),
            samples=config.steps * config.samples_per_step,
        )
        append_event(
            path,
            "exit",
            code=0,
            timed_out=False,
            interrupted=False,
            limit_s=60,
            wall_s=9,
            oom_kills=0,
            said=[],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the study is made; default: a temporary folder, removed afterwards",
    )
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
