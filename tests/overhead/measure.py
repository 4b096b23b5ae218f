"""Inside a launched rank: our loop and a bare one, as a tutorial writes it, in turns on one model.

One wrapped model, so that where it lies in memory cannot favour a loop. This is precise, and blind
to anything outside the loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bench.backends.protocol import Session
from bench.config import RunConfig, UsageError
from bench.data import Batch, Images
from bench.launch.world import Launch
from bench.lifecycle.ending import Pulse
from bench.models import build_model
from bench.record import RunLog
from bench.rig import Rig, assemble
from bench.train.checks import digest
from bench.train.device import time_steps
from bench.train.loop import Loop

Step = Callable[[], None]


def measure(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse) -> bool:
    """Measure one launch, which needs all ranks. Raises UsageError where loops train unlike."""
    with assemble(config, launch, log, pulse) as rig:
        take_turns(rig, log, pulse)  # its models go before their process group
    return True


def take_turns(rig: Rig, log: RunLog, pulse: Pulse) -> None:
    """Run each loop once a pair, in one random order on all ranks.

    Before, each trains a model of its own, from the same parameters to the same.
    """
    config, backend, ours = rig.config, rig.backend, rig.loop
    rank, images = rig.launch.rank, rig.workload.images
    twin = build_model(config, images.classes)
    session = Loop(config, backend, twin, rig.samples).session
    by_hand = bare_step(session, bare_batches(config, rank, images))
    bare = bare_step(ours.session, bare_batches(config, rank, images))

    def seconds(step: Step, steps: int) -> float:
        """Time a turn on the slowest rank."""
        pulse.tick()
        backend.barrier()
        window = time_steps(step, steps, rig.place.stopwatch())
        return backend.reduce_scalar(window.seconds, "max")

    for step in (ours.step, by_hand):
        seconds(step, config.warmup_steps)
    if backend.reduce_scalar(float(digest(rig.workload.network) != digest(twin)), "max"):
        raise UsageError("the loops train to different parameters; compare their steps")
    seconds(bare, config.warmup_steps)  # ours has warmed up on this model, and it has not
    steps: dict[str, Step] = {"ours": ours.step, "bare": bare}
    shuffle = random.Random(config.seed)
    for _ in range(config.windows):
        order = shuffle.sample(sorted(steps), len(steps))
        pair = {name: seconds(steps[name], config.steps_per_window) for name in order}
        log.write("pair", seconds=pair)


def bare_batches(config: RunConfig, rank: int, images: Images) -> Iterator[Batch]:
    """Yield the samples of the study's loop, as a person would index tensors by hand."""
    pixels, targets = images.__getitems__([*range(images.samples or 0)])
    whole, share = config.samples_per_step, config.samples_per_rank
    for epoch in range(10**9):
        shuffle = np.random.default_rng([config.seed, epoch])
        order = torch.from_numpy(shuffle.permutation(len(targets)))
        for start in range(0, len(targets) - whole + 1, whole):
            chosen = order[start + rank * share : start + (rank + 1) * share]
            yield pixels[chosen], targets[chosen]


def bare_step(session: Session, batches: Iterator[Batch]) -> Step:
    """Make one step as a tutorial writes it, on a wrapped model and optimiser."""

    def step() -> None:
        images, labels = next(batches)
        session.optimizer.zero_grad()
        loss = cross_entropy(session.model(images), labels)
        loss.backward()
        session.optimizer.step()

    return step
