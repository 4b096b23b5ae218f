"""From foreign logs to points: one value for each size, its reducer named, and no interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import COLUMNS, Format, decode

_RATE = "images_per_s"
_POINT = ["source", "backend", "world_size", "batch_per_rank", "global_batch"]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the files do not say, and the user does; None where the files must."""

    backend: str | None = None
    world_size: int | None = None
    batch_per_rank: int | None = None
    global_batch: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Imported:
    """All numbers of all files, the points made of them, and what had to be assumed."""

    values: pd.DataFrame  # `COLUMNS`, and file, source, global_batch
    points: pd.DataFrame  # a row for each quantity of each size: value, n, reducer
    warnings: Sequence[str]


def read(form: Format, name: str, files: Sequence[Path], given: Given) -> Imported:
    """Read files of one format. Raises UsageError where one holds nothing of it."""
    parts, warnings = [], []
    for path in files:
        try:
            found = form.read(decode(path.read_bytes()))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; name a log") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if found.empty:
            said = f"{path}: nothing in it is of the format {name} ({form.written_by})"
            raise UsageError(f"{said}; choose another format")
        completed, said_of_it = _completed(found.reindex(columns=list(COLUMNS)), path, given)
        parts.append(completed)
        warnings += said_of_it
    values = pd.concat(parts, ignore_index=True)
    return Imported(values, pd.DataFrame(list(_points(values, form))), warnings)


def _completed(found: pd.DataFrame, path: Path, given: Given) -> tuple[pd.DataFrame, list[str]]:
    """With what the user gave, and what follows from the file, of which a warning tells."""
    warnings = []
    told = found.assign(file=path.name, source=given.source or path.name)
    for column in ("backend", "world_size", "batch_per_rank"):
        if (value := getattr(given, column)) is not None:
            told[column] = told[column].where(told[column].notna(), value)
    if told["world_size"].isna().any():
        ranks = told["rank"].nunique() or 1
        told["world_size"] = told["world_size"].fillna(ranks)
        warnings.append(f"{path.name}: world size {ranks} is inferred from the ranks in it")
    if told["backend"].isna().any():
        told["backend"] = told["backend"].where(told["backend"].notna(), "not said")
        warnings.append(f"{path.name}: nobody said the backend; use --backend")
    per_epoch = told.dropna(subset=["rank", "epoch"]).groupby("epoch")["rank"].nunique()
    if per_epoch.nunique() > 1:
        counts = ", ".join(map(str, sorted(per_epoch.unique())))
        warnings.append(f"{path.name}: epochs hold different numbers of ranks ({counts})")
    bad = told["value"].isin([float("inf"), float("-inf")]) | told["value"].isna()
    if bad.any():
        warnings.append(f"{path.name}: {int(bad.sum())} values are nan or inf, and not averaged")
    return told.assign(global_batch=given.global_batch), warnings


def _points(values: pd.DataFrame, form: Format) -> Iterator[dict[str, object]]:
    finite = values[values["value"].abs() < float("inf")]
    grouped: Any = finite.groupby([*_POINT, "quantity"], dropna=False, sort=True)
    for key, rows in grouped:
        *point, quantity = key
        means, over = _reduced(rows, quantity, form)
        place = {k: None if pd.isna(v) else v for k, v in zip(_POINT, point, strict=True)}
        yield {
            **place,
            "quantity": quantity,
            "value": float(means.mean()),
            "n": len(means),
            "reducer": over,
        }


def _reduced(rows: pd.DataFrame, quantity: str, form: Format) -> tuple[pd.Series, str]:
    """One number for each epoch, step or line, and in words what was done."""
    when = [name for name in ("file", "run", "epoch", "step") if rows[name].notna().any()]
    named = [name for name in when if name != "file"]
    over = " and ".join(f"{name}s" for name in named) or "lines"
    if rows["rank"].notna().any():
        grouped = rows.groupby([*when], dropna=False)["value"]
        if quantity == _RATE and form.of_a_rank:
            return grouped.sum(), f"sum over ranks, mean over {over}"
        if quantity.endswith("_seconds"):
            return grouped.max(), f"slowest rank, mean over {over}"
        return grouped.mean(), f"mean over ranks and {over}"
    if quantity == _RATE and form.of_a_rank:
        worlds = rows["world_size"].astype(float)
        return rows["value"] * worlds, f"one rank times world size, mean over {over}"
    return rows["value"], f"mean over {over}"
