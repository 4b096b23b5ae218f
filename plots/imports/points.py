"""From foreign logs to points: one value for each size, its reducer named, and no interval."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import UsageError
from plots.imports.files import POINT, read_files
from plots.imports.observation import PLACES, RANK_RATE, RATE, WORDS, Format, ImportOptions

_OFF = 0.02  # relative: between a mean that a file states and that of its lines
_RATES = re.compile(r"(?i)(?:_per_|/)s(?:ec(?:ond)?)?$|throughput|(?:^|_)(?:ips|fps|speed)$")
_TIMES = re.compile(r"(?i)(?:^|_)(?:seconds?|secs?|s|ms|minutes?|time)$")
_FAR = 3  # times the median of the others: a first line that is no step as they are
_REPEATS = ("median", "min", "max")  # of runs: where they lie


@dataclass(frozen=True)
class Imported:
    """All numbers of all files, the points made of them, and what had to be assumed."""

    values: pd.DataFrame  # `COLUMNS`, file and source
    points: pd.DataFrame  # a row for each quantity of each size: value, n, reducer
    warnings: Sequence[str]


@dataclass(frozen=True)
class Reduced:
    """A number for each run, epoch and step, over ranks; `how` names what was done with them."""

    values: pd.Series[float]
    how: str  # 'sum over ranks', '' where no rank is named
    over: str  # 'epochs', 'runs and steps', 'lines'
    left_out: int = 0  # groups in which ranks are missing


def read(form: Format, name: str, paths: Sequence[Path], options: ImportOptions) -> Imported:
    """Read files of one format. Raises UsageError if one has nothing of it, or what cannot be."""
    values, warnings = read_files(form, name, paths, options)
    values = _without_first(_without_repeats(values, warnings), form, options, warnings)
    _require_stated_means(values)
    points = pd.DataFrame(list(_points(values, form, warnings)))
    if points.empty:
        raise UsageError(f"{paths[0]}: {'; '.join(['no point can be made of it', *warnings])}")
    return Imported(values, points, warnings)


def _require_stated_means(values: pd.DataFrame) -> None:
    """Raise UsageError where a file states the mean of its lines' rates, and they have another."""
    for file, rows in values.groupby("file"):
        means = rows.groupby("quantity")["value"].mean()  # arithmetic, as those who state it do
        of_lines, stated = means.get(RANK_RATE), means.get(f"rank_mean_{RATE}")
        if of_lines and stated and abs(of_lines / stated - 1) > _OFF:
            lines = (
                f"{file}: its lines have the mean {of_lines:g} images/s, and it states {stated:g}"
            )
            raise UsageError(f"{lines}: some are missing, of another run, or of a warm-up (--skip)")


def _without_repeats(values: pd.DataFrame, warnings: list[str]) -> pd.DataFrame:
    """Drop lines that a restart wrote again, and refuse two different numbers in one place."""
    place = ["file", "source", "quantity", *PLACES, *WORDS]
    once = values[~values.duplicated([*place, "value"])]
    if len(once) < len(values):
        warnings.append(f"{len(values) - len(once)} numbers stand there twice, and count once")
    for (file, quantity), epochs in once.groupby(["file", "quantity"])["epoch"]:
        if epochs.notna().any() and epochs.isna().any():
            mixed = f"{file}: some lines of {quantity} name an epoch, and others none"
            raise UsageError(f"{mixed}, such as of validation: let the pattern take one kind alone")
    clash = once[once.duplicated(place, keep=False)]
    if len(clash):
        _, rows = next(iter(clash.groupby(place, dropna=False, sort=False)))
        first, second = rows.iloc[0], rows.iloc[1]
        named = [p for p in PLACES[:4] if pd.notna(second[p])]
        at = ", ".join(f"{p} {second[p]:g}" for p in named)
        raise UsageError(
            f"{second['file']}: {second['quantity']} is {first['value']:g} and "
            f"{second['value']:g}{at and ' at '}{at}: {_why_twice(named)}"
        )
    return once


def _why_twice(named: Sequence[str]) -> str:
    """Say why two numbers may stand in one place, and the way out."""
    if not {"epoch", "step"} & {*named}:
        return (
            "lines without a place; let the pattern name it, by (?P<epoch>...), (?P<step>...) or "
            "(?P<rank>...), and take training alone where there are bars of validation too"
        )
    kind = "two lines a step" if "step" in named else "two bars or lines an epoch"
    several = "where two runs wrote them, give each a file"
    if "rank" not in named:
        several = (
            "where ranks wrote them, tag each (srun -l, mpirun --tag-output) or give it a file"
        )
    return f"{kind}, such as training and validation: let the pattern take one alone; {several}"


def _without_first(
    values: pd.DataFrame, form: Format, options: ImportOptions, warnings: list[str]
) -> pd.DataFrame:
    """Leave out the first lines of each run, as the user asks; tell of one far off the rest."""
    run = ["file", *POINT, "model", "run", "rank", "quantity"]
    if options.skip:
        values = values[values.groupby(run, dropna=False).cumcount() >= options.skip]
    grouped: Any = values[np.isfinite(values["value"])].groupby(run, dropna=False, sort=False)
    far: dict[str, str] = {}
    for (file, *_, quantity), rows in grouped:
        timed = _TIMES.search(quantity) or _is_rate(quantity)
        if len(rows) < 3 or not timed or re.fullmatch(form.last_counts, quantity):
            continue
        first, median = rows["value"].iloc[0], rows["value"].iloc[1:].median()
        if not median / _FAR <= first <= median * _FAR:
            far.setdefault(quantity, (
                f"{file}: the first {quantity} is {first:g}, and the median of the others "
                f"{median:g}; --skip {options.skip + 1} leaves it out"
            ))  # fmt: skip
    warnings += far.values()
    return values


def _is_rate(quantity: str) -> bool:
    return _RATES.search(quantity) is not None


def _mean(quantity: str) -> Callable[[pd.Series[float]], float]:
    """Choose how equal work is averaged: rates harmonically, as if over its seconds."""
    if not _is_rate(quantity):
        return lambda x: float(x.mean())
    return lambda x: float(x.iloc[0] if x.nunique() == 1 else 1 / (1 / x).mean())


def _points(values: pd.DataFrame, form: Format, warnings: list[str]) -> Iterator[dict[str, object]]:
    finite = np.isfinite(values["value"])
    for place, quantity, rows in _groups(values[finite]):
        reduced = _over_ranks(rows, quantity, form)
        name = RATE if quantity == RANK_RATE else quantity
        world = f"{place['world_size']:.0f}"
        if reduced.left_out and reduced.how:
            total = reduced.left_out + len(reduced.values)
            kind = f"sums over {world} ranks" if name == RATE else reduced.over
            left = f"{name}: {reduced.left_out} of {total} {kind} are left out"
            warnings.append(f"{left}, as some of their ranks are not there")
        elif reduced.left_out:
            warnings.append(
                f"{name}: rates of one rank of {world}, which is not named, make no sum; give the "
                "log of each rank, with --files ranks"
            )
        numbers, over = _last(reduced, form, quantity)
        mean = "harmonic mean" if _is_rate(quantity) and len(numbers) > 1 else "mean"
        parts = (reduced.how, "" if reduced.how and over == "lines" else f"{mean} over {over}")
        reducer_words = ", ".join(filter(None, parts))
        repeats = _REPEATS if over.split(" (")[0] == "runs" and len(numbers) > 1 else ()
        for reducer in (mean, *repeats) if len(numbers) else ():
            reduce = getattr(numbers, reducer) if reducer in repeats else None
            yield {
                **place,
                "quantity": name,
                "value": float(reduce() if reduce else _mean(quantity)(numbers)),
                "n": len(numbers),
                "reducer": reducer_words.replace(f"{mean} over runs", f"{reducer} over runs"),
            }


def _groups(
    values: pd.DataFrame, sort: bool = True
) -> Iterator[tuple[dict[str, Any], str, pd.DataFrame]]:
    grouped: Any = values.groupby([*POINT, "quantity"], dropna=False, sort=sort)
    for (*point, quantity), rows in grouped:
        place = {k: None if pd.isna(v) else v for k, v in zip(POINT, point, strict=True)}
        yield place, str(quantity), rows


def _over_ranks(rows: pd.DataFrame, quantity: str, form: Format) -> Reduced:
    when = [name for name in ("run", "epoch", "step") if rows[name].notna().any()]
    ranked = rows["rank"].notna().any()
    in_files = rows.groupby("file")["rank"].agg(frozenset)
    a_rank_a_file = len(in_files) == rows["rank"].nunique() and in_files.map(len).eq(1).all()
    if len(in_files) > 1 and not (ranked and a_rank_a_file):
        when = ["file", *when]
    names = ["run" if name == "file" else name for name in when]
    over = " and ".join(f"{name}s" for name in dict.fromkeys(names)) or "lines"
    grouped = rows.groupby(when or ["quantity"], dropna=False)
    values, world = grouped["value"], float(rows["world_size"].iloc[0])
    if not ranked:
        means = values.agg(_mean(quantity))
        if quantity != RANK_RATE or world == 1:
            return Reduced(means, "", over)
        if form.one_speaks:
            return Reduced(means * world, "one rank times world size", over)
        return Reduced(means[:0], "", over, len(grouped))
    present = grouped["rank"].nunique()
    most = world if quantity == RANK_RATE else present.max()
    of = "ranks" if most == world else f"{most} of {world:.0f} ranks"
    if quantity == RANK_RATE:
        by_moment, how = values.sum(), "sum over ranks"
    elif quantity.endswith("_seconds"):
        by_moment, how = values.max(), "slowest rank" if most == world else f"slowest of {of}"
    else:
        mean = "harmonic mean" if _is_rate(quantity) else "mean"
        by_moment, how = values.agg(_mean(quantity)), f"{mean} over {of}"
    whole = present == most
    return Reduced(by_moment[whole], how, over, int((~whole).sum()))


def _last(reduced: Reduced, form: Format, quantity: str) -> tuple[pd.Series[float], str]:
    """Keep only the last epoch or step of numbers that are of all steps before it."""
    levels = reduced.values.index.names
    unit = next((name for name in ("epoch", "step") if name in levels), None)
    if unit is None or not re.fullmatch(form.last_counts, quantity):
        return reduced.values, reduced.over
    frame = reduced.values.rename("value").reset_index().sort_values(unit)
    runs = [name for name in levels if name in ("file", "run")]
    last = frame.groupby(runs or (lambda _: 0), dropna=False)["value"].last()
    return last, f"runs (the last {unit} of each)"


def by_epoch(values: pd.DataFrame, form: Format) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Tabulate each size, with a row an epoch and a column a quantity: the points' own numbers.

    No table where no number names an epoch.
    """
    rows = values[np.isfinite(values["value"]) & values["epoch"].notna()]
    columns: dict[tuple[Any, ...], dict[str, pd.Series[float]]] = {}
    for place, quantity, of_point in _groups(rows, sort=False):
        reduced = _over_ranks(of_point, quantity, form)
        how = reduced.how.replace(" over ranks", "") if reduced.how else "mean"
        name = f"{RATE if quantity == RANK_RATE else quantity} ({how})"
        means = reduced.values.groupby(level="epoch").agg(_mean(quantity))
        if len(means):
            columns.setdefault(tuple(place.values()), {})[name] = means
    for point, tables in columns.items():
        yield dict(zip(POINT, point, strict=True)), pd.DataFrame(tables)
