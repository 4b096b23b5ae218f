"""One rank that trains 1,200 steps of a small model; rank 0 writes each rank's resident memory
after 200 and after all of them, in bytes, and the names of its own threads before and after the
backend is closed.

mpirun -n 2 python -m tests.bench.leak_worker OUT.json --backend ddp --world-size 2 --batch-per-rank
4 --dataset digits
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from bench.config import parse_argv
from bench.launch import world as launching
from bench.launch.resources import environment

SETTLED, STEPS = 200, 1000  # steps before the first look, and between the two
MODEL = ["--model", "tests.bench.tiny:normalised"]
LENGTH = ["--warmup-steps", str(SETTLED), "--windows", "1", "--steps-per-window", str(STEPS)]


def resident_bytes() -> int:
    """Read the bytes of this process's resident set now, unlike the peak that getrusage knows."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def thread_names() -> list[str]:
    """List this process's threads as the kernel names them, less a thread that ends meanwhile."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # before and after it is opened
            names.append(task.joinpath("comm").read_text().strip())
    return names


def main() -> None:
    config, place = parse_argv([*sys.argv[2:], *MODEL, *LENGTH]), launching.discover(os.environ)
    os.environ.update(environment(config, place, 1, os.environ))
    import torch

    from bench import backends, data
    from bench.models import build_model
    from bench.train import device
    from bench.train.loop import Input, Loop

    torch.set_num_threads(1)
    backend = backends.load(config, place, device.choose(config, place))
    images = data.load_images(config)
    samples = Input(config, data.batches(config, place.rank, images), torch.device("cpu"))
    loop = Loop(config, backend, build_model(config, images.classes), samples)
    looks = []
    for steps in (SETTLED, STEPS):
        for _ in range(steps):
            loop.step()
        looks.append(resident_bytes())
    seen = backend.gather(looks)
    del loop
    threads = {"open": thread_names()}
    backend.close()
    threads["closed"] = thread_names()
    if place.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps({"resident_bytes": seen, "threads": threads}))


if __name__ == "__main__":
    main()
