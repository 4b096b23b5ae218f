"""Warm-up and timed windows of a run, whatever a step is."""

from __future__ import annotations

from collections.abc import Callable

from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.record import RunLog
from bench.train.input import Input
from bench.train.timing import Stopwatch, time_steps

Progress = Callable[[int, int, float], None]  # windows done, windows in all, images/s


def measure(
    step: Callable[[], object],
    data: Input,
    backend: Backend,
    config: RunConfig,
    log: RunLog,
    watch: Stopwatch,
    progress: Progress,
) -> None:
    """Warm up, then time the windows; after each, outside the clock, every rank's seconds go to the
    log.
    """
    warmup = time_steps(step, config.warmup_steps, watch)
    _record(backend, log, "warmup", 0, warmup.step_seconds)
    for index in range(config.windows):
        backend.barrier()
        window = time_steps(step, config.steps_per_window, watch)
        seconds = backend.reduce_scalar(window.seconds, "max")
        _record(backend, log, "window", index, window.step_seconds)
        waited = backend.gather(sum(data.wait_seconds[-config.steps_per_window :]))
        log.write(
            "window",
            index=index,
            steps=config.steps_per_window,
            seconds=seconds,
            input_seconds=waited,
        )
        images = config.samples_per_step * config.steps_per_window
        progress(index + 1, config.windows, images / seconds)


def _record(
    backend: Backend, log: RunLog, phase: str, index: int, step_seconds: list[float]
) -> None:
    log.write("steps", phase=phase, index=index, seconds=backend.gather(step_seconds))
