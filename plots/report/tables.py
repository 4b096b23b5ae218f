"""The tables of a report: which columns each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.study.stats import Estimate
from plots.analyse.comparability import NO_BLOCK, is_emulated
from plots.analyse.comparison import Comparison
from plots.analyse.coverage import Gap
from plots.analyse.exchange import SHOWN
from plots.analyse.nodes import Drift
from plots.analyse.sessions import apart
from plots.analyse.steady_state import Trend
from plots.analyse.study import Analysis
from plots.analyse.trainings import Trained
from plots.read.calibrations import WHEN, Calibration
from plots.read.runs import Unusable
from plots.report.columns import Column
from plots.report.format import interval, ms, p_value, percent, rate, ratio, rule, seconds, short
from plots.report.verdicts import over, sentence, word


def _estimate(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: interval(e, form)


def marked(a: Analysis, columns: Sequence[Column]) -> tuple[Column, ...]:
    """With a column that says of each row whether compute slept in what it is made of."""

    def slept(row: Any) -> bool:
        if isinstance(row, Calibration):
            return is_emulated(row.facts)
        variant = getattr(getattr(row, "point", row), "variant", None)
        return bool(a.timelines) if variant is None else a.emulated(variant)

    return (*columns, Column(slept, key="emulated"))


_POINT = (
    Column("point.cell", "cell"),
    Column("point.words", "variant", key="variant"),
    Column("point.world_size", "ranks"),
)
_BATCH = (Column("point.samples_per_rank", "images per rank"), Column("point.samples_per_step"))

_FLAGS = Column("flags", "flags", lambda flags: "; ".join(flags) or "-")

THROUGHPUT = (
    Column("curve", "curve"),
    *_POINT,
    *_BATCH,
    Column("images_per_s", "images/s [95 %]", _estimate(rate)),
    Column("step_seconds", "step ms [95 %]", _estimate(ms)),
    Column("input_share", "waiting for input", percent),
    Column("busy_share", "cores busy", percent),
    Column("images_per_s.n", "n", key=""),
    Column("runs", "runs"),
    _FLAGS,
)

SCALING = (
    Column("curve", "curve"),
    *_POINT,
    Column("point.samples_per_rank"),
    Column("point.samples_per_step"),
    Column("kind", "baseline", key="baseline_kind"),
    Column("baseline"),
    Column("baseline_images_per_s"),
    Column("speedup", "speed-up [95 %]", _estimate(ratio)),
    Column("efficiency", "efficiency [95 %]", _estimate(percent)),
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
    """Every comparison with its verdict and the one interval that decides it."""
    several, name = len(a.comparisons) > 1, over(a.reference, a.candidate)

    def verdict(c: Comparison) -> str:
        return f"{'primary: ' if c.primary and several else ''}{sentence(c)}"

    return (
        Column(verdict, "verdict", each=True),  # first: a narrow screen shows no more
        *_WHERE,
        Column("curves", "curves"),
        Column("paired.ratio"),
        Column("estimate", name, _estimate(ratio), key=""),
        Column(lambda c: c.paired.interval(c.level), key="interval"),
        Column("level"),
        Column("paired.n", "n"),
        Column("paired.ratios"),
        Column("margin"),
        Column(word, key="verdict"),
        Column(sentence, key="verdict_text"),
        Column("unequal", key="unequal_environments"),
        Column("of_one_arm"),
        Column("primary"),
        Column("blocks_to_settle"),
        Column("chance", key="chance_at_max_blocks"),
        Column("another_day"),
    )


RAW = (
    Column("log", "log"),
    Column("cell", "cell"),
    Column("world_size", "ranks"),
    Column("samples_per_rank", "images per rank"),
    Column("block", "block", lambda block: "-" if block == NO_BLOCK else str(block)),
    Column("images_per_s", "images/s", rate),
)


def _apart(c: Comparison) -> tuple[str, ...]:
    """Each session's own ratio, where there are several."""
    sessions = list(apart(c.paired, c.sessions))
    return tuple(f"{name}: {short(e, ratio)}" for name, e in sessions) if sessions[1:] else ()


CHECKS = (
    *_WHERE,
    Column("paired.sd_log", "paired sd", percent),
    Column("half_width", key="half_width_ratio"),
    Column(lambda c: c.half_width if c.estimate.shown else None, "half-width", percent),
    Column("paired.role", "first one over second [95 %]", _estimate(ratio), key="role"),
    Column("median_ratio", "ratio of median steps", ratio),
    Column(_apart, "by session", "; ".join, key="sessions"),
    Column("paired.t"),
    Column("paired.t_p"),
    Column("paired.signflip_p", "sign flip p", p_value),
)

GAINS = (
    *_POINT,
    *_BATCH,
    Column("of_the_arm", "with"),
    Column("over", "over", key=""),
    Column("baseline.cell", key="baseline_cell"),
    Column("baseline.words", key="baseline_variant"),
    Column("ratio", "images/s, ratio [95 %]", _estimate(ratio)),
    Column("ratio.n", "n", key=""),
)

COSTS = (
    *_POINT,
    *_BATCH,
    Column("exposed_seconds", "exposed ms [95 %]", _estimate(ms)),
    Column("inflation_seconds", "inflation ms [95 %]", _estimate(ms)),
    Column("difference_seconds", "T(on) - T(off) ms [95 %]", _estimate(ms)),
)

BREAKDOWNS = (
    *_POINT,
    *_BATCH,
    *(Column(f"{part}_seconds", f"{part} ms", _estimate(ms)) for part in SHOWN),
    Column("step_seconds", "sum ms", _estimate(ms)),
    Column("undisturbed_seconds", "not observed ms", _estimate(ms)),
)

OVERLAPS = (
    *_POINT,
    *_BATCH,
    Column("overlapped_seconds", "overlapped ms [95 %]", _estimate(ms)),
    Column("blocking_seconds", "blocking ms [95 %]", _estimate(ms)),
    Column("ratio", "blocking / overlapped [95 %]", _estimate(ratio)),
    Column("ratio.n", "n", key=""),
)

EVIDENCE = (
    *_POINT,
    *_BATCH,
    Column(
        "seconds",
        "by its own instruments, ms a step",
        lambda times: "; ".join(f"`{name}` {interval(e, ms)}" for name, e in times.items()) or "-",
    ),
)

BOUNDS = (
    Column("curve", "curve"),
    *_POINT,
    *_BATCH,
    Column("gradient_bytes", "gradients MB", lambda size: f"{size / 1e6:,.1f}"),
    Column("exchange_seconds", "all-reduce alone ms", ms),
    Column("visible_efficiency", "efficiency, nothing hidden", percent),
    Column("hidden_efficiency", "efficiency, all hidden", percent),
)


def _plain_median(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: form(e.value) if e.low is None else interval(e, form)


TRAINED = (
    *_POINT,
    *_BATCH,
    Column("target", "target", rule),
    Column(lambda t: len(t.trainings), "trainings", key="trainings"),
    Column("reached", "reached it"),
    Column("epochs", "epochs, median [95 %]", _plain_median("{:g}".format)),
    Column("seconds", "seconds, median [95 %]", _plain_median(seconds)),
    Column("mean", "mean s", seconds, key="seconds_mean"),
    Column("olympic", "Olympic mean s", seconds, key="seconds_olympic_mean"),
    Column("fastest", "fastest s", seconds, key="seconds_min"),
    Column("slowest", "slowest s", seconds, key="seconds_max"),
    Column("accuracy", "right at the end [95 %]", _estimate(percent)),
    Column("lowest", "least", percent, key="accuracy_min"),
    Column("highest", "most", percent, key="accuracy_max"),
)

SERVED = (
    *_POINT,
    Column("point.samples_per_rank", "images per rank"),
    Column("servers", "servers"),
    Column("updates", "updates", "{:,}".format),
    Column("mean_staleness", "staleness, mean", "{:.3g}".format),
    Column("most_stale", "most"),
    Column("slowest", "slowest rank, images/s [95 %]", _estimate(rate)),
    Column("mean", "mean of ranks, images/s [95 %]", _estimate(rate)),
    Column("least", "worst rank, right [95 %]", _estimate(percent)),
    Column("right", "mean of ranks, right [95 %]", _estimate(percent)),
    Column("staleness", key="staleness"),
)

_FIRST_EPOCHS = 10
_LATER_EPOCHS = (15, 20, 30, 40, 50, 60, 80, 100, 150, 200)  # that a page has room for


def by_epoch(trained: Sequence[Trained]) -> tuple[Column, ...]:
    """Mean accuracy after the first epochs and some later ones; empty where no point has any."""
    most = max((len(t.means) for t in trained), default=0)
    epochs = [*range(1, _FIRST_EPOCHS + 1), *_LATER_EPOCHS]
    shown = sorted({epoch for epoch in epochs if epoch <= most} | ({most} - {0}))
    after = (Column(partial(_after, epoch), f"after {epoch}", percent) for epoch in shown)
    return (*_POINT, *_BATCH, *after) if shown else ()


def _after(epoch: int, trained: Trained) -> float | None:
    return trained.means[epoch - 1] if epoch <= len(trained.means) else None


PIPELINES = (
    Column("dataset", "data set"),
    Column("samples_per_rank", "images per batch"),
    Column("num_workers", "data-loading processes"),
    Column("words", "variant", key="variant"),
    Column("images_per_s", "images/s [95 %]", _estimate(rate)),
    Column("images_per_s.n", "n", key=""),
    Column("runs", "runs"),
)


def _missing_blocks(gap: Gap) -> str:
    return ", ".join(map(str, gap.missing)) if len(gap.missing) < gap.planned else "all"


GAPS = (
    Column("curve", "curve"),
    *_POINT,
    *_BATCH,
    Column("planned", "launches planned", key="blocks_planned"),
    Column(lambda gap: gap.planned - len(gap.missing), "with usable runs"),
    Column("missing", key="blocks_missing"),
    Column(_missing_blocks, "missing"),
)


TOO_FEW = "too few steps to judge"
STEP_TIMES = (
    *_POINT,
    *_BATCH,
    Column("runs", "runs"),
    Column("steps_per_run", "steps per run"),
    Column("median_seconds", "median ms", _plain_median(ms)),
    Column("p95_seconds", "p95 ms", _plain_median(ms)),
    Column("p99_seconds", "p99 ms", _plain_median(ms)),
    Column("outlier_steps", "outliers"),
    Column("not_steady_runs"),
    Column("judged_runs"),
    Column(lambda s: s.not_steady_runs if s.judged_runs else TOO_FEW, "not steady", key=""),
)


def _trend(t: Trend) -> str:
    if t.over_first is None:
        return TOO_FEW
    return "still changes" if t.changes else "-"


TRENDS = (
    Column("cell", "cell"),
    Column("runs", "runs"),
    Column("judged_runs", "judged"),
    Column(lambda t: t.over_first and t.over_first.estimate, key="last_over_first"),
    Column(
        lambda t: t.over_first and t.over_first.estimate,
        "last window over first [95 %]",
        _estimate(ratio),
        key="",
    ),
    Column(lambda t: t.over_first and t.over_first.t_p, "p", p_value, key="p"),
    Column("holm_p", "Holm p", p_value),
    Column("changes"),
    Column(_trend, "flag", key=""),
)

NODES = (
    Column("node"),
    Column("unit", "node"),
    Column("samples_per_step", "images per step"),
    Column("images_per_s", "images/s, median", rate),
    Column("relative", "of the median node", percent),
    Column("score", "modified z", lambda z: f"{z:.1f}"),
    Column("calibrations", "calibrations"),
    Column("slow", "flag", lambda slow: "slow" if slow else "-"),
)


def _drift(d: Drift) -> str:
    return "drift" if d.warn else "-" if d.most_p is not None else "not judged"


DRIFT = (
    Column("job", "job"),
    Column("allocation", "allocation"),
    Column("nodes", "nodes"),
    Column("ratio", "end / start", ratio),
    Column("most_node", "node that changed most"),
    Column("most_ratio", "its end / start", ratio),
    Column("most_p", "p", p_value),
    Column("warn"),
    Column(_drift, "flag", key=""),
)

CALIBRATIONS = (
    Column("job", "job"),
    Column("allocation", "allocation"),
    Column("when", " or ".join(WHEN)),
    Column("node", "node", lambda node: node or "all"),
    Column("host"),
    Column("gpu"),
    Column(lambda one: one.samples_per_step if one.usable else None, key="samples_per_step"),
    Column(lambda one: one.images_per_s if one.usable else None, key="images_per_s"),
    Column("reason", "reason", lambda reason: " ".join(reason.split())),
    Column("log"),
)

NOT_COMPARED = (Column("pair", key="what"), Column("reason"))


def _why(log: Unusable) -> str:
    return "<br>".join([log.reason, *(words for words in log.words if words not in log.reason)])


LOGS = (
    Column("log", "log", lambda name: f"`{name}`"),
    Column("state", "state"),
    Column("cell"),
    Column("reason"),
    Column("words"),
    Column(_why, "reason"),
)
