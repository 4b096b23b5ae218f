"""Inside a launched rank: the loops in turns on one model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from bench import backends, data
from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.launch.world import Launch
from bench.models import build_model
from bench.record import RunLog
from bench.rig import write_start
from bench.train import device
from bench.train.checks import digest
from bench.train.device import time_steps
from bench.train.loop import Input, Loop
from tests.overhead.loops import Step, bare_batches, bare_loop, bare_step, recipe_loop

OWN_STEPS = 10  # in which the harness's own time is metered


def measure(config: RunConfig, launch: Launch, log: RunLog) -> None:
    """Measure one launch of one cell, which needs all ranks."""
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    write_start(config, launch, log, backend, place, {"steps_per_turn": config.steps_per_window})
    images = data.load_images(config)
    # in functions of their own: wrapped models must be gone before their process group
    equal = _take_turns(config, launch.rank, backend, images, log)
    share = _own_share(config, launch.rank, backend, images)
    log.write("end", status="ok" if equal else "failed: parameters differ", own_share=share)
    backend.close()


def _take_turns(config: RunConfig, rank: int, backend: Backend, images: Any, log: RunLog) -> bool:
    """Run each loop once a pair in one random order on all ranks; return whether they train alike.

    Both loops first train a model of their own, wrapped by our backend and by hand, from the same
    parameters to the same. Then they take turns on ours.
    """
    network = build_model(config, images.classes)
    samples = Input(config, data.batches(config, rank, images), torch.device("cpu"))
    loop = Loop(config, backend, network, samples)
    by_hand, by_hand_network = bare_loop(config, rank)
    for step in (loop.step, by_hand):
        _seconds(step, config.warmup_steps)
    other = float(digest(network) != digest(by_hand_network))
    equal = backend.reduce_scalar(other, "max") == 0
    batches = bare_batches(config, rank)
    bare = bare_step(loop.session.model, loop.session.optimizer, batches)
    _seconds(bare, config.warmup_steps)  # ours has warmed up on this model, and it has not
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    if config.backend == "horovod":
        steps["recipe"] = recipe_loop(config)
        _seconds(steps["recipe"], config.warmup_steps)
    shuffle = random.Random(config.seed)
    for index in range(config.windows):
        order = shuffle.sample(sorted(steps), len(steps))
        seconds = {name: _slowest(steps[name], config, backend) for name in order}
        log.write("pair", index=index, order=order, seconds=seconds)
    return equal


def _seconds(step: Step, steps: int) -> float:
    return time_steps(step, steps, device.Cpu().stopwatch()).seconds


def _slowest(step: Step, config: RunConfig, backend: Backend) -> float:
    """Measure the seconds of a window on the slowest rank."""
    backend.barrier()
    return backend.reduce_scalar(_seconds(step, config.steps_per_window), "max")


class _Meter:
    """Sums the seconds spent in the calls it wraps: what is left of a turn is the harness's own."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            started = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - started
            return result

        return timed


class _Metered:
    """A session whose calls in a step, its model's forward pass among them, a meter times."""

    def __init__(self, session: Session, meter: _Meter) -> None:
        self._session, self._meter = session, meter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        timed = ("model", "zero_grad", "backward", "synchronize_gradients", "step")
        return self._meter.wrap(found) if name in timed else found


def _own_share(config: RunConfig, rank: int, backend: Backend, images: Any) -> float:
    """Measure a turn's share outside data, forward, backward, exchange or update; loss is in it."""
    meter = _Meter()
    batches = data.batches(config, rank, images)
    timed = iter(meter.wrap(lambda: next(batches)), None)
    network = build_model(config, images.classes)
    loop: Any = Loop(config, backend, network, Input(config, timed, torch.device("cpu")))
    loop.session = _Metered(loop.session, meter)
    _seconds(loop.step, config.warmup_steps)
    meter.seconds = 0.0
    seconds = _seconds(loop.step, OWN_STEPS)
    return backend.reduce_scalar(1 - meter.seconds / seconds, "max")
