"""Inside a launched rank: the loops in turns on one model, or the bare loop alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench import backends, data
from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.launch import provenance
from bench.launch.world import Launch
from bench.models import build_model
from bench.record import RunLog
from bench.run import write_start
from bench.tools.overhead.loops import Step, bare_batches, bare_loop, bare_step, recipe_loop
from bench.tools.overhead.summary import OWN_STEPS, PAIRS, STEPS
from bench.train import device
from bench.train.checks import digest
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import Stopwatch, time_steps


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
    equal = backend.reduce_scalar(float(digest(network) == digest(by_hand_network)), "min") == 1.0
    bare = bare_step(loop.session.model, loop.session.optimizer, bare_batches(config, launch.rank))
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    if config.backend == "horovod":
        steps["recipe"] = recipe_loop(config)
        _time(steps["recipe"], config.warmup_steps)
    write_start(config, launch, log, backend, place, {"steps_per_turn": STEPS})
    _take_turns(steps, backend, log, random.Random(config.seed))
    del loop, by_hand, by_hand_network, bare, steps, step
    share = _own_share(config, launch, backend, images, place.torch_device)
    log.write("end", status="ok" if equal else "failed: parameters differ", own_share=share)
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
        seconds = backend.reduce_scalar(_time(step, config.steps_per_window), "max")
        log.write("window", index=index, steps=config.steps_per_window, seconds=seconds)
    log.write("end", status="ok", peak_memory_bytes=backend.gather(provenance.peak_memory_bytes()))
    del step, model  # they hold the wrapped model, which must be gone before its process group
    backend.close()


def _time(step: Step, steps: int) -> float:
    return time_steps(step, steps, Stopwatch(time.perf_counter)).seconds


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
            seconds[name] = backend.reduce_scalar(_time(steps[name], STEPS), "max")
        log.write("pair", index=index, order=order, seconds=seconds)


class _Meter:
    """Sums the seconds spent in the calls it wraps: what is left of a turn is the harness's own."""

    def __init__(self) -> None:
        self.seconds, self._started = 0.0, 0.0

    def start(self) -> None:
        self._started = time.perf_counter()

    def stop(self) -> None:
        self.seconds += time.perf_counter() - self._started

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            self.start()
            result = call(*args)
            self.stop()
            return result

        return timed


class _Metered:
    """A session whose calls in a step, and whose model's forward pass, a meter times."""

    def __init__(self, session: Session, meter: _Meter) -> None:
        self._session, self._meter = session, meter
        session.model.register_forward_pre_hook(lambda *_: meter.start())
        session.model.register_forward_hook(lambda *_: meter.stop())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        timed = ("zero_grad", "backward", "synchronize_gradients", "step")
        return self._meter.wrap(found) if name in timed else found


def _own_share(
    config: RunConfig, launch: Launch, backend: Backend, images: Any, device: torch.device
) -> float:
    """Share of a turn outside data, forward, backward, exchange and update: an upper bound, the
    loss function is in it.
    """
    meter = _Meter()
    batches = data.batches(config, launch.rank, images)
    timed = iter(meter.wrap(lambda: next(batches)), None)
    network = build_model(config, images.classes)
    loop: Any = Loop(config, backend, network, Input(config, timed, device))
    loop.session = _Metered(loop.session, meter)
    _time(loop.step, config.warmup_steps)
    meter.seconds = 0.0
    seconds = _time(loop.step, OWN_STEPS)
    return backend.reduce_scalar(1 - meter.seconds / seconds, "max")
