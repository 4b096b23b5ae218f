"""Averages of other tools' numbers: one point per quantity and size, without an interval."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import UsageError
from bench.study.words import count
from plots.imports import ImportOptions, text
from plots.imports.text import FORMATS, PLACES, RANK_RATE, RATE, WORDS, Format
from plots.report.format import table

POINT = ["source", "backend", "world_size", "batch_per_rank", "global_batch"]
_RATES = re.compile(r"(?i)(?:_per_|/)s(?:ec(?:ond)?)?$|throughput|(?:^|_)(?:ips|fps|speed)$")
_TIMES = re.compile(r"(?i)(?:^|_)(?:seconds?|secs?|s|ms|minutes?|time)$")
_FAR = 3  # times the median of the others: a first line that is no step as they are
_CURE = (
    "let the pattern name each line's place, by (?P<epoch>...), (?P<step>...) or (?P<rank>...), "
    "and take training or validation alone; where ranks or runs wrote them, tag each (srun -l, "
    "mpirun --tag-output) or give it a file"
)


def find_format(options: ImportOptions) -> Format:
    """Return the format that the options name. Raises UsageError for a bad format or --pattern."""
    if options.form not in FORMATS:
        cure = "the format pattern reads others by --pattern"
        raise UsageError(f"format {options.form!r} is none of {', '.join(FORMATS)}; {cure}")
    form = FORMATS[options.form]
    if options.form != "pattern":
        return form
    for pattern in options.pattern or [""]:
        try:
            named = re.compile(pattern).groupindex
        except re.error as error:
            raise UsageError(f"--pattern {pattern!r}: {error}; mend the expression") from None
        if not named:
            cure = "name one, such as '(?P<step_ms>[\\d.]+) ms'"
            raise UsageError(f"--pattern {pattern!r} has no named group; {cure}")
    return replace(form, patterns=options.pattern)


def read(
    form: Format, paths: Sequence[Path], options: ImportOptions, source: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Read files of one format; return all numbers, a point per quantity and size, and warnings.

    `source` says who published the files. Raises UsageError, naming the file, if a file has nothing
    of the format or impossible values.
    """
    parts: list[pd.DataFrame] = []
    warnings: list[str] = []
    seen: dict[bytes, Path] = {}
    for path in paths:
        try:
            data = path.read_bytes()
            if (first := seen.setdefault(data, path)) is not path:
                raise UsageError(f"the same log as {first}; name each once")
            part, of_file, tags = text.read(form, path.name, data)
            part = _complete(part, of_file, tags, form, options).assign(file=str(path))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; name a log") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        models = [f", {model}" if isinstance(model, str) else "" for model in part["model"]]
        parts.append(part.assign(source=[f"{source}{model}" for model in models]))  # a curve each
        warnings += (f"{path.name}: {warning}" for warning in of_file)
    values = _divide_files(pd.concat(parts, ignore_index=True), form, options.files)
    wrong = (values["rank"] >= values["world_size"]) | (values["world_size"] < 1)
    for _, row in values[wrong].iterrows():
        rank = "" if pd.isna(row["rank"]) else f", and rank {row['rank']:.0f} is in it"
        raise UsageError(f"{row['file']}: world_size is {row['world_size']:.0f}{rank}; mend it")
    values = _without_repeats(values[np.isfinite(values["value"])], warnings)
    values = _without_first(values, form, options.skip, warnings)
    points = pd.DataFrame(list(_points(values, form, warnings)))
    if points.empty:
        raise UsageError(f"{paths[0]}: {'; '.join(['no point can be made of it', *warnings])}")
    return values, points, warnings


def _complete(
    values: pd.DataFrame,
    warnings: list[str],
    tags: set[float],
    form: Format,
    options: ImportOptions,
) -> pd.DataFrame:
    """Fill in backend and sizes from `options`, or the world size from ranks. Raises UsageError."""
    if values.empty:
        nothing = f"nothing in it is of the format {options.form} ({form.written_by})"
        raise UsageError("; ".join([nothing, *warnings, "choose another format"]))
    if form.one_speaks and values["rank"].nunique() == 1:
        values["rank"] = float("nan")
    for column in POINT[1:]:
        stated = values[column].dropna()
        if (wanted := getattr(options, column)) is not None:
            for other in stated[stated != wanted]:
                says = f"it says {column} {str(other).removesuffix('.0')} itself, not {wanted}"
                raise UsageError(f"{says}; leave out the option")
            values[column] = wanted
    if values["world_size"].isna().any():
        ranks = tags | {float(rank) for rank in values["rank"].dropna()}
        if not ranks or ranks != set(map(float, range(len(ranks)))) or tags == {0.0}:
            raise UsageError("no line of it tells the world size; use --world-size")
        warnings.append(f"world size {len(ranks)} is inferred from the ranks in it")
        values["world_size"] = values["world_size"].fillna(len(ranks))
    if values["backend"].isna().any():
        values["backend"] = values["backend"].fillna("not said")
        warnings.append("nobody said the backend; use --backend")
    unnamed = int(values["rank"].isna().sum())
    if 0 < unnamed < len(values):
        raise UsageError(f"{unnamed} numbers name no rank, others do; part the file")
    if bad := int((~np.isfinite(values["value"])).sum()):
        warnings.append(f"{bad} values are nan or inf, and not averaged")
    return values


def _divide_files(values: pd.DataFrame, form: Format, files: str | None) -> pd.DataFrame:
    """Take each file as a rank if `files` is 'ranks'. Raises UsageError if `files` does not fit."""
    if values.groupby([*POINT, "quantity"], dropna=False)["file"].nunique().max() == 1:
        return values
    of_runs = form.one_speaks or form.trainings or values["rank"].notna().any()
    names = ", ".join(dict.fromkeys(values["file"]))
    if files == "ranks" and of_runs:
        raise UsageError(f"{names}: of whole runs, or their lines name ranks; leave out --files")
    if files is None and not of_runs:
        raise UsageError(f"{names}: of one size; say what they are, --files runs or --files ranks")
    if files == "ranks":
        values["rank"] = pd.factorize(values["file"])[0].astype(float)
    return values


def _without_repeats(values: pd.DataFrame, warnings: list[str]) -> pd.DataFrame:
    """Drop repeated numbers. Raises UsageError if one step of one rank has two values."""
    place = ["file", "source", "quantity", *PLACES, *WORDS]
    once = values[~values.duplicated([*place, "value"])]
    if len(once) < len(values):
        warnings.append(f"{len(values) - len(once)} numbers stand there twice, and count once")
    for (file, quantity), epochs in once.groupby(["file", "quantity"])["epoch"]:
        if epochs.notna().any() and epochs.isna().any():
            mixed = f"{file}: some lines of {quantity} name an epoch, and others none"
            raise UsageError(f"{mixed}, such as of validation: let the pattern take one kind alone")
    clash = once[once.duplicated(place, keep=False)]
    for _, rows in clash.groupby(place, dropna=False, sort=False):
        first, second = rows.iloc[0], rows.iloc[1]
        at = ", ".join(f"{p} {second[p]:g}" for p in PLACES[:4] if pd.notna(second[p]))
        raise UsageError(
            f"{second['file']}: {second['quantity']} is {first['value']:g} and "
            f"{second['value']:g} {f'at {at}' if at else 'in lines without a place'}; {_CURE}"
        )
    return once


def _without_first(
    values: pd.DataFrame, form: Format, skip: int, warnings: list[str]
) -> pd.DataFrame:
    """Leave out each run's first `skip` lines; warn of a first time or rate far off the rest."""
    run = ["file", *POINT, "model", "run", "rank", "quantity"]
    values = values[values.groupby(run, dropna=False).cumcount() >= skip]
    grouped: Any = values.groupby(run, dropna=False, sort=False)
    far: dict[str, str] = {}
    for (file, *_, quantity), rows in grouped:
        timed = _TIMES.search(quantity) or _RATES.search(quantity)
        if len(rows) < 3 or not timed or form.trainings:
            continue
        first, median = rows["value"].iloc[0], rows["value"].iloc[1:].median()
        if not median / _FAR <= first <= median * _FAR:
            line = f"the first {quantity} is {first:g}, and the median of the others {median:g}"
            far.setdefault(quantity, f"{file}: {line}; --skip {skip + 1} leaves it out")
    warnings += far.values()
    return values


def _mean(quantity: str, x: pd.Series[float]) -> float:
    """Return the mean over equal work: harmonic for rates, arithmetic for the rest."""
    if not _RATES.search(quantity):
        return float(x.mean())
    return float(x.iloc[0] if x.nunique() == 1 else 1 / (1 / x).mean())


def _points(values: pd.DataFrame, form: Format, warnings: list[str]) -> Iterator[dict[str, object]]:
    """Yield a mean for each quantity, source, backend and size; append doubts to `warnings`."""
    grouped: Any = values.groupby([*POINT, "quantity"], dropna=False)
    for (*point, quantity), rows in grouped:
        numbers, how, left_out = _over_ranks(rows, quantity, form)
        name = RATE if quantity == RANK_RATE else quantity
        levels = ["run" if x == "file" else x for x in numbers.index.names if x != "quantity"]
        over = " and ".join(f"{x}s" for x in dict.fromkeys(levels)) or "lines"
        if left_out and how:
            left = f"{name}: {left_out} of {left_out + len(numbers)} {over} are left out"
            warnings.append(f"{left}, as some of their ranks are not there")
        elif left_out:
            one = f"{name}: rates of one rank of {point[2]:.0f}, which is not named"
            warnings.append(f"{one}, make no sum; give the log of each rank, with --files ranks")
        if form.trainings and "epoch" in levels:
            files = [x for x in numbers.index.names if x == "file"]
            numbers = numbers.groupby(level=files).tail(1) if files else numbers.tail(1)
            over = "runs (the last epoch of each)"
        if numbers.empty:
            continue
        mean = "harmonic mean" if _RATES.search(quantity) and len(numbers) > 1 else "mean"
        over_these = "" if how and over == "lines" else f"{mean} over {over}"
        words = ", ".join(filter(None, (how, over_these)))
        made = {"quantity": name, "value": _mean(quantity, numbers), "n": len(numbers)}
        yield {**dict(zip(POINT, point, strict=True)), **made, "reducer": words}


def _over_ranks(
    rows: pd.DataFrame, quantity: str, form: Format
) -> tuple[pd.Series[float], str, int]:
    """Reduce a quantity over ranks to one number for each run, epoch and step.

    Returns these numbers, in words how ranks were reduced ('' if they were not), and how many
    numbers were left out because ranks are missing.
    """
    when = [name for name in ("run", "epoch", "step") if rows[name].notna().any()]
    ranked = rows["rank"].notna().any()
    in_files = rows.groupby("file")["rank"].agg(frozenset)
    a_rank_a_file = len(in_files) == rows["rank"].nunique() and in_files.map(len).eq(1).all()
    if len(in_files) > 1 and not (ranked and a_rank_a_file):
        when = ["file", *when]
    grouped = rows.groupby(when or ["quantity"], dropna=False)
    values, world = grouped["value"], float(rows["world_size"].iloc[0])
    by_moment, whole = values.agg(partial(_mean, quantity)), grouped.size() > 0
    if not ranked:
        how = ""
        if quantity == RANK_RATE and world > 1:
            by_moment, how = by_moment * world, "one rank times world size"
            whole &= form.one_speaks
        return by_moment[whole], how if whole.all() else "", int((~whole).sum())
    present = grouped["rank"].nunique()
    most = world if quantity == RANK_RATE else present.max()
    how = f"{'harmonic mean' if _RATES.search(quantity) else 'mean'} over ranks"
    if quantity == RANK_RATE:
        by_moment, how = values.sum(), "sum over ranks"
    elif quantity.endswith("_seconds"):
        by_moment, how = values.max(), "slowest rank"
    how += "" if most == world else f" ({most} of {world:.0f})"
    whole = present == most
    return by_moment[whole], how, int((~whole).sum())


def by_epoch(values: pd.DataFrame, form: Format) -> Iterator[str]:
    """Yield Markdown: for each size a table with a row per epoch and a column per quantity."""
    sizes: dict[tuple[str, str], dict[str, pd.Series[float]]] = {}
    keys = [*POINT, "quantity"]
    grouped: Any = values[values["epoch"].notna()].groupby(keys, dropna=False, sort=False)
    for (*point, quantity), rows in grouped:
        numbers, how, _ = _over_ranks(rows, quantity, form)
        how = how.replace(" over ranks", "") or "mean"
        name = f"{RATE if quantity == RANK_RATE else quantity} ({how})"
        if len(numbers):
            size = f"{point[1]}, {count(int(point[2]), 'rank')}:"
            means = numbers.groupby(level="epoch").agg(partial(_mean, quantity))
            sizes.setdefault((size, str(point)), {})[name] = means
    for (size, _), columns in sizes.items():
        cells = pd.DataFrame(columns).reset_index().map("{:g}".format).replace("nan", "-")
        yield from [size] if len(sizes) > 1 else []
        yield table([*cells.columns], cells.itertuples(index=False))
    yield from [] if sizes else ["No number names an epoch."]
