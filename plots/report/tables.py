"""The tables of what a study compares: which columns each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.study.stats import Estimate
from bench.study.verdict import Comparison
from plots.analyse.exchange import SHOWN
from bench.study.points import PointRow
from bench.study.sessions import apart
from plots.analyse.study import Analysis
from plots.report.columns import Column
from plots.report.format import (
    giga,
    interval,
    megabytes,
    ms,
    p_value,
    percent,
    rate,
    ratio,
    rule,
    seconds,
    short,
)
from plots.report.verdicts import over, sentence, word


def with_interval(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: interval(e, form)


def plain_median(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: form(e.value) if e.low is None else interval(e, form)


def marked(a: Analysis, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Add a column that says of each row whether compute slept in the runs behind it."""

    def slept(row: Any) -> bool:
        variant = getattr(getattr(row, "point", row), "variant", None)
        return bool(a.timelines) if variant is None else a.emulated(variant)

    return (*columns, Column(slept, key="emulated"))


POINT = (
    Column("point.cell", "cell"),
    Column("point.words", "variant", key="variant"),
    Column("point.world_size", "ranks"),
)
BATCH = (Column("point.samples_per_rank", "images per rank"), Column("point.samples_per_step"))

_FLAGS = Column("flags", "flags", lambda flags: "; ".join(flags) or "-")

_RESOURCES = (
    Column("rank_memory_bytes", "rank's memory MB [95 %]", with_interval(megabytes)),
    Column("device_memory_bytes", "device memory MB [95 %]", with_interval(megabytes)),
    Column("flops_per_s_and_rank", "rank's GFLOP/s [95 %]", with_interval(giga)),
    Column("flop_utilisation", "of peak [95 %]", with_interval(percent)),
)


def throughput(a: Analysis) -> tuple[Column, ...]:
    """Choose columns of speed, and of the other resources of a point that any log tells of."""
    known = (c for c in _RESOURCES if any(c.values(a.throughput)))
    return (
        Column("curve", "curve"),
        *POINT,
        *BATCH,
        Column("images_per_s", "images/s [95 %]", with_interval(rate)),
        Column("step_seconds", "step ms [95 %]", with_interval(ms)),
        *known,
        Column("input_share", "waiting for input", percent),
        Column("busy_share", "cores busy", percent),
        Column("images_per_s.n", "n", key=""),
        Column("runs", "runs"),
        _FLAGS,
    )


SCALING = (
    Column("curve", "curve"),
    *POINT,
    Column("point.samples_per_rank"),
    Column("point.samples_per_step"),
    Column("kind", "baseline", key="baseline_kind"),
    Column("baseline"),
    Column("baseline_images_per_s"),
    Column("speedup", "speed-up [95 %]", with_interval(ratio)),
    Column("efficiency", "efficiency [95 %]", with_interval(percent)),
    Column("step_overhead_seconds", "step overhead ms", lambda s: f"{1000 * s:+,.1f}"),
    Column("paired", key="paired_by_block"),
    Column("efficiency.n", "n", key=""),
    _FLAGS,
)

_WHERE = (
    Column("reference"),
    Column("candidate"),
    Column("world_size", "ranks"),
    Column("samples_per_rank", "images per rank"),
    Column("samples_per_step"),
    Column("transport", "transport"),
    Column("words", "variant", key="variant"),
)


def ratios(a: Analysis) -> tuple[Column, ...]:
    """Choose columns that show each comparison's verdict and the one interval that decides it."""
    several, name = len(a.comparisons) > 1, over(a.reference, a.candidate)

    def verdict(c: Comparison) -> str:
        return f"{'primary: ' if c.primary and several else ''}{sentence(c)}"

    return (
        Column(verdict, "verdict", each=True),  # first: a narrow screen shows no more
        *_WHERE,
        Column("curves", "curves"),
        Column("paired.ratio"),
        Column("estimate", name, with_interval(ratio), key=""),
        Column(lambda c: c.paired.interval(c.level), key="interval"),
        Column("level"),
        Column("paired.n", "n"),
        Column("paired.ratios"),
        Column("margin"),
        Column(word, key="verdict"),
        Column(sentence, key="verdict_text"),
        Column("of_one_arm"),
        Column("primary"),
        Column("blocks_to_settle"),
        Column("chance", key="chance_at_max_blocks"),
        Column("another_day"),
    )


def _apart(c: Comparison) -> tuple[str, ...]:
    """Describe each session's own ratio, where there are several."""
    sessions = list(apart(c.paired, c.sessions))
    return tuple(f"{name}: {short(e, ratio)}" for name, e in sessions) if sessions[1:] else ()


CHECKS = (
    *_WHERE,
    Column("paired.sd_log", "paired sd", percent),
    Column("half_width", key="half_width_ratio"),
    Column(lambda c: c.half_width if c.estimate.shown else None, "half-width", percent),
    Column("paired.role", "first one over second [95 %]", with_interval(ratio), key="role"),
    Column("median_ratio", "ratio of median steps", ratio),
    Column(_apart, "by session", "; ".join, key="sessions"),
    Column("paired.t"),
    Column("paired.t_p"),
    Column("paired.signflip_p", "sign flip p", p_value),
)

GAINS = (
    *POINT,
    *BATCH,
    Column("of_the_arm", "with"),
    Column("over", "over", key=""),
    Column("baseline.cell", key="baseline_cell"),
    Column("baseline.words", key="baseline_variant"),
    Column("ratio", "images/s, ratio [95 %]", with_interval(ratio)),
    Column("ratio.n", "n", key=""),
)

COSTS = (
    *POINT,
    *BATCH,
    Column("exposed_seconds", "exposed ms [95 %]", with_interval(ms)),
    Column("inflation_seconds", "inflation ms [95 %]", with_interval(ms)),
    Column("difference_seconds", "T(on) - T(off) ms [95 %]", with_interval(ms)),
)

BREAKDOWNS = (
    *POINT,
    *BATCH,
    *(Column(f"{part}_seconds", f"{part} ms", with_interval(ms)) for part in SHOWN),
    Column("step_seconds", "sum ms", with_interval(ms)),
    Column("undisturbed_seconds", "not observed ms", with_interval(ms)),
)

OVERLAPS = (
    *POINT,
    *BATCH,
    Column("overlapped_seconds", "overlapped ms [95 %]", with_interval(ms)),
    Column("blocking_seconds", "blocking ms [95 %]", with_interval(ms)),
    Column("ratio", "blocking / overlapped [95 %]", with_interval(ratio)),
    Column("ratio.n", "n", key=""),
)


BOUNDS = (
    Column("curve", "curve"),
    *POINT,
    *BATCH,
    Column("gradient_bytes", "gradients MB", megabytes),
    Column("exchange_seconds", "all-reduce alone ms", ms),
    Column("visible_efficiency", "efficiency, nothing hidden", percent),
    Column("hidden_efficiency", "efficiency, all hidden", percent),
)


TRAINED = (
    *POINT,
    *BATCH,
    Column("target", "target", rule),
    Column(lambda t: len(t.trainings), "trainings", key="trainings"),
    Column("reached", "reached it"),
    Column("epochs", "epochs, median [95 %]", plain_median("{:g}".format)),
    Column("seconds", "seconds, median [95 %]", plain_median(seconds)),
    Column("mean", "mean s", seconds, key="seconds_mean"),
    Column("olympic", "Olympic mean s", seconds, key="seconds_olympic_mean"),
    Column("fastest", "fastest s", seconds, key="seconds_min"),
    Column("slowest", "slowest s", seconds, key="seconds_max"),
    Column("accuracy", "right at the end [95 %]", with_interval(percent)),
    Column("lowest", "least", percent, key="accuracy_min"),
    Column("highest", "most", percent, key="accuracy_max"),
)

SERVED = (
    *POINT,
    Column("point.samples_per_rank", "images per rank"),
    Column("slowest", "slowest rank, images/s [95 %]", with_interval(rate)),
    Column("mean", "mean of ranks, images/s [95 %]", with_interval(rate)),
    Column("least", "worst rank, right [95 %]", with_interval(percent)),
    Column("right", "mean of ranks, right [95 %]", with_interval(percent)),
)

_FIRST_EPOCHS = 10
_LATER_EPOCHS = (15, 20, 30, 40, 50, 60, 80, 100, 150, 200)  # that a page has room for


def by_epoch(a: Analysis) -> tuple[Column, ...]:
    """Show mean accuracy after the first and some later epochs; empty where no point has any."""
    most = max((len(t.means) for t in a.trained), default=0)
    epochs = [*range(1, _FIRST_EPOCHS + 1), *_LATER_EPOCHS]
    shown = sorted({epoch for epoch in epochs if epoch <= most} | ({most} - {0}))
    after = (Column(partial(_after, epoch), f"after {epoch}", percent) for epoch in shown)
    return (*POINT, *BATCH, *after) if shown else ()


def _after(epoch: int, trained: PointRow) -> float | None:
    return trained.means[epoch - 1] if epoch <= len(trained.means) else None
