"""Inside a launched rank: the loops in turns on one model, or the bare loop alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from bench import backends, data
from bench.backends.protocol import Backend, Session
from bench.config import RunConfig
from bench.launch import provenance
from bench.launch.world import Launch
from bench.models import build_model
from bench.record import RunLog
from bench.start import write_start
from bench.train import device
from bench.train.checks import digest
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import time_steps
from tests.overhead.loops import Step, bare_batches, bare_loop, bare_step, recipe_loop

OWN_STEPS = 10  # in which the harness's own time is metered
# how far apart both loops may end, over the way that training took them: a GPU may add in an order
# of its own each time
ALLOWED = {"cpu": 0.0, "cuda": 1e-2}


def measure(which: str, config: RunConfig, launch: Launch, log: RunLog) -> None:
    """One launch of one cell: the loops in "turns", or the "bare" one; needs all ranks."""
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    write_start(config, launch, log, backend, place, {"steps_per_turn": config.steps_per_window})
    # in functions of their own: wrapped models must be gone before their process group
    if which == "turns":
        images = data.load_images(config)
        apart = _take_turns(config, launch.rank, backend, images, log, place)
        share = None  # the host does not wait for a GPU: its time there is not the step's
        if config.device == "cpu":
            share = _own_share(config, launch.rank, backend, images)
        equal = apart <= ALLOWED[config.device]
        status = "ok" if equal else "failed: parameters differ"
        log.write("end", status=status, own_share=share, parameters_apart=apart)
    else:
        _time_bare(config, launch.rank, backend, log, place)
        peaks = backend.gather(provenance.peak_memory_bytes())
        log.write("end", status="ok", peak_memory_bytes=peaks)
    backend.close()


def _take_turns(
    config: RunConfig, rank: int, backend: Backend, images: Any, log: RunLog, place: device.Device
) -> float:
    """Every loop once per pair, in random order, the same on every rank; how far apart they train.

    Both loops first train a model of their own, wrapped by our backend and by hand, from the same
    parameters to the same. Then they take turns on ours.
    """
    network = build_model(config, images.classes).to(place.torch_device)
    start = _vector(network)
    samples = Input(config, data.batches(config, rank, images), place.torch_device)
    loop = Loop(config, backend, network, samples)
    by_hand, by_hand_network = bare_loop(config, rank)
    for step in (loop.step, by_hand):
        _seconds(step, config.warmup_steps, place)
    apart = backend.reduce_scalar(_apart(network, by_hand_network, start), "max")
    batches = bare_batches(config, rank)
    bare = bare_step(loop.session.model, loop.session.optimizer, batches, config)
    _seconds(bare, config.warmup_steps, place)  # ours has warmed up on this model, and it has not
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    if config.backend == "horovod" and config.device == "cpu":
        steps["recipe"] = recipe_loop(config)
        _seconds(steps["recipe"], config.warmup_steps, place)
    shuffle = random.Random(config.seed)
    for index in range(config.windows):
        order = shuffle.sample(sorted(steps), len(steps))
        seconds = {name: _slowest(steps[name], config, backend, place) for name in order}
        log.write("pair", index=index, order=order, seconds=seconds)
    return apart


def _vector(network: torch.nn.Module) -> torch.Tensor:
    """A copy of all parameters."""
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().double()


def _apart(network: torch.nn.Module, other: torch.nn.Module, start: torch.Tensor) -> float:
    """How far two models have come apart, over the way of one of them from where both began."""
    if digest(network) == digest(other):
        return 0.0
    ours, theirs = _vector(network), _vector(other)
    return float((ours - theirs).norm() / (theirs - start).norm())


def _time_bare(
    config: RunConfig, rank: int, backend: Backend, log: RunLog, place: device.Device
) -> None:
    """The bare loop, timed as `python -m bench` times its own."""
    step, _ = bare_loop(config, rank)
    _seconds(step, config.warmup_steps, place)
    for index in range(config.windows):
        seconds = _slowest(step, config, backend, place)
        log.write("window", index=index, steps=config.steps_per_window, seconds=seconds)


def _seconds(step: Step, steps: int, place: device.Device) -> float:
    return time_steps(step, steps, place.stopwatch()).seconds


def _slowest(step: Step, config: RunConfig, backend: Backend, place: device.Device) -> float:
    """Seconds of a window on the slowest rank."""
    backend.barrier()
    return backend.reduce_scalar(_seconds(step, config.steps_per_window, place), "max")


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
    """Share of a turn outside data, forward, backward, exchange and update; the loss is in it."""
    meter = _Meter()
    batches = data.batches(config, rank, images)
    timed = iter(meter.wrap(lambda: next(batches)), None)
    network = build_model(config, images.classes)
    cpu = device.Cpu()
    loop: Any = Loop(config, backend, network, Input(config, timed, cpu.torch_device))
    loop.session = _Metered(loop.session, meter)
    _seconds(loop.step, config.warmup_steps, cpu)
    meter.seconds = 0.0
    seconds = _seconds(loop.step, OWN_STEPS, cpu)
    return backend.reduce_scalar(1 - meter.seconds / seconds, "max")
