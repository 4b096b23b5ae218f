"""What a run prints: its opening and its result; a broken stream does not end the run."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from statistics import harmonic_mean

from bench.config import RunConfig


def say(text: str) -> None:
    """Print lines for people on standard error; drop what cannot be written there."""
    _write(2, text)


def answer(line: str) -> None:
    """Print lines for scripts on standard output; drop what cannot be written there."""
    with suppress(AttributeError, OSError, ValueError):  # closed before Python began, or since
        sys.stdout.flush()  # what the user's own code printed stands before it
    _write(1, line)


def _write(stream: int, text: str) -> None:
    """Write a text to file descriptor `stream` in one call, with unprintable characters escaped."""
    safe = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    with suppress(OSError):
        os.write(stream, f"{safe}\n".encode(errors="backslashreplace"))


def quantity(value: float) -> str:
    """Write a number for people: 261,400, 29.1 or 0.0123; four digits from 1,000 on, else three."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = 4 if abs(value) >= 999.5 else 3
    value = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def opening(config: RunConfig) -> str:
    """Return a line that describes the run, to be printed before torch is loaded."""
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
    """Return a run's last line: its windows' images/s, loss (None: emulated) and failed checks."""
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
