"""The tables of a report: which columns each has."""

from __future__ import annotations

from collections.abc import Callable

from bench.study.stats import Estimate
from plots.analyse.comparison import VISIBLE_EFFECT, Comparison
from plots.analyse.coverage import Gap
from plots.analyse.points import NO_SETTINGS, describe
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis
from plots.read.runs import Unusable
from plots.report.columns import Column, column, known
from plots.report.format import interval, ms, p_value, percent, rate, ratio
from plots.report.verdicts import over, sentence


def _estimate(form: Callable[[float], str]) -> Callable[[Estimate], str]:
    return lambda e: interval(e, form)


def _settings(settings: str) -> str:
    return "-" if settings == NO_SETTINGS else settings


def _flags(flags: tuple[str, ...]) -> str:
    return "; ".join(flags) or "-"


_POINT = (
    column("point.cell", "cell"),
    column("point.settings", "settings", _settings),
    column("point.variant", "variant", when=known),
    column("point.world_size", "ranks"),
)
_BATCH = (
    column("point.samples_per_rank", "images per rank"),
    column("point.samples_per_step"),
)

THROUGHPUT = (
    column("curve", "curve"),
    *_POINT,
    *_BATCH,
    column("images_per_s", "images/s [95 %]", _estimate(rate)),
    column("step_seconds", "step ms [95 %]", _estimate(ms)),
    column("input_share", "waiting for input", percent, when=known),
    column("images_per_s.n", "n", key=""),
    column("runs", "runs"),
    column("flags", "flags", _flags),
)


def _named_baseline(s: Scaled) -> str:
    return f"{s.kind}: {describe(s.baseline)}"


SCALING = (
    column("curve", "curve"),
    *_POINT,
    column("point.samples_per_rank"),
    column("point.samples_per_step"),
    column("kind", key="baseline_kind"),
    column("baseline"),
    Column(key="", title="baseline", get=_named_baseline),
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
    column("variant", "variant", when=known),
)


def ratios(a: Analysis) -> tuple[Column, ...]:
    """Every comparison with its verdict."""
    margin = a.loaded.study.margin

    def ci90(c: Comparison) -> tuple[float, float] | None:
        return c.paired.ci90 if c.paired.estimate.shown else None

    def verdict(c: Comparison) -> str:
        return f"{'primary: ' if c.primary else ''}{sentence(c, margin, a.tests)}"

    return (
        *_WHERE,
        column("curves", "curves"),
        column("paired.ratio"),
        column(
            "paired.estimate",
            f"{over(a.reference, a.candidate)} [95 %]",
            _estimate(ratio),
            key="",
        ),
        column("paired.ci95"),
        Column(
            key="",
            title="90 % interval",
            get=ci90,
            form=lambda ends: f"[{ratio(ends[0])}, {ratio(ends[1])}]",
        ),
        column("paired.ci90"),
        column("paired.n", "n"),
        column("paired.ratios"),
        Column(key="margin", title="", get=lambda c: margin),
        column("verdict"),
        Column(key="verdict_text", title="", get=lambda c: sentence(c, margin, a.tests)),
        Column(key="", title="verdict", get=verdict),
        column("unequal", key="unequal_environments"),
        column("primary"),
        column("blocks_to_settle"),
    )


CHECKS = (
    *_WHERE,
    column("paired.sd_log", "paired sd", percent),
    column("half_width", key="half_width_ratio"),
    Column(
        key="",
        title="half-width",
        get=lambda c: c.half_width if c.paired.estimate.shown else None,
        form=percent,
    ),
    column(
        "blocks_for_visible_effect",
        f"blocks for {100 * VISIBLE_EFFECT:g} %",
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
    column("variant", "variant", when=known),
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
    Column(key="", title="with usable runs", get=lambda g: g.planned - len(g.missing)),
    column("missing", key="blocks_missing"),
    Column(key="", title="missing blocks", get=_missing_blocks),
)


def _median(e: Estimate) -> str:
    return ms(e.value) if e.low is None or e.high is None else interval(e, ms)


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

NOT_COMPARED = (column("what"), column("reason"))


def _why(log: Unusable) -> str:
    return "<br>".join([log.reason, *(words for words in log.words if words not in log.reason)])


LOGS = (
    column("log", "log", lambda name: f"`{name}`"),
    column("state", "state"),
    column("reason"),
    column("words"),
    Column(key="", title="reason", get=_why),
)
