"""Progress of a run, shown by rank 0: a bar on a terminal, plain lines in a batch log."""

from __future__ import annotations

import math
import sys
import time
from statistics import harmonic_mean

from bench.config import RunConfig
from bench.streams import say


def quantity(value: float) -> str:
    """Write a number for people: 261,400, 29.1 or 0.0123; four digits from 1,000 on, else three."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = 4 if abs(value) >= 999.5 else 3
    value = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def opening(config: RunConfig) -> str:
    """Describe what the run will do, to be said before anything slow is loaded."""
    work = f"{config.cell}, {_ranks(config)}, {config.model}"
    images = f"{config.image_size} px, {config.samples_per_rank} images per rank"
    images += f", compute emulated by {config.emulate.name}" if config.emulate else ""
    steps = f"{config.warmup_steps} + {config.windows} x {config.steps_per_window} steps"
    if config.epochs is not None:
        to = "" if config.target is None else f" or {100 * config.target:g} % right"
        steps += f", then {config.trainings} training(s) of {config.epochs} epochs{to}"
    return f"{work} at {images}, {steps}; loading torch ..."


def _ranks(config: RunConfig) -> str:
    return f"{config.world_size} rank{'s' if config.world_size > 1 else ''}"


def result(config: RunConfig, rates: list[float], loss: float | None, failed: list[str]) -> str:
    """Write the last line: images/s of a run (harmonic mean of equal windows) and their spread."""
    spread = f"{quantity(min(rates))} to {quantity(max(rates))}"
    line = f"{quantity(harmonic_mean(rates))} images/s (windows {spread}), {_ranks(config)}"
    if loss is None:
        line += ", compute emulated"
    else:
        line += f", loss {quantity(loss)}"
    line += f", FAILED CHECKS {', '.join(failed)}" if failed else ""
    if {"loss_finite", "loss_bounded"} & {*failed}:
        line += " (use --max-lr, --lr-warmup-steps or a lower --base-lr)"
    log = f"log {config.log_path}" if config.log_path else "no --log-path given, nothing kept"
    return f"{line}; {log}"


class Screen:
    """What a run shows of itself; this one, of ranks other than 0, shows nothing."""

    def phase(self, name: str) -> None:
        """Show that the run enters a phase."""

    def window(self, done: int, total: int, images_per_s: float) -> None:
        """Show that a window has ended."""

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        """Show that an epoch of a training has been judged; both are counted from 0."""

    def close(self) -> None:
        """End the display; nothing more will be shown."""


class Lines(Screen):
    """One line per phase and per window on standard error."""

    def phase(self, name: str) -> None:
        say(name)

    def window(self, done: int, total: int, images_per_s: float) -> None:
        say(f"window {done}/{total}: {quantity(images_per_s)} images/s")

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        say(f"training {training + 1}, epoch {epoch + 1}: {100 * accuracy:.2f} % right")


class Bar(Screen):
    """A bar with an estimate, redrawn between windows only: inside, it would be measured."""

    def __init__(self, config: RunConfig) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            "{task.description}",
            progress.BarColumn(),
            "{task.completed}/{task.total} {task.fields[unit]}",
            "{task.fields[rate]}",
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            get_time=time.monotonic,
        )
        self._epochs = config.epochs or 0
        self._all_epochs = self._epochs * config.trainings
        self._task = self._progress.add_task("", total=config.windows, unit="windows", rate="")

    def phase(self, name: str) -> None:
        self._progress.start()
        self._progress.update(self._task, description=name, refresh=True)

    def window(self, done: int, total: int, images_per_s: float) -> None:
        rate = f"{quantity(images_per_s)} images/s"
        self._progress.update(
            self._task, description="window", completed=done, total=total, rate=rate, refresh=True
        )

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        if not training and not epoch:
            self._progress.reset(self._task, total=self._all_epochs, unit="epochs at most")
        # a training that reached its target has skipped the rest of its own
        done, rate = training * self._epochs + epoch + 1, f"{100 * accuracy:.2f} % right"
        self._progress.update(self._task, completed=done, rate=rate, refresh=True)

    def close(self) -> None:
        self._progress.stop()


def make_screen(rank: int, config: RunConfig) -> Screen:
    """Make a rank's screen: a bar on a terminal, else lines; ranks other than 0 show nothing."""
    if rank:
        return Screen()
    return Bar(config) if sys.stderr.isatty() else Lines()
