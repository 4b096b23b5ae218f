"""Warm-up and timed windows of a run, whatever a step is."""

from __future__ import annotations

from collections.abc import Callable

from bench.launch.machine import busy_share, core_ticks
from bench.lifecycle.turns import Turns
from bench.record import RunLog
from bench.rig import Rig
from bench.train.timing import Stopwatch, time_steps

Progress = Callable[[int, int, float], None]  # windows done, windows in all, images/s


def measure(rig: Rig, log: RunLog, progress: Progress, turns: Turns) -> None:
    """Warm up, then time the windows; after each, outside the clock, the log gets all seconds.

    Each window takes a turn of `turns`. A world that was stopped is slower in the first step of its
    turn, and not every framework by as much: `lead_in_steps` are not timed.
    """
    config, backend, step, watch = rig.config, rig.backend, rig.step, rig.place.stopwatch()
    steps, images = config.steps_per_window, config.samples_per_step * config.steps_per_window
    _record(rig, log, "warmup", 0, _warm_up(rig, watch, turns))
    for index in range(config.windows):
        turns.pass_on(backend.barrier)
        if config.lead_in_steps:
            lead_in = time_steps(step, config.lead_in_steps, watch).step_seconds
            _record(rig, log, "lead_in", index, lead_in)
        before = core_ticks()
        backend.barrier()
        window = time_steps(step, steps, watch)
        busy = busy_share(before, core_ticks())
        seconds = backend.reduce_scalar(window.seconds, "max")  # when all ranks are done
        _record(rig, log, "window", index, window.step_seconds)
        input_seconds = backend.gather(sum(rig.samples.wait_seconds[-steps:]))
        observed = {"input_seconds": input_seconds, "busy_share": backend.gather(busy)}
        log.write("window", index=index, steps=steps, seconds=seconds, **observed)
        progress(index + 1, config.windows, images / seconds)
    turns.end(backend.barrier)


def _warm_up(rig: Rig, watch: Stopwatch, turns: Turns) -> list[float]:
    """Warm up in two turns, and return the seconds of each step.

    The stop between them, while the other worlds warm up, is long, and the window after it would
    be slower, with Horovod more often than with DDP.
    """
    config, barrier, step = rig.config, rig.backend.barrier, rig.step
    late_steps = min(config.lead_in_steps + config.steps_per_window, config.warmup_steps)
    turns.begin(barrier)
    early_seconds = time_steps(step, config.warmup_steps - late_steps, watch).step_seconds
    turns.pass_on(barrier)
    return early_seconds + time_steps(step, late_steps, watch).step_seconds


def _record(rig: Rig, log: RunLog, phase: str, index: int, step_seconds: list[float]) -> None:
    backend = rig.backend
    log.write("steps", phase=phase, index=index, seconds=backend.gather(step_seconds))
    if observed := rig.observer.take():
        of_ranks = backend.gather(observed)
        parts = {name: [rank[name] for rank in of_ranks] for name in observed}
        log.write("breakdown", phase=phase, index=index, **parts)
