"""Progress of a run, shown by rank 0: a bar on a terminal, plain lines in a batch log."""

from __future__ import annotations

import math
import sys
import time
from statistics import harmonic_mean
from typing import Any

from bench.config import RunConfig
from bench.streams import say


def quantity(value: float) -> str:
    """For people: 261,400 or 29.1 or 0.0123; four digits from 1,000 on, else three."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = 4 if abs(value) >= 999.5 else 3
    value = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def opening(config: RunConfig) -> str:
    """What the run will do; said before anything slow is loaded."""
    steps = f"{config.warmup_steps} + {config.windows} x {config.steps_per_window} steps"
    return (
        f"{_setting(config)} at {config.image_size} px, {config.samples_per_rank} images per "
        f"rank, {steps}; loading torch ..."
    )


def _setting(config: RunConfig) -> str:
    what = f"input pipeline of {config.dataset} alone" if config.loader_only else config.model
    return f"{config.cell}, {_ranks(config)}, {what}"


def _ranks(config: RunConfig) -> str:
    return f"{config.world_size} rank{'s' if config.world_size > 1 else ''}"


def result(config: RunConfig, rates: list[float], loss: float | None, failed: list[str]) -> str:
    """The last line: images/s of the run (harmonic mean of equal windows), and their spread."""
    spread = f"{quantity(min(rates))} to {quantity(max(rates))}"
    line = f"{quantity(harmonic_mean(rates))} images/s (windows {spread}), {_ranks(config)}"
    line += ", input pipeline alone" if loss is None else f", loss {quantity(loss)}"
    line += f", FAILED CHECKS {', '.join(failed)}" if failed else ""
    line += (
        " (use --max-lr, --lr-warmup-steps or a lower --base-lr)"
        if {"loss_finite", "loss_bounded"} & {*failed}
        else ""
    )
    return (
        f"{line}; "
        f"{f'log {config.log_path}' if config.log_path else 'no --log-path given, nothing kept'}"
    )


class Lines:
    """One line per phase and per window on standard error."""

    def phase(self, name: str) -> None:
        say(name)

    def window(self, done: int, total: int, images_per_s: float) -> None:
        say(f"window {done}/{total}: {quantity(images_per_s)} images/s")

    def close(self) -> None:
        pass


class Bar:
    """A bar with an estimate, redrawn between windows only: inside, it would be measured."""

    def __init__(self, windows: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns: list[Any] = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} windows"),
        ]
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn()]
        self._progress = Progress(
            *columns, console=Console(stderr=True), auto_refresh=False, get_time=time.monotonic
        )
        self._task = self._progress.add_task("", total=windows, rate="")

    def phase(self, name: str) -> None:
        self._progress.start()
        self._progress.update(self._task, description=name)
        self._progress.refresh()

    def window(self, done: int, total: int, images_per_s: float) -> None:
        rate = f"{quantity(images_per_s)} images/s"
        self._progress.update(
            self._task, description="window", completed=done, total=total, rate=rate
        )
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class Silent:
    """Ranks other than 0."""

    def phase(self, name: str) -> None:
        pass

    def window(self, done: int, total: int, images_per_s: float) -> None:
        pass

    def close(self) -> None:
        pass


Screen = Lines | Bar | Silent


def make_screen(rank: int, windows: int) -> Screen:
    """The one that suits this rank and its standard error."""
    if rank:
        return Silent()
    return Bar(windows) if sys.stderr.isatty() else Lines()
