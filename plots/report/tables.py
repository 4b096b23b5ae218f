"""The tables of a report: which columns each has."""

from __future__ import annotations

from collections.abc import Callable

from bench.study.stats import Estimate
from plots.analyse.comparison import VISIBLE_EFFECT, Comparison
from plots.analyse.coverage import Gap
from plots.analyse.points import NO_SETTINGS, describe
from plots.analyse.study import Analysis
from plots.read.calibrations import WHEN
from plots.read.runs import Unusable
from plots.report.columns import Column, column
from plots.report.format import interval, ms, p_value, percent, rate, ratio, rule
from plots.report.verdicts import over, sentence


def _estimate(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: interval(e, form)


def _flags(flags: tuple[str, ...]) -> str:
    return "; ".join(flags) or "-"


_POINT = (
    column("point.cell", "cell"),
    column("point.settings", "settings", lambda said: "-" if said == NO_SETTINGS else said),
    column("point.variant", "variant", sparse=True),
    column("point.world_size", "ranks"),
)
_BATCH = (column("point.samples_per_rank", "images per rank"), column("point.samples_per_step"))

THROUGHPUT = (
    column("curve", "curve"),
    *_POINT,
    *_BATCH,
    column("images_per_s", "images/s [95 %]", _estimate(rate)),
    column("step_seconds", "step ms [95 %]", _estimate(ms)),
    column("input_share", "waiting for input", percent, sparse=True),
    column("images_per_s.n", "n", key=""),
    column("runs", "runs"),
    column("flags", "flags", _flags),
)

SCALING = (
    column("curve", "curve"),
    *_POINT,
    column("point.samples_per_rank"),
    column("point.samples_per_step"),
    column("kind", key="baseline_kind"),
    column("baseline"),
    column(lambda s: f"{s.kind}: {describe(s.baseline)}", "baseline"),
    column("baseline_images_per_s", "baseline images/s", _estimate(rate)),
    column("speedup", "speed-up [95 %]", _estimate(ratio)),
    column("efficiency", "efficiency [95 %]", _estimate(percent)),
    column("step_overhead_seconds", "step overhead ms", lambda s: f"{1000 * s:+,.1f}"),
    column("paired", key="paired_by_block"),
    column("efficiency.n", "n", key=""),
    column("flags", "flags", _flags),
)

_WHERE = (
    column("reference"),
    column("candidate"),
    column("world_size", "ranks"),
    column("samples_per_rank", "images per rank"),
    column("samples_per_step"),
    column("transport", "transport"),
    column("settings", "settings"),
    column("variant", "variant", sparse=True),
)


def ratios(a: Analysis) -> tuple[Column, ...]:
    """Every comparison with its verdict."""
    margin = a.loaded.study.margin

    def said(c: Comparison) -> str:
        return sentence(c, margin, a.tests)

    return (
        *_WHERE,
        column("curves", "curves"),
        column("paired.ratio"),
        column(
            "paired.estimate", f"{over(a.reference, a.candidate)} [95 %]", _estimate(ratio), key=""
        ),
        column("paired.ci95"),
        column(
            lambda c: c.paired.ci90 if c.paired.estimate.shown else None,
            "90 % interval",
            lambda ends: f"[{ratio(ends[0])}, {ratio(ends[1])}]",
        ),
        column("paired.ci90"),
        column("paired.n", "n"),
        column("paired.ratios"),
        column(lambda c: margin, key="margin"),
        column("verdict"),
        column(said, key="verdict_text"),
        column(lambda c: f"{'primary: ' if c.primary else ''}{said(c)}", "verdict"),
        column("unequal", key="unequal_environments"),
        column("primary"),
        column("blocks_to_settle"),
    )


CHECKS = (
    *_WHERE,
    column("paired.sd_log", "paired sd", percent),
    column("half_width", key="half_width_ratio"),
    column(lambda c: c.half_width if c.paired.estimate.shown else None, "half-width", percent),
    column(
        "blocks_for_visible_effect",
        f"blocks for {rule(VISIBLE_EFFECT)}",
        key="blocks_for_2_percent",
    ),
    column("paired.t"),
    column("paired.t_p", "t test p", p_value),
    column("holm_p", "Holm p", p_value),
    column("paired.signflip_p", "sign flip p", p_value),
    column("paired.wilcoxon_p", "Wilcoxon p", p_value),
)

GAINS = (
    *_POINT,
    *_BATCH,
    column("baseline.variant", "over", key="baseline_variant"),
    column("ratio", "images/s, ratio [95 %]", _estimate(ratio)),
    column("ratio.n", "n", key=""),
)

PIPELINES = (
    column("dataset", "data set"),
    column("samples_per_rank", "images per batch"),
    column("num_workers", "data-loading processes"),
    column("variant", "variant", sparse=True),
    column("images_per_s", "images/s [95 %]", _estimate(rate)),
    column("images_per_s.n", "n", key=""),
    column("runs", "runs"),
)


def _missing_blocks(gap: Gap) -> str:
    return ", ".join(map(str, gap.missing)) if len(gap.missing) < gap.planned else "all"


GAPS = (
    column("curve", "curve"),
    *_POINT,
    *_BATCH,
    column("planned", "blocks planned", key="blocks_planned"),
    column(lambda gap: gap.planned - len(gap.missing), "with usable runs"),
    column("missing", key="blocks_missing"),
    column(_missing_blocks, "missing blocks"),
)


def _median(e: Estimate) -> str:
    return ms(e.value) if e.low is None else interval(e, ms)


STEP_TIMES = (
    *_POINT,
    *_BATCH,
    column("runs", "runs"),
    column("steps_per_run", "steps per run"),
    column("median_seconds", "median ms", _median),
    column("p95_seconds", "p95 ms", _median),
    column("p99_seconds", "p99 ms", _median),
    column("outlier_steps", "outliers"),
    column("not_steady_runs", "not steady"),
)

NODES = (
    column("node", "node"),
    column("samples_per_step", "images per step"),
    column("images_per_s", "images/s, median", rate),
    column("relative", "of the median node", percent),
    column("score", "modified z", lambda z: f"{z:.1f}"),
    column("calibrations", "calibrations"),
    column("slow", "flag", lambda slow: "slow" if slow else "-"),
)

DRIFT = (
    column("job", "job"),
    column("allocation", "allocation"),
    column("nodes", "nodes"),
    column("ratio", "end / start", ratio),
    column("most_node", "node that changed most"),
    column("most_ratio", "its end / start", ratio),
    column("warn", "flag", lambda warn: "drift" if warn else "-"),
)

CALIBRATIONS = (
    column("job", "job"),
    column("allocation", "allocation"),
    column("when", " or ".join(WHEN)),
    column("node", "node", lambda node: node or "all"),
    column("host"),
    column(lambda one: one.samples_per_step if one.usable else None, key="samples_per_step"),
    column(lambda one: one.images_per_s if one.usable else None, key="images_per_s"),
    column("reason", "reason", lambda reason: " ".join(reason.split())),
    column("log"),
)

NOT_COMPARED = (column("what"), column("reason"))


def _why(log: Unusable) -> str:
    return "<br>".join([log.reason, *(words for words in log.words if words not in log.reason)])


LOGS = (
    column("log", "log", lambda name: f"`{name}`"),
    column("state", "state"),
    column("reason"),
    column("words"),
    column(_why, "reason"),
)
