"""Trainings to a target: how many reached it, after how many epochs and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import pandas as pd

from bench.record import Run
from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse.points import Point, by_point

_FEWEST_OLYMPIC = 3  # of fewer, nothing is left between the fastest and the slowest


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training from new weights, epoch by epoch."""

    log: str
    seed: int  # of its run
    index: int  # in its run
    seconds: tuple[float, ...]  # cumulative; without the judging
    accuracies: tuple[float, ...]  # shares of the held-out samples
    losses: tuple[float, ...]  # means of the epochs' steps
    reached: bool


@dataclass(frozen=True, kw_only=True)
class Trained:
    """All trainings at one point. Seconds and epochs are of those that reached the target."""

    point: Point
    target: float | None
    trainings: tuple[Training, ...]
    seconds: Estimate | None  # median
    epochs: Estimate | None  # median
    accuracy: Estimate  # mean of the last epochs

    @property
    def reached(self) -> int | None:
        """How many reached the target; None where there is none."""
        return None if self.target is None else len(self._seconds)

    @property
    def fastest(self) -> float | None:
        return min(self._seconds, default=None)

    @property
    def slowest(self) -> float | None:
        return max(self._seconds, default=None)

    @property
    def mean(self) -> float | None:
        return float(np.mean(self._seconds)) if self._seconds else None

    @property
    def olympic(self) -> float | None:
        """One that failed counts as the slowest, as in MLPerf; of several there is none."""
        failed = [math.inf] * (len(self.trainings) - len(self._seconds))
        return olympic_mean([*self._seconds, *failed]) if len(failed) <= 1 else None

    @property
    def lowest(self) -> float:
        return min(t.accuracies[-1] for t in self.trainings)

    @property
    def highest(self) -> float:
        return max(t.accuracies[-1] for t in self.trainings)

    @property
    def means(self) -> list[float]:
        """Mean accuracy after each epoch; none where a target ends some trainings before others, as
        the mean of those that are left would be of other trainings.
        """
        if self.target is not None:
            return []
        of_each = zip(*(t.accuracies for t in self.trainings), strict=True)
        return [float(np.mean(shares)) for shares in of_each]

    @property
    def usual(self) -> Training:
        """The one that took the median time (the lower of two) to its end, if it can be among
        those that reached the target.
        """
        trainings = [t for t in self.trainings if t.reached] or list(self.trainings)
        return sorted(trainings, key=lambda t: t.seconds[-1])[(len(trainings) - 1) // 2]

    @property
    def _seconds(self) -> list[float]:
        return [t.seconds[-1] for t in self.trainings if t.reached]


def olympic_mean(values: Sequence[float]) -> float | None:
    """Mean without the smallest and the largest, as MLPerf scores runs; None of fewer than three
    (Mattson et al. 2020, MLPerf training benchmark, section 3.2.2).
    """
    return float(np.mean(sorted(values)[1:-1])) if len(values) >= _FEWEST_OLYMPIC else None


def of_run(run: Run) -> tuple[Training, ...]:
    """The trainings of a usable log; none where it did not ask for any."""
    assert run.config is not None
    epochs = [event for event in run.events if event["event"] == "epoch"]
    return tuple(
        _training(run, index, list(group))
        for index, group in groupby(epochs, key=lambda event: int(event["training"]))
    )


def _training(run: Run, index: int, epochs: Sequence[Any]) -> Training:
    assert run.config is not None
    last = epochs[-1]
    return Training(
        log=run.path.name,
        seed=run.config.seed,
        index=index,
        seconds=tuple(accumulate(event["seconds"] for event in epochs)),
        accuracies=tuple(event["correct"] / event["held_out"] for event in epochs),
        losses=tuple(float(event["loss"]) for event in epochs),
        reached=run.config.reaches(last["correct"], last["held_out"]),
    )


def summarise(runs: pd.DataFrame) -> Iterator[Trained]:
    """Point by point; runs that were not asked for trainings are left out."""
    for point, rows in by_point(runs):
        # one of the same seed is the same training: counted twice, n would be too large
        of_seed = {(t.seed, t.index): t for group in rows["trainings"][::-1] for t in group}
        trainings = tuple(of_seed[key] for key in sorted(of_seed))
        if not trainings:
            continue
        done = [t for t in trainings if t.reached]
        target = rows["facts"].iloc[0].get("target", "None")
        yield Trained(
            point=point,
            target=None if target == "None" else float(target),
            trainings=trainings,
            seconds=stats.median_estimate([t.seconds[-1] for t in done]) if done else None,
            epochs=stats.median_estimate([len(t.seconds) for t in done]) if done else None,
            accuracy=stats.arithmetic_mean([t.accuracies[-1] for t in trainings]),
        )


def by_epoch(trained: Sequence[Trained]) -> pd.DataFrame:
    """A row an epoch of every training, unrounded."""
    rows = [
        {
            **one.point._asdict(),
            "variant": ", ".join(one.point.words),
            "log": training.log,
            "training": training.index,
            "epoch": epoch,
            "seconds": seconds,
            "accuracy": accuracy,
            "loss": loss,
        }
        for one in trained
        for training in one.trainings
        for epoch, (seconds, accuracy, loss) in enumerate(
            zip(training.seconds, training.accuracies, training.losses, strict=True), 1
        )
    ]
    return pd.DataFrame(rows)


def dawnbench(training: Training) -> str:
    """DAWNBench's TSV: epoch, cumulative hours without validation, held-out accuracy in percent."""
    lines = ["epoch\thours\ttop1Accuracy"]
    epochs = zip(training.seconds, training.accuracies, strict=True)
    for epoch, (seconds, share) in enumerate(epochs, 1):
        lines.append(f"{epoch}\t{seconds / 3600!r}\t{100 * share!r}")
    return "\n".join(lines) + "\n"
