"""Trainings to a target accuracy: how many reached it, after how many epochs and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.study import stats
from bench.study.definition import Point
from bench.study.points import by_point
from bench.study.rows import Training
from bench.study.stats import Estimate


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The trainings of a point. Seconds and epochs are of trainings that reached the target."""

    point: Point
    target: float | None
    trainings: tuple[Training, ...]
    reached: int | None
    seconds: Estimate | None  # the median
    epochs: Estimate | None
    fastest: float | None
    slowest: float | None
    mean: float | None
    olympic: float | None
    accuracy: Estimate  # of all at their last epoch
    lowest: float
    highest: float
    usual: Training


@dataclass(frozen=True, kw_only=True)
class RankPaces:
    """Images/s and held-out accuracy (0 to 1) of ranks whose backend can be asynchronous."""

    point: Point
    slowest: Estimate  # images/s of each run's slowest rank, by its own steps
    mean: Estimate  # of its ranks
    least: Estimate | None  # share of held-out samples that each training's worst rank had right
    right: Estimate | None  # and its ranks


def summarise(runs: pd.DataFrame) -> Iterator[Trained]:
    """Yield a summary of each point that has trainings. A repeated training counts once."""
    for point, rows in by_point(runs):
        # one of the same seed is the same training: counted twice, n would be too large
        of_seed = {(t.seed, t.index): t for group in rows["trainings"][::-1] for t in group}
        trainings = tuple(of_seed[key] for key in sorted(of_seed))
        if not trainings:
            continue
        done = [t for t in trainings if t.reached]
        seconds, last = [t.seconds[-1] for t in done], [t.accuracies[-1] for t in trainings]
        ended = done or trainings
        text = rows["facts"].iloc[0].get("target", "None")
        target = None if text == "None" else float(text)
        # without the fastest and the slowest, as MLPerf scores runs (Mattson et al. 2020, 3.2.2):
        # one that failed counts as the slowest, of several there is no mean
        failed = [math.inf] * (len(trainings) - len(done))
        between = sorted([*seconds, *failed])[1:-1] if len(failed) <= 1 else []
        yield Trained(
            point=point,
            target=target,
            trainings=trainings,
            reached=None if target is None else len(done),
            seconds=stats.median_estimate(seconds) if done else None,
            epochs=stats.median_estimate([len(t.seconds) for t in done]) if done else None,
            fastest=min(seconds, default=None),
            slowest=max(seconds, default=None),
            mean=float(np.mean(seconds)) if done else None,
            olympic=float(np.mean(between)) if between else None,
            accuracy=stats.arithmetic_mean(last),
            lowest=min(last),
            highest=max(last),
            # the lower of two that took the median time to their ends
            usual=sorted(ended, key=lambda t: t.seconds[-1])[(len(ended) - 1) // 2],
        )


def summarise_ranks(runs: pd.DataFrame) -> Iterator[RankPaces]:
    """Yield speed and accuracy by rank of each point whose backend can be asynchronous."""
    for point, rows in by_point(runs):
        records = [one for one in rows["served"] if one]
        if not records:
            continue
        right = [shares for one in records for shares in one["right"]]
        rates = [one["images_per_s"] for one in records]
        yield RankPaces(
            point=point,
            slowest=stats.arithmetic_mean([min(each) for each in rates]),
            mean=stats.arithmetic_mean([float(np.mean(each)) for each in rates]),
            least=stats.arithmetic_mean([float(min(s)) for s in right]) if right else None,
            right=stats.arithmetic_mean([float(np.mean(s)) for s in right]) if right else None,
        )


def by_epoch(trained: Sequence[Trained]) -> pd.DataFrame:
    """Make a table with a row for each epoch of every training, unrounded."""
    each = ((one.point, training) for one in trained for training in one.trainings)
    tables = []
    for point, t in each:
        epochs = range(1, 1 + len(t.seconds))
        numbers = {"seconds": t.seconds, "accuracy": t.accuracies, "loss": t.losses}
        place = {**point._asdict(), "log": t.log, "training": t.index, "epoch": epochs}
        tables.append(pd.DataFrame(place | numbers))
    return pd.concat(tables, ignore_index=True)


def dawnbench(training: Training) -> str:
    """Make DAWNBench's TSV: epoch, cumulative hours without validation, held-out accuracy in %."""
    epochs = enumerate(zip(training.seconds, training.accuracies, strict=True), 1)
    lines = (
        f"{epoch}\t{seconds / 3600!r}\t{100 * share!r}\n" for epoch, (seconds, share) in epochs
    )
    return "".join(["epoch\thours\ttop1Accuracy\n", *lines])
