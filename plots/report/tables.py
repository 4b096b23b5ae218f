"""Tables of a report, each declared once: section, columns and rows, for pages, JSON and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pandas as pd

from bench.study.comparison import Comparison
from bench.study.definition import Point
from bench.study.stats import Estimate
from bench.study.words import count, rule, sentence, word
from plots.analyse.exchange import SHOWN, StepParts
from plots.analyse.study import Analysis
from plots.report.findings import by_session, checks
from plots.report.format import (
    giga,
    interval,
    megabytes,
    ms,
    p_value,
    percent,
    rate,
    ratio,
    seconds,
)
from plots.report.labels import over, section, versus

_FEW = 3  # rows, from which on what all say alike is said once


def show(value: Any) -> str:
    """Write a value as text, a tuple's items with ', ' between them, and an empty value as '-'."""
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "-"


@dataclass(frozen=True)
class Column:
    """One column of a table, whose rows may be of any type."""

    of: str | Callable[[Any], Any]  # an attribute, such as 'point.cell', or what to make of a row
    title: str = ""  # on a page; '' where pages do not have it
    form: Callable[[Any], str] = show  # how a page writes a value, or each number of an estimate
    key: str | None = None  # in CSV and JSON; '' where only pages have it; None: the attribute's
    each: bool = False  # stands in every row, even where all say the same

    @property
    def name(self) -> str:
        attribute = self.of.split(".")[-1] if isinstance(self.of, str) else ""
        return attribute if self.key is None else self.key

    def text(self, value: Any) -> str:
        """Write a value as pages do: an estimate with its interval, and None as '-'."""
        if isinstance(value, Estimate):
            return interval(value, self.form)
        return "-" if value is None else self.form(value)

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """Read this column's value of each row, unrounded."""
        return list(map(attrgetter(self.of) if isinstance(self.of, str) else self.of, rows))


class Cells(NamedTuple):
    """A table as a page shows it; the line `above` holds columns in which all rows are alike."""

    above: str
    head: list[str]
    rows: list[tuple[str, ...]]


def shown(columns: Sequence[Column], rows: Sequence[Any]) -> Cells:
    """Return the cells that a page shows, without empty columns; `rows` must not be empty."""
    head, cells, above = [], [], []
    for column in (column for column in columns if column.title):
        values = column.values(rows)
        first = values[0]
        if all(v is None or (isinstance(v, str | tuple) and not v) for v in values):
            continue
        # of measurements that would be chance
        plain_value = isinstance(first, str | int | tuple) and not column.each
        if plain_value and len(values) >= _FEW and all(v == first for v in values):
            above.append(f"{column.title}: {column.text(first)}")
        else:
            head.append(column.title)
            cells.append([column.text(value) for value in values])
    line = f"In every row: {'; '.join(above)}." if above else ""
    return Cells(line, head, [*zip(*cells, strict=True)])


def records(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Make a record of each row for JSON, unrounded; an estimate is value, low95, high95 and n."""
    kept = [c for c in columns if c.name]
    cells = [map(plain, c.values(rows)) for c in kept]
    return [dict(zip([c.name for c in kept], row, strict=True)) for row in zip(*cells, strict=True)]


def plain(value: Any) -> Any:
    """Convert an estimate, mapping or point to what JSON can hold; leave other values unchanged."""
    match value:
        case Estimate(value=best, low=low, high=high, n=n):
            return {"value": best, "low95": low, "high95": high, "n": n}
        case Mapping():
            return {key: plain(one) for key, one in value.items()}
        case Point():
            return {**value._asdict(), "global_batch": value.global_batch}
        case _:
            return value


def csv(rows: Sequence[dict[str, Any]]) -> str:
    """Write records as flat CSV: an estimate has four columns, list items are joined by '; '."""
    frame = pd.DataFrame([dict(_flat(row)) for row in rows], dtype=object)
    return frame.to_csv(index=False) if rows else ""


def _flat(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key in ("interval", "another_day"):
            value = dict(zip(("low", "high"), value or (None, None), strict=True))
        if isinstance(value, dict):
            yield from ((f"{key}_{part}", v) for part, v in _flat(value))
        else:
            yield key, "; ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _keys(*attributes: str) -> tuple[Column, ...]:
    """Make columns that only JSON and CSV have."""
    return tuple(map(Column, attributes))


_CELL = (
    Column("point.cell", "cell"),
    Column("point.arm", "arm"),
    Column("point.world_size", "ranks"),
)
POINT = (*_CELL, Column("point.batch_per_rank", "images per rank"), Column("point.global_batch"))
_FLAGS = Column("flags", "flags", lambda flags: "; ".join(flags) or "-")
_WHERE = (
    Column("world_size", "ranks"),
    Column("batch_per_rank", "images per rank"),
    Column("transport", "transport"),
    Column("reference_point.arm", key="reference_arm"),
    Column("arm", "arm"),
)


def comparisons(a: Analysis) -> tuple[Column, ...]:
    """Choose columns that show each comparison's verdict and the one interval that decides it."""
    several = len(a.comparisons) > 1

    def verdict(c: Comparison) -> str:
        return f"{'primary: ' if c.primary and several else ''}{sentence(c)}"

    return (
        Column(verdict, "verdict", each=True),  # first: a narrow screen shows no more
        *_WHERE,
        Column("curves", "curves"),
        Column("estimate", over(a), ratio, key=""),
        Column("paired.n", "n"),
        Column(lambda c: c.paired.interval(c.level), key="interval"),
        Column(word, key="verdict"),
        Column(sentence, key="verdict_text"),
        Column("chance", key="chance_at_max_launches"),
        *_keys("reference", "candidate", "global_batch", "paired.ratio", "paired.ratios"),
        *_keys("level", "margin", "primary", "launches_to_settle", "another_day"),
    )


DETAILS = (
    *_WHERE,
    Column("paired.sd_log", "paired sd", percent),
    Column("half_width", key="half_width_ratio"),
    Column(lambda c: c.half_width if c.estimate.shown else None, "half-width", percent),
    Column("paired.role", "first one over second [95 %]", ratio, key="role"),
    Column("median_ratio", "ratio of median steps", ratio),
    Column(
        lambda c: by_session(c) if len({*c.sessions}) > 1 else (),
        "by session",
        "; ".join,
        key="sessions",
    ),
    Column("paired.signflip_p", "sign flip p", p_value),
    *_keys("paired.t", "paired.t_p"),
)
GAINS = (
    *POINT,
    Column("baseline.arm", "over", key="baseline_arm"),
    Column("ratio", "images/s, ratio [95 %]", ratio),
    Column("ratio.n", "n", key=""),
)
ARMS = (
    Column(itemgetter(0), "arm", key="arm", each=True),
    Column(lambda of: of[1].cells, "of cells", key="cells"),
    Column(lambda of: of[1].over, "over", key="over"),
    Column(lambda of: tuple(f"{k}={v}" for k, v in of[1].fields.items()), "sets", key="sets"),
)
COSTS = (
    *POINT,
    *(Column(f"{part}_seconds", f"{part} ms [95 %]", ms) for part in ("exposed", "inflation")),
    Column("difference_seconds", "T(on) - T(off) ms [95 %]", ms),
)


def _part(name: str, row: StepParts) -> Estimate:
    return row.parts[name]


BREAKDOWNS = (
    *POINT,
    *(Column(partial(_part, x), f"{x} ms", ms, f"{x}_seconds") for x in SHOWN),
    Column("step_seconds", "sum ms", ms),
    Column("undisturbed_seconds", "not observed ms", ms),
)
OVERLAPS = (
    *POINT,
    *(Column(f"{way}_seconds", f"{way} ms [95 %]", ms) for way in ("overlapped", "blocking")),
    Column("ratio", "blocking / overlapped [95 %]", ratio),
    Column("ratio.n", "n", key=""),
)
TRAINED = (
    *POINT,
    Column("target", "target", rule),
    Column(lambda t: len(t.trainings), "trainings", key="trainings"),
    Column("reached", "reached it"),
    Column("epochs", "epochs, median [95 %]", "{:g}".format),
    Column("seconds", "seconds, median [95 %]", seconds),
    Column("mean", "mean s", seconds, key="seconds_mean"),
    Column("olympic", "Olympic mean s", seconds, key="seconds_olympic_mean"),
    Column("fastest", "fastest s", seconds, key="seconds_min"),
    Column("slowest", "slowest s", seconds, key="seconds_max"),
    Column("accuracy", "right at the end [95 %]", percent),
    Column("lowest", "least", percent, key="accuracy_min"),
    Column("highest", "most", percent, key="accuracy_max"),
)


SERVED = (
    *_CELL,
    Column("point.batch_per_rank", "images per rank"),
    Column("slowest", "slowest rank, images/s [95 %]", rate),
    Column("mean", "mean of ranks, images/s [95 %]", rate),
    Column("least", "worst rank, right [95 %]", percent),
    Column("right", "mean of ranks, right [95 %]", percent),
)


def throughput(a: Analysis) -> tuple[Column, ...]:
    """Return the columns of speed, and those of memory and FLOP/s that at least one point has."""
    resources = (
        Column("rank_memory_bytes", "rank's memory MB [95 %]", megabytes),
        Column("device_memory_bytes", "device memory MB [95 %]", megabytes),
        Column("flops_per_s_and_rank", "rank's GFLOP/s [95 %]", giga),
        Column("flop_utilisation", "of peak [95 %]", percent),
    )
    return (
        Column("curve", "curve"),
        *POINT,
        Column("images_per_s", "images/s [95 %]", rate),
        Column("step_seconds", "step ms [95 %]", ms),
        *(column for column in resources if any(column.values(a.throughput))),
        Column("input_share", "waiting for input", percent),
        Column("busy_share", "cores busy", percent),
        Column("images_per_s.n", "n", key=""),
        Column("runs", "runs"),
        _FLAGS,
    )


SCALING = (
    Column("curve", "curve"),
    *_CELL,
    *_keys("point.batch_per_rank", "point.global_batch"),
    Column("kind", "baseline", key="baseline_kind"),
    *_keys("baseline", "baseline_images_per_s"),
    Column("speedup", "speed-up [95 %]", ratio),
    Column("efficiency", "efficiency [95 %]", percent),
    Column("step_overhead_seconds", "step overhead ms", lambda s: f"{1000 * s:+,.1f}"),
    Column("paired", key="paired_by_launch"),
    Column("efficiency.n", "n", key=""),
    _FLAGS,
)
BOUNDS = (
    Column("curve", "curve"),
    *POINT,
    Column("gradient_bytes", "gradients MB", megabytes),
    Column("exchange_seconds", "all-reduce alone ms", ms),
    Column("visible_efficiency", "efficiency, nothing hidden", percent),
    Column("hidden_efficiency", "efficiency, all hidden", percent),
)
GAPS = (
    Column("curve", "curve"),
    *POINT,
    Column("planned", "launches planned", key="launches_planned"),
    Column(lambda gap: gap.planned - len(gap.missing), "with usable runs"),
    Column("missing", "missing", key="launches_missing"),
)
LOGS = (
    Column("log", "log"),
    Column("state", "state"),
    Column("reason", "reason"),
    Column("words", "its last words", "; ".join),
    Column("cell"),
)
STEP_TIMES = (
    *POINT,
    Column("runs", "runs"),
    Column("steps_per_run", "steps per run"),
    Column("median_seconds", "median ms", ms),
    Column("p95_seconds", "p95 ms", ms),
    Column("p99_seconds", "p99 ms", ms),
)
TRENDS = (
    Column("cell", "cell"),
    Column("arm", "arm"),
    Column("runs", "runs"),
    Column("judged_runs", "judged"),
    Column(
        lambda t: t.over_first and t.over_first.estimate,
        "last window over first [95 %]",
        ratio,
        key="last_over_first",
    ),
    Column(lambda t: t.over_first and t.over_first.t_p, "p", p_value, key="p"),
    Column("changes", "still changes", lambda changes: "yes" if changes else "no"),
)
NOT_COMPARED = (Column("pair", "pair", key="what"), Column("reason", "reason"))
CHECKS = (
    Column("name", "check"),
    Column("holds", "holds", lambda holds: "yes" if holds else "no"),
    Column("text", "why", key="why"),
)
PROVENANCE = (Column(itemgetter(0), "part"), Column(itemgetter(1), "recorded"))


def provenance(a: Analysis) -> Iterator[tuple[str, str]]:
    """Yield (part, text) for versions, git, env and platform; if values differ, with run counts."""
    recorded = a.loaded.runs["recorded"].tolist()
    for part in ("versions", "git", "env", "platform"):
        texts = []
        for name in sorted({name for one in recorded for name in one if name.startswith(part)}):
            values = Counter(one.get(name, "unset") for one in recorded).most_common()
            each = [f"{v} ({count(n, 'run')})" if values[1:] else v for v, n in values]
            texts.append(f"{name.partition('.')[2]} {' or '.join(each)}".strip())
        if texts:
            yield part, ", ".join(texts)


class ReportTable(NamedTuple):
    """A table of a report, or prose alone if `rows` is None; pages omit a table without rows."""

    title: str  # of its section, which tables in a row share
    columns: Sequence[Column] = ()
    rows: Sequence[Any] | None = None  # None: prose alone
    key: str = ""  # in summary.json; '': not there
    note: str = ""  # its block of prose.j2; '': named by the key, where there is one
    marked: bool = True  # each row says whether it is emulated
    depth: int = 0  # 0: open on a page; 1: folded in report.html; 2: in report.html alone, folded


def tables(a: Analysis) -> list[ReportTable]:
    """Declare all tables of a report, in their order.

    Add a table as a row here, or a column to a row's columns; pages and summary.json then show it.
    """
    exchanged, trained = section(a, "Exchange"), section(a, "Training to a target")
    one, folded = ReportTable, partial(ReportTable, marked=False, depth=1)
    details = section(a, "Details of the comparisons")
    return [
        one(section(a, versus(a)), comparisons(a), a.comparisons, "comparisons"),
        one("Arms", ARMS, [*a.loaded.study.arms.items()], "arms", marked=False),
        one(section(a, "Gains of arms"), GAINS, a.gains, "gains"),
        one(exchanged, COSTS, a.costs, "exchange.costs"),
        one(exchanged, BREAKDOWNS, a.breakdowns, "exchange.breakdowns"),
        one(exchanged, OVERLAPS, a.overlaps, "exchange.overlaps"),
        one(trained, TRAINED, a.trained, "trained"),
        one(section(a, "Each rank by itself"), SERVED, a.served, "served"),
        one(section(a, "Throughput"), throughput(a), a.throughput, "throughput"),
        one(section(a, "Scaling"), SCALING, a.efficiency, "scaling"),
        one(section(a, "Scaling"), BOUNDS, a.bounds, "bounds"),
        one("Gaps", GAPS, a.gaps, "gaps", marked=False),
        folded("Data quality", note="quality"),
        folded("Data quality", CHECKS, [*checks(a)], "checks"),
        folded("Data quality", LOGS, a.loaded.unusable, "unusable"),
        folded("Data quality", LOGS, a.loaded.superseded, "superseded"),
        folded("Methods", note="methods"),
        folded("Limits", note="limits"),
        folded("Machine and versions", PROVENANCE, [*provenance(a)]),
        folded("Files", note="files"),
        folded("Not compared", NOT_COMPARED, a.not_compared, "not_compared", depth=2),
        one(details, DETAILS, a.comparisons, "comparisons", "details", depth=2),
        one(section(a, "Step times"), STEP_TIMES, a.step_times, "step_times", depth=2),
        one(section(a, "Step times"), TRENDS, a.trends, "trends", depth=2),
        folded("How each number is made", note="made", depth=2),
    ]


def marked(a: Analysis, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Add a column that says of each row whether compute slept in the runs behind it."""

    def slept(row: Any) -> bool:
        arm = getattr(getattr(row, "point", row), "arm", None)
        return bool(a.timelines) if arm is None else a.emulated(arm)

    return (*columns, Column(slept, key="emulated"))


def summarise(a: Analysis, data: dict[str, Any]) -> None:
    """Put each table's records into `data` at its key; omit 'a.b' if `data['a']` is None."""
    whole = [one for one in tables(a) if one.key]
    for one in whole:
        # tables of one key show parts of its records
        columns = [column for other in whole if other.key == one.key for column in other.columns]
        place, _, name = one.key.rpartition(".")
        parent = data[place] if place else data
        if parent is not None:
            parent[name] = records(marked(a, columns) if one.marked else columns, one.rows or ())
