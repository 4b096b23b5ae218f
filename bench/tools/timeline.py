"""python -m bench timeline: times within the training step of one process, without a framework."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from bench.config import RunConfig, UsageError, parse_argv
from bench.instrument import Observer
from bench.instrument.timeline import Gradient, Timeline
from bench.launch import provenance
from bench.launch.machine import require_fit
from bench.launch.world import discover, environment, require_unmodified
from bench.options import Options, new_parser, option
from bench.progress import say
from bench.shell import reported

if TYPE_CHECKING:  # torch is loaded after the threads are set
    import torch

    from bench.train.device import Stopwatch

_PROG = "python -m bench timeline"
_LEAST_STEPS = 20  # of a recording: the median of fewer moves with each of them


class TimelineOptions(Options):
    """Record when one training step's forward pass ends and when each gradient is ready, in one
    process without a framework. Times are medians over steps after warm-up. python -m bench
    --emulate replays the file.
    """

    example: ClassVar[str] = f"{_PROG} --out mine.json --batch-per-rank 16"
    out: Path = option(..., "JSON file to create")
    steps: int = option(_LEAST_STEPS, "steps to time", ge=_LEAST_STEPS, le=10_000)


def main(argv: list[str]) -> int:
    """Record and write the timeline; return exit status 0, 2 for wrong input, 130 after Ctrl-C."""
    return reported(lambda: _write(*parse(argv)))


def _write(options: TimelineOptions, config: RunConfig) -> None:
    launch = discover(os.environ)
    if launch.size > 1:
        raise UsageError(f"a timeline is of one process, not of {launch.size} ranks")
    require_unmodified(os.environ)
    require_fit(config, os.environ)
    cores = len(os.sched_getaffinity(0))
    os.environ.update(environment(config, launch, cores, os.environ))  # before torch loads
    timeline = _record(config, options.steps)
    try:
        with options.out.open("x", encoding="utf-8") as file:  # never over another
            file.write(timeline.to_json())
    except OSError as error:
        wrong = f"out={str(options.out)!r} cannot be written: {error.strerror}"
        raise UsageError(f"{wrong}; choose another name") from None
    forward, backward = 1000 * timeline.forward_seconds, 1000 * timeline.backward_seconds
    seconds = f"forward {forward:.1f} ms, backward {backward:.1f} ms"
    say(f"{options.out}: {seconds}, {len(timeline.gradients)} gradients, {timeline.images} images")


def parse(argv: Sequence[str]) -> tuple[TimelineOptions, RunConfig]:
    """Parse this command's options and a run's configuration; --help exits 0. Raises UsageError."""
    usage = f"{_PROG} --out OUT [options of python -m bench]"
    namespace, rest = new_parser(TimelineOptions, _PROG, usage).parse_known_args(argv)
    options, config = TimelineOptions.checked(vars(namespace), _PROG), parse_argv(rest)
    if config.backend != "single" or config.emulate is not None or config.accumulate > 1:
        one = "a timeline is of one process that trains, in one pass"
        raise UsageError(f"{one}; leave --backend, --emulate and --accumulate out")
    return options, config


class _Recorder(Observer):
    """An observer that records when each step reaches its points, by the device's own clock.

    `steps` has a dict {point: seconds} per step. The points: 'forward' (start), 'loss' (computed),
    'gradient NAME' (ready), 'backward' (end), 'ready' (all gradients) and 'done' (update).
    """

    def __init__(self, network: torch.nn.Module, watch: Stopwatch) -> None:
        self._watch, self._points = watch, list[str]()
        self.steps: list[dict[str, float]] = []
        network.register_forward_pre_hook(lambda *_: self._mark("forward"))
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(
                    lambda _, name=name: self._mark(f"gradient {name}")
                )

    def _mark(self, point: str) -> None:
        self._watch.mark()
        self._points.append(point)

    def forward_done(self) -> None:
        self._mark("loss")

    def backward_done(self) -> None:
        self._mark("backward")

    def gradients_ready(self) -> None:
        self._mark("ready")

    def step_end(self) -> None:
        """Wait for the device, and add the times to `steps`. No recorded time includes the wait."""
        self._mark("done")
        self._watch.now()
        self.steps.append(dict(zip(self._points, self._watch.times(), strict=True)))
        self._points.clear()


def _record(config: RunConfig, steps: int) -> Timeline:
    """Train `steps` steps after warm-up; return median times. Raises UsageError as a run does."""
    import torch

    from bench import data, models
    from bench.backends.protocol import Backend
    from bench.train import device
    from bench.train.loop import Input, Loop

    timed = config.model_copy(update={"windows": 1, "steps_per_window": steps})
    torch.set_num_threads(config.threads)
    place = device.choose(config, discover(os.environ))
    images = data.load_images(config)
    network = models.build_model(config, images.classes).to(place.torch_device)
    samples = Input(timed, data.batches(timed, 0, images), place.torch_device)
    recorder = _Recorder(network, place.stopwatch())
    loop = Loop(timed, Backend(), network, samples, recorder)
    say(f"{config.model}: {config.warmup_steps} + {steps} steps")
    for _ in range(timed.steps):
        loop.step()

    def seconds(begin: str, end: str) -> float:
        return median(points[end] - points[begin] for points in recorder.steps[-steps:])

    gradients = [
        Gradient(
            name=name,
            shape=tuple(parameter.shape),
            bytes=parameter.nbytes,
            ready_seconds=seconds("loss", f"gradient {name}"),
        )
        for name, parameter in network.named_parameters()
        if parameter.requires_grad
    ]
    gradients.sort(key=lambda gradient: gradient.ready_seconds)
    facts = {
        "host": socket.gethostname(),
        "cpu": provenance.cpu_model(),
        "versions": provenance.shared(os.environ, {})["versions"],
        "date": datetime.now(UTC).isoformat(),
        "config": config.model_dump(mode="json"),
        **place.describe(),
    }
    return Timeline(
        source=f"recorded on {facts.get('gpu', facts['cpu'])}",
        steps=steps,
        model=config.model,
        image_size=config.image_size,
        precision=config.precision,
        classes=images.classes,
        images=config.samples_per_rank,
        forward_seconds=seconds("forward", "loss"),
        # medians of different steps: the last gradient's may be the larger by a hair
        backward_seconds=max(seconds("loss", "backward"), gradients[-1].ready_seconds),
        optimizer_seconds=seconds("ready", "done"),
        gradients=tuple(gradients),
        provenance=facts,
    )
