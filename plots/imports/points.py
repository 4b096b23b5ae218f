"""From foreign logs to points: one value for each size, its reducer named, and no interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import UsageError
from plots.imports.observation import COLUMNS, Format, constant, decode

MOST_RANKS = 10_000_000
_RATE = "images_per_s"
_OPTIONS = {"backend": "backend", "world_size": "world-size", "batch_per_rank": "batch"}
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
    """Files of one format. Raises UsageError where one holds nothing of it, or what cannot be."""
    parts: list[pd.DataFrame] = []
    warnings: list[str] = []
    seen: dict[bytes, Path] = {}
    for path in files:
        try:
            data = path.read_bytes()
            if data in seen:
                raise UsageError(f"the same log as {seen[data]}; name each once")
            seen[data] = path
            found = form.read(decode(data))
            if found.empty:
                said = f"nothing in it is of the format {name} ({form.written_by})"
                raise UsageError(f"{said}; choose another format")
            completed, said_of_it = _completed(found, path, given)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; name a log") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        parts.append(completed)
        warnings += (f"{path.name}: {warning}" for warning in said_of_it)
    values = pd.concat(parts, ignore_index=True)
    points = pd.DataFrame(list(_points(values, form, warnings)))
    if points.empty:
        raise UsageError(f"{files[0]}: no number in it is finite; nothing to write")
    return Imported(values, points, warnings)


def _completed(found: pd.DataFrame, path: Path, given: Given) -> tuple[pd.DataFrame, list[str]]:
    """With what the user gave, and what follows from the file, of which a warning tells."""
    warnings = []
    told = found.reindex(columns=list(COLUMNS)).astype({"quantity": "category"})
    told = told.assign(file=constant(path.name, told), source=constant(given.source, told))
    for column in ("backend", "world_size", "batch_per_rank"):
        if (value := getattr(given, column)) is not None:
            if other := sorted({str(x) for x in told[column].dropna().unique() if x != value}):
                said = f"it says {column} {', '.join(other)} itself"
                raise UsageError(f"{said}; leave out --{_OPTIONS[column]} {value}")
            told[column] = constant(value, told) if isinstance(value, str) else value
    named = told["rank"].notna()
    if named.any() and not named.all():
        raise UsageError(f"{int((~named).sum())} numbers name no rank, others do; part the file")
    if told["world_size"].isna().any():
        if not named.any():
            raise UsageError("no line of it tells the world size; use --world-size")
        ranks = told["rank"].nunique()
        told["world_size"] = told["world_size"].fillna(ranks)
        warnings.append(f"world size {ranks} is inferred from the ranks in it")
    if told["backend"].isna().any():
        told["backend"] = told["backend"].where(told["backend"].notna(), "not said")
        warnings.append("nobody said the backend; use --backend")
    _require_possible(told)
    per_epoch = told.dropna(subset=["rank", "epoch"]).groupby("epoch")["rank"].nunique()
    if per_epoch.nunique() > 1:
        counts = ", ".join(map(str, sorted(per_epoch.unique())))
        warnings.append(f"epochs hold different numbers of ranks ({counts})")
    if bad := int((~np.isfinite(told["value"].astype(float))).sum()):
        warnings.append(f"{bad} values are nan or inf, and not averaged")
    return told.assign(global_batch=given.global_batch), warnings


def _require_possible(told: pd.DataFrame) -> None:
    """Raise UsageError for the first number that no run can have."""
    worlds = told["world_size"].astype(float)
    if len(wrong := worlds[~((worlds >= 1) & (worlds <= MOST_RANKS) & (worlds % 1 == 0))]):
        raise UsageError(f"world size {wrong.iloc[0]:g} is none; 1 to {MOST_RANKS:,} are")
    if (beyond := told["rank"] >= worlds).any():
        first = told[beyond].iloc[0]
        world = f"{first['world_size']:.0f}"
        raise UsageError(f"rank {first['rank']:.0f} is in it, and none of a world of {world}")
    measured = told["quantity"].str.endswith(("_seconds", _RATE))
    if (negative := measured & (told["value"].astype(float) < 0)).any():
        first = told[negative].iloc[0]
        raise UsageError(f"{first['quantity']} {first['value']:g} is below 0; mend the line")


def _points(values: pd.DataFrame, form: Format, warnings: list[str]) -> Iterator[dict[str, object]]:
    finite = np.isfinite(values["value"].astype(float))
    kept = values if finite.all() else values[finite]
    grouped: Any = kept.groupby([*_POINT, "quantity"], dropna=False, sort=True)
    for key, rows in grouped:
        *point, quantity = key
        place = {k: None if pd.isna(v) else v for k, v in zip(_POINT, point, strict=True)}
        means, over, left_out = _reduced(rows, quantity, form)
        if left_out:
            world = place["world_size"]
            warnings.append(
                f"{quantity}: {left_out} of {left_out + len(means)} sums over {world:.0f} ranks "
                "are left out, as some of their ranks are not there"
            )
        if len(means):
            shown = {"mean": means.mean()}
            if over.endswith("runs") and len(means) > 1:  # repeats: where they lie
                shown |= {"median": means.median(), "min": means.min(), "max": means.max()}
            for reducer, value in shown.items():
                how = over.replace("mean", reducer, 1)
                yield {
                    **place,
                    "quantity": quantity,
                    "value": float(value),
                    "n": len(means),
                    "reducer": how,
                }


def _reduced(rows: pd.DataFrame, quantity: str, form: Format) -> tuple[pd.Series, str, int]:
    """One number for each epoch, step or line, how it was made, and how many lacked ranks."""
    whose = [name for name in ("file", "run") if rows[name].notna().any()]
    if form.cumulative and rows["epoch"].notna().any():
        last = rows.sort_values("epoch").groupby(whose, dropna=False)["value"].last()
        return last, "last epoch, mean over runs", 0
    when = [*whose, *(name for name in ("epoch", "step") if rows[name].notna().any())]
    over = " and ".join(f"{name}s" for name in when if name != "file") or "lines"
    if rows["rank"].notna().any():
        in_files = rows.groupby("file")["rank"].agg(frozenset)
        if len(in_files) == rows["rank"].nunique() and in_files.map(len).eq(1).all():
            when = [name for name in when if name != "file"]  # each rank wrote a file of its own
        grouped = rows.groupby(when or "quantity", dropna=False)
        if quantity == _RATE and form.of_a_rank:
            whole = grouped["rank"].nunique() == grouped["world_size"].first()
            sums = grouped["value"].sum()
            return sums[whole], f"sum over ranks, mean over {over}", int((~whole).sum())
        if quantity.endswith("_seconds"):
            return grouped["value"].max(), f"slowest rank, mean over {over}", 0
        return grouped["value"].mean(), f"mean over ranks and {over}", 0
    if quantity == _RATE and form.of_a_rank:
        worlds = rows["world_size"].astype(float)
        return rows["value"] * worlds, f"one rank times world size, mean over {over}", 0
    return rows["value"], f"mean over {over}", 0


def by_epoch(values: pd.DataFrame) -> pd.DataFrame:
    """A row for each epoch, a column for each quantity: of seconds the slowest rank's, else means.

    Empty where no number names an epoch.
    """
    rows = values[np.isfinite(values["value"].astype(float))].dropna(subset=["epoch"])
    means: dict[str, pd.Series[float]] = {}
    for quantity, own in rows.groupby("quantity", sort=False):
        grouped = own.groupby("epoch")["value"]
        slowest = str(quantity).endswith("_seconds")
        name = f"{quantity} ({'slowest rank' if slowest else 'mean'})"
        means[name] = grouped.max() if slowest else grouped.mean()
    return pd.DataFrame(means)
