"""Inside a launched rank: the loops in turns on one model, or the bare loop alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench import backends, data
from bench.backends import Backend
from bench.config import RunConfig
from bench.launch import provenance
from bench.launch.world import Launch
from bench.models import build_model
from bench.record import RunLog
from bench.run import write_start
from bench.tools.overhead.loops import Step, bare_batches, bare_loop, bare_step, recipe_loop
from bench.tools.overhead.summary import OWN_STEPS, PAIRS, STEPS
from bench.train import device
from bench.train.loop import Input, Loop, digest
from bench.train.timing import HostStopwatch, time_steps


def measure_turns(config: RunConfig, launch: Launch, log: RunLog) -> None:
    """One launch of one cell: equal work first, then turns in random order; needs all ranks.

    Both loops first train a model of their own, wrapped by our backend and by hand, and must end
    with the same parameters.
    """
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    images = data.load_images(config)
    network = build_model(config, images.classes)
    samples = Input(config, data.batches(config, launch.rank, images), place.torch_device)
    loop = Loop(config, backend, network, samples)
    by_hand, by_hand_network = bare_loop(config, launch.rank)
    for step in (loop.step, by_hand):
        _time(step, config.warmup_steps)
    equal = backend.all_reduce(float(digest(network) == digest(by_hand_network)), "min") == 1.0
    bare = bare_step(loop._model, loop._optimizer, bare_batches(config, launch.rank))
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    if config.backend == "horovod":
        steps["recipe"] = recipe_loop(config)
        _time(steps["recipe"], config.warmup_steps)
    write_start(config, launch, log, backend, place, {"steps_per_turn": STEPS})
    _take_turns(steps, backend, log, random.Random(config.seed))
    share = _own_share(loop, samples, backend)
    log.write("end", status="ok" if equal else "failed: parameters differ", own_share=share)
    del loop, by_hand, by_hand_network, bare, steps, step
    backend.close()


def measure_bare(config: RunConfig, launch: Launch, log: RunLog) -> None:
    """The bare loop alone in this process group, timed as `python -m bench` times its own; needs
    all ranks.
    """
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    step, model = bare_loop(config, launch.rank)
    write_start(config, launch, log, backend, place, {"steps_per_turn": STEPS})
    _time(step, config.warmup_steps)
    for index in range(config.windows):
        backend.barrier()
        seconds = backend.all_reduce(_time(step, config.steps_per_window), "max")
        log.write("window", index=index, steps=config.steps_per_window, seconds=seconds)
    log.write("end", status="ok", peak_memory_bytes=backend.gather(provenance.peak_memory_bytes()))
    del step, model  # they hold the wrapped model, which must be gone before its process group
    backend.close()


def _time(step: Step, steps: int) -> float:
    return time_steps(step, steps, HostStopwatch(time.perf_counter)).seconds


def _take_turns(
    steps: Mapping[str, Step], backend: Backend, log: RunLog, shuffle: random.Random
) -> None:
    """Time every loop once per pair, in random order, the same on every rank; the seconds are the
    slowest rank's.
    """
    for index in range(PAIRS):
        order = shuffle.sample(sorted(steps), len(steps))
        seconds = {}
        for name in order:
            backend.barrier()
            seconds[name] = backend.all_reduce(_time(steps[name], STEPS), "max")
        log.write("pair", index=index, order=order, seconds=seconds)


class _Meter:
    """Sums the seconds spent in the calls it wraps: what is left of a turn is the harness's own."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def _own_share(loop: Any, samples: Any, backend: Backend) -> float:
    """Share of a turn outside data, forward, backward, exchange and update: an upper bound, the
    loss function is in it.
    """
    meter = _Meter()
    names = ("zero_grad", "backward", "finish_backward", "step")
    saved = {name: getattr(backend, name) for name in names}
    model, batches = loop._model, samples._batches
    for name, call in saved.items():
        setattr(backend, name, meter.wrap(call))
    loop._model, samples._batches = meter.wrap(model), iter(meter.wrap(lambda: next(batches)), None)
    seconds = _time(loop.step, OWN_STEPS)
    for name, call in saved.items():
        setattr(backend, name, call)
    loop._model, samples._batches = model, batches
    return backend.all_reduce(1 - meter.seconds / seconds, "max")
