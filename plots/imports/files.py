"""Foreign logs of one format as one table, completed by what the user gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bench.config import UsageError
from plots.imports.observation import COLUMNS, RATE, WORDS, Format, ImportOptions
from plots.imports.text import Log, decode

MOST_RANKS = 10_000_000
POINT = ["source", "backend", "world_size", "batch_per_rank", "global_batch", "bytes"]
EXTRA = ["source", "reducer", "n"]  # of tables of points that are read back
_OPTIONS = {
    "backend": "backend",
    "world_size": "world-size",
    "batch_per_rank": "batch",
    "global_batch": "global-batch",
}


def read_files(
    form: Format, name: str, paths: Sequence[Path], options: ImportOptions
) -> tuple[pd.DataFrame, list[str]]:
    """Every number of every file, and what must be told. Raises UsageError, naming the file."""
    parts: list[pd.DataFrame] = []
    warnings: list[str] = []
    seen: dict[bytes, Path] = {}
    alike = len({path.name for path in paths}) < len(paths)
    for path in paths:
        try:
            data = path.read_bytes()
            if data in seen:
                raise UsageError(f"the same log as {seen[data]}; name each once")
            seen[data] = path
            part, of_file = _read_one(form, name, decode(data, path.name), options)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; name a log") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        label = str(path) if alike else path.name
        parts.append(part.assign(file=part["file"].fillna(label)))
        warnings += (f"{label}: {warning}" for warning in of_file)
    values = pd.concat(parts, ignore_index=True)
    return _told_apart(values, form, name, options), warnings


def _read_one(
    form: Format, name: str, log: Log, options: ImportOptions
) -> tuple[pd.DataFrame, list[str]]:
    reading = form.read(log, options)
    warnings = list(reading.warnings)
    values = reading.values.reindex(columns=[*COLUMNS, *EXTRA, "file"])
    if values.empty:
        nothing = f"nothing in it is of the format {name} ({form.written_by})"
        raise UsageError("; ".join([nothing, *warnings, "choose another format"]))
    values = values.astype(dict.fromkeys(("reducer", "source", "file", *WORDS), object))
    if form.one_speaks and values["rank"].nunique() == 1:
        values = values.assign(rank=float("nan"))
    values = _with_options(values, options)
    values = _with_world_size(values, log, warnings)
    if values["backend"].isna().any():
        values["backend"] = values["backend"].where(values["backend"].notna(), "not said")
        warnings.append("nobody said the backend; use --backend")
    _require_possible(values)
    per_epoch = values.dropna(subset=["rank", "epoch"]).groupby("epoch")["rank"].nunique()
    if per_epoch.nunique() > 1:
        counts = ", ".join(map(str, sorted(per_epoch.unique())))
        warnings.append(f"epochs hold different numbers of ranks ({counts})")
    if bad := int((~np.isfinite(values["value"])).sum()):
        warnings.append(f"{bad} values are nan or inf, and not averaged")
    return values, warnings


def _with_options(values: pd.DataFrame, options: ImportOptions) -> pd.DataFrame:
    for column, option in _OPTIONS.items():
        value = getattr(options, column)
        if value is None:
            continue
        stated = [x for x in values[column].dropna().unique() if x != value]
        if column == "backend":  # horovod/nccl says more than horovod
            stated = [x for x in stated if not value.startswith(f"{x}/")]
        if stated:
            words = ", ".join(sorted(x if isinstance(x, str) else f"{x:g}" for x in stated))
            raise UsageError(f"it says {column} {words} itself; leave out --{option} {value}")
        values[column] = value
    model = [f", {model}" if isinstance(model, str) else "" for model in values["model"]]
    source = pd.Series([f"{options.source}{suffix}" for suffix in model], index=values.index)
    return values.assign(source=values["source"].fillna(source))  # each model has curves of its own


def _with_world_size(values: pd.DataFrame, log: Log, warnings: list[str]) -> pd.DataFrame:
    """Inferred only where every rank up to the last one is there."""
    if values["world_size"].notna().all():
        return values
    ranks = {float(rank) for rank in values["rank"].dropna()}
    tagged = {float(line.rank) for line in log.lines if line.rank is not None}
    ranks |= tagged
    if not ranks or ranks != set(map(float, range(len(ranks)))) or tagged == {0.0}:
        raise UsageError("no line of it tells the world size; use --world-size")
    warnings.append(f"world size {len(ranks)} is inferred from the ranks in it")
    return values.assign(world_size=values["world_size"].fillna(len(ranks)))


def _require_possible(values: pd.DataFrame) -> None:
    """Raise UsageError for the first number that no run can have."""
    named = values["rank"].notna()
    if named.any() and not named.all():
        raise UsageError(f"{int((~named).sum())} numbers name no rank, others do; part the file")
    worlds = values["world_size"]
    if len(wrong := worlds[~((worlds >= 1) & (worlds <= MOST_RANKS) & (worlds % 1 == 0))]):
        raise UsageError(f"world size {wrong.iloc[0]:g} is none; 1 to {MOST_RANKS:,} are")
    if (beyond := (values["rank"] >= worlds) | (values["rank"] < 0)).any():
        first = values[beyond].iloc[0]
        world = f"{first['world_size']:.0f}"
        raise UsageError(f"rank {first['rank']:.0f} is in it, and none of a world of {world}")
    measured = values["quantity"].str.endswith(("_seconds", RATE))
    if (negative := measured & (values["value"] < 0)).any():
        first = values[negative].iloc[0]
        raise UsageError(f"{first['quantity']} {first['value']:g} is below 0; mend the line")


def _told_apart(
    values: pd.DataFrame, form: Format, name: str, options: ImportOptions
) -> pd.DataFrame:
    """Several files of one size are runs or ranks: where nothing says which, the user must."""
    several = values.groupby([*POINT, "quantity"], dropna=False)["file"].nunique().max() > 1
    if not several:
        return values
    if options.files == "ranks":
        if form.a_file_is_a_run or values["rank"].notna().any():
            why = "a log is of a whole run" if form.a_file_is_a_run else "lines name their ranks"
            raise UsageError(f"{values['file'].iloc[0]}: {why}; leave out --files ranks")
        rank, files = pd.factorize(values["file"])
        if (values["world_size"] < len(files)).any():
            world = f"{values['world_size'].min():.0f}"
            raise UsageError(f"{len(files)} files are no ranks of a world of {world}")
        return values.assign(rank=rank.astype(float))
    if options.files is None and not form.a_file_is_a_run and values["rank"].isna().all():
        names = ", ".join(dict.fromkeys(values["file"]))
        raise UsageError(f"{names}: of one size; say what they are, --files runs or --files ranks")
    return values
