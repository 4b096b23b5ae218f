"""How often a run that is not steady is flagged: `python -m tests.plots.steadiness` (simulation).

Steps are lognormal around a true course, with a sd of 3 % as measured on two shared cores, and
autocorrelated where it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from plots.analyse import steady_state

SD, SEED, DRAWS, CELLS = 0.03, 2025, 1000, 400
SHORT, LONG = (3, 7), (5, 40)  # windows and steps in each, of study `local` and of `weak`
RUNS = 24  # of one framework in eight blocks of study `local`
HALF_LIFE = 5  # steps
Logs = np.ndarray[Any, np.dtype[np.float64]]
Course = Callable[[int], Logs]  # log of the true seconds of every step


def _steady(n: int) -> Logs:
    return np.zeros(n)


def _warming(bias: float) -> Course:
    """A warm-up that is left in the windows and makes the mean step longer by `bias`."""

    def course(n: int) -> Logs:
        shape = 0.5 ** (np.arange(n) / HALF_LIFE)
        left: Logs = np.log1p(bias * shape / shape.mean())
        return left

    return course


def _drifting(whole: float) -> Course:
    return lambda n: np.linspace(0, np.log1p(whole), n)


SCENES: dict[str, tuple[Course, float]] = {  # and the autocorrelation of neighbouring steps
    "nothing": (_steady, 0.0),
    "nothing, autocorrelation 0.3": (_steady, 0.3),
    "nothing, autocorrelation 0.6": (_steady, 0.6),
    "a warm-up that makes the mean 1.4 % longer": (_warming(0.014), 0.0),
    "a warm-up that makes the mean 2.7 % longer": (_warming(0.027), 0.0),
    "the same, autocorrelation 0.6": (_warming(0.027), 0.6),
    "a drift of 4 % from end to end": (_drifting(0.04), 0.0),
}


def draw(course: Course, rho: float, runs: int, steps: int) -> Logs:
    """Seconds of every step, shape (runs, steps)."""
    fresh = np.random.default_rng(SEED).normal(0, SD, (runs, steps))
    noise = fresh.copy()
    for i in range(1, steps):  # AR(1) of the same sd
        noise[:, i] = rho * noise[:, i - 1] + np.sqrt(1 - rho**2) * fresh[:, i]
    seconds: Logs = np.exp(course(steps) + noise)
    return seconds


def flagged(scene: str, shape: tuple[int, int], draws: int) -> float:
    """Share of single runs that are called not steady."""
    runs = draw(*SCENES[scene], draws, shape[0] * shape[1])
    return float(np.mean([not steady_state.judge(run).steady for run in runs]))


def found(scene: str, shape: tuple[int, int], cells: int) -> float:
    """Share of cells of RUNS runs whose pooled trend is called a change."""
    windows = draw(*SCENES[scene], cells * RUNS, shape[0] * shape[1]).reshape(-1, *shape)
    seconds = windows.mean(axis=2)
    ratios = seconds[:, -1] / seconds[:, 0]
    frame = pd.DataFrame({"cell": "a/b", "judged": True, "last_over_first": ratios})
    each = (frame[i * RUNS : (i + 1) * RUNS] for i in range(cells))
    told = (steady_state.trends(rows)[0] for rows in each)
    return float(np.mean([trend.changes for trend in told]))


def row(scene: str) -> str:
    """One line of the table in plots/README.md."""
    shares = (flagged(scene, SHORT, DRAWS), flagged(scene, LONG, DRAWS), found(scene, SHORT, CELLS))
    return f"| {scene} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |"


def table() -> Iterator[str]:
    steps = [windows * each for windows, each in (SHORT, LONG)]
    head = [f"a run of {n} steps is flagged" for n in steps]
    yield f"| what is true | {' | '.join(head)} | {RUNS} runs of {steps[0]} steps, pooled |"
    yield "| --- | --- | --- | --- |"
    yield from map(row, SCENES)


if __name__ == "__main__":
    print("\n".join(table()))
