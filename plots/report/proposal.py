"""Scaling as a proposal for compute time shows it: one table per arm, against a criterion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from bench.backends.catalogue import facts, label
from bench.config import UsageError
from bench.study.stats import Estimate
from plots.analyse.across import measured
from plots.analyse.points import PointRow, describe
from plots.analyse.study import Analysis, machine, workload
from plots.report import tex
from plots.report.answer import marked
from plots.report.columns import Column, csv, markdown_table
from plots.report.format import escape, percent, rate, ratio, rule, seconds
from plots.report.tables import marked as with_mark
from plots.report.tables import with_interval

_PAGE = (
    Column("nodes", "nodes", each=True),
    Column("point.world_size", "ranks", each=True),
    Column("images_per_s", "images/s [95 %]", with_interval(rate)),
    Column("epoch_seconds", "seconds per epoch [95 %]", with_interval(seconds)),
    Column("speedup", "speed-up [95 %]", with_interval(ratio)),
    Column("efficiency", "efficiency [95 %]", with_interval(percent)),
    Column("met", "criterion", each=True),
    Column("efficiency.n", "n", key="", each=True),
)
_OF_THE_ARM = (
    Column("curve"),
    Column("point.cell"),
    Column("point.words", key="variant"),
    Column("point.samples_per_rank"),
    Column("point.samples_per_step"),
)
_BESIDE = (
    Column("criterion"),
    Column("baseline.cell", key="baseline_cell"),
    Column("baseline_images_per_s"),
    Column("paired", key="paired_by_block"),
    Column("machine"),
    Column("measured"),
)


def write(
    a: Analysis, form: str, baseline: str, criterion: float | None, epoch_images: int | None
) -> str:
    """The page in a form of `FORMS`; `baseline` is common (a plain process) or own (one rank).

    `criterion` is the least efficiency, 0.75 for 75 %; `epoch_images` those of an epoch. Raises
    UsageError where no point has that baseline.
    """
    arms: dict[object, list[PointRow]] = {}
    rates = {(row.curve, row.point): row.images_per_s for row in a.throughput}
    for row in a.efficiency:
        if row.kind == baseline:
            images_per_s = rates[row.curve, row.point]
            hosts = (len(mean.hosts) for mean in a.table.blocks[row.point].values())
            values = {
                "nodes": tuple(sorted({*hosts})),
                "images_per_s": images_per_s,
                "epoch_seconds": epoch_images and _seconds(epoch_images, images_per_s),
                "met": None if criterion is None else met(row.efficiency, criterion),
                "criterion": criterion,
                "machine": machine(a.loaded.host),
                "measured": measured(a),
            }
            arm = arms.setdefault((row.curve, row.point.series(row.curve)), [])
            arm.append(PointRow(row.point, {**row.values, **values}))
    if not arms:
        other = {"common": "own", "own": "common"}[baseline]
        lacking = f"no point of a weak or strong curve has a baseline={baseline} of equal work"
        available = other in {row.kind for row in a.efficiency}
        cure = f"use --baseline {other}" if available else "add one-rank runs to its curve"
        raise UsageError(f"{lacking}; {cure}")
    return FORMS[form](a, [*arms.values()])


def met(efficiency: Estimate, criterion: float) -> str:
    """Where the whole 95 % interval lies; open if the criterion is inside, or there is none."""
    if efficiency.shown is None:
        return "open"
    low, high = efficiency.shown
    return "met" if low >= criterion else "not met" if high < criterion else "open"


def _seconds(images: int, images_per_s: Estimate) -> Estimate:
    """Of an epoch; the ends of the interval change places."""
    low, high = (end and images / end for end in (images_per_s.high, images_per_s.low))
    best, blocks = images / images_per_s.value, tuple(images / b for b in images_per_s.blocks)
    return Estimate(value=best, low=low, high=high, n=images_per_s.n, blocks=blocks)


def _markdown(a: Analysis, arms: Sequence[Sequence[PointRow]]) -> str:
    texts = [f"# {escape(a.loaded.study.name)}: scaling", escape(_noise(a, chain(*arms)))]
    for rows in arms:
        texts += [f"## {escape(_title(a, rows[0]))}", escape(_baseline(rows))]
        texts.append(markdown_table(_PAGE, rows))
    return "\n\n".join(texts) + "\n"


def _latex(a: Analysis, arms: Sequence[Sequence[PointRow]]) -> str:
    tables = []
    for rows in arms:
        named = [(c, c.values(rows)) for c in _PAGE]
        shown = [(c, values) for c, values in named if any(v is not None for v in values)]
        caption = f"{_title(a, rows[0])}. {_baseline(rows)} {_noise(a, rows)}"
        cells = [[c.form(v) for v in values] for c, values in shown]
        head = [c.title for c, _ in shown]
        tables.append(tex.table(caption, "r" * len(head), head, zip(*cells, strict=True)))
    return "\n".join(tables)


def _csv(a: Analysis, arms: Sequence[Sequence[PointRow]]) -> str:
    columns = with_mark(a, (*_OF_THE_ARM, *_PAGE, *_BESIDE))
    return csv(columns, [row for rows in arms for row in rows])


FORMS: Mapping[str, Callable[[Analysis, Sequence[Sequence[PointRow]]], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
}


def _title(a: Analysis, row: PointRow) -> str:
    each = "step" if row.curve == "strong" else "rank"
    size = f"{row.curve} scaling, {row.point.fixed(row.curve):,} images per {each}"
    return marked(a, row.point.variant, ", ".join([label(row.point.cell), size, *row.point.words]))


def _baseline(rows: Sequence[PointRow]) -> str:
    """What T(1) is of, and the rule."""
    first = rows[0]
    rates = " or ".join(dict.fromkeys(rate(row.baseline_images_per_s.value) for row in rows))
    text = f"Baseline: {describe(first.baseline)}, at {rates} images/s."
    if unpaired := [str(row.point.world_size) for row in rows if not row.paired]:
        text += f" Unpaired (Welch's interval) at {', '.join(unpaired)} ranks."
    if first.criterion is None:
        return text
    return (
        f"{text} Criterion: an efficiency of {rule(first.criterion)}, met or not met where the "
        "whole interval is, else open."
    )


def _noise(a: Analysis, rows: Iterable[PointRow]) -> str:
    """What the intervals are of, and where, when and with which packages it was measured."""
    packages = {"torch", *(name for row in rows for name in facts(row.point.cell).packages)}
    versions = a.loaded.host.get("versions", {})
    software = [f"{name} {versions[name]}" for name in sorted(packages & {*versions})]
    return (
        "Brackets are 95 % Student t intervals on logarithms, over n launches; the efficiency, "
        "T(1)/T(p), of strong scaling that over p, is paired by launch unless a table says not. "
        f"Measured {measured(a)} on {machine(a.loaded.host)}: {workload(a)}; "
        f"{', '.join(software) or 'versions not recorded'}."
    )
