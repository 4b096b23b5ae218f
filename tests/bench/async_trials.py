"""Short asynchronous trainings with random delays in workers and servers: does one ever hang?

    mpirun -n 4 --oversubscribe python -m tests.bench.async_trials --trainings 1000 --servers 2

Every training has new keys and five steps. A training that takes a minute is said to hang, and ends
the launch; updates that were not counted end it too.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from types import FrameType
from typing import Any

from bench.config import RunConfig, make_config
from bench.instrument import Observer
from bench.launch import world as launching
from bench.launch.resources import environment

STEPS = 5
_LONGEST_S, _HANGS_S = 0.004, 60


class Delays(Observer):
    """Sleeps for a random time where a step begins, and where its gradients are there."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def step_begin(self, step: int) -> None:
        time.sleep(self._source.uniform(0, _LONGEST_S))

    def gradients_ready(self) -> None:
        time.sleep(self._source.uniform(0, _LONGEST_S))


def train(config: RunConfig, backend: Any, rank: int, trainings: int) -> None:
    """All trainings of one worker."""
    from bench.models import build_model
    from tests.bench.contract_worker import make_loop

    source = random.Random(rank)
    for index in range(trainings):
        signal.alarm(_HANGS_S)
        # one key, or one of each parameter: the keys of a training are not those of the one before
        asked = config.model_copy(update={"seed": index, "bucket_mib": index % 2 * 25.0})
        if config.server_processes > 1:
            asked = config.model_copy(update={"seed": index, "bucket_mib": 0.0})
        network = build_model(asked, 10)
        loop = make_loop(asked, backend, network, rank, Delays(source))
        for _ in range(STEPS):
            loop.step()
        loop.session.sync_buffers()
    signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=1)
    asked = parser.parse_args()
    launch = launching.discover(os.environ)
    own = {"servers": asked.servers, "world_size": launch.size - asked.servers, "mode": "async"}
    work = {"model": "tests.bench.tiny:plain", "dataset": "digits", "image_size": 8}
    config = make_config({"backend": "ps", **work, **own, "batch_per_rank": 4, "bucket_mib": 0.0})
    os.environ.update(environment(config, launch, 1, os.environ))

    def hangs(*_: int | FrameType | None) -> None:
        raise SystemExit(f"rank {launch.rank}: a training hangs")

    signal.signal(signal.SIGALRM, hangs)
    import torch

    from bench import backends
    from bench.backends import catalogue
    from bench.train import device

    torch.set_num_threads(1)
    if launch.rank >= config.world_size:
        source = random.Random(launch.rank)
        delay = lambda: time.sleep(source.uniform(0, _LONGEST_S))  # noqa: E731
        catalogue.server(config.backend)(config, launch, lambda _: None, delay)
        return
    backend = backends.load(config, launch, device.choose(config, launch))
    begun = time.monotonic()
    train(config, backend, launch.rank, asked.trainings)
    counts, sent = backend.served()
    counted = sum(server["updates"] for server in counts)
    late = [sum(column) for column in zip(*_padded([s["staleness"] for s in counts]), strict=True)]
    backend.close()
    if counted != sent or sum(late) != counted:
        raise SystemExit(f"{counted} updates counted, {sum(late)} by staleness, {sent} sent")
    if launch.rank == 0:
        seconds = time.monotonic() - begun
        print(f"{asked.trainings} trainings of {STEPS} steps in {seconds:.0f} s: {sent} updates")
        print(f"by staleness: {late}")


def _padded(rows: list[list[int]]) -> list[list[int]]:
    most = max(map(len, rows))
    return [row + [0] * (most - len(row)) for row in rows]


if __name__ == "__main__":
    main()
