"""Foreign logs of one format as one table, completed by what the user gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bench.config import UsageError
from plots.imports.observation import WORDS, Format, ImportOptions
from plots.imports.text import Log, decode

POINT = ["source", "backend", "world_size", "batch_per_rank", "global_batch"]
_OPTIONS = {
    "backend": "backend",
    "world_size": "world-size",
    "batch_per_rank": "batch",
    "global_batch": "global-batch",
}


def read_files(
    form: Format, name: str, paths: Sequence[Path], options: ImportOptions
) -> tuple[pd.DataFrame, list[str]]:
    """Read every number of every file, with all warnings. Raises UsageError, naming the file."""
    parts: list[pd.DataFrame] = []
    warnings: list[str] = []
    seen: dict[bytes, Path] = {}
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
        parts.append(part.assign(file=str(path)))
        warnings += (f"{path.name}: {warning}" for warning in of_file)
    values = pd.concat(parts, ignore_index=True)
    return _told_apart(values, form, options), warnings


def _read_one(
    form: Format, name: str, log: Log, options: ImportOptions
) -> tuple[pd.DataFrame, list[str]]:
    reading = form.read(log, options)
    warnings = list(reading.warnings)
    if reading.values.empty:
        nothing = f"nothing in it is of the format {name} ({form.written_by})"
        raise UsageError("; ".join([nothing, *warnings, "choose another format"]))
    values = reading.values.astype(dict.fromkeys(WORDS, object))
    if form.one_speaks and values["rank"].nunique() == 1:
        values = values.assign(rank=float("nan"))
    values = _with_options(values, options)
    if values["world_size"].isna().any():
        # inferred only where every rank up to the last one is there
        tagged = {float(line.rank) for line in log.lines if line.rank is not None}
        ranks = tagged | {float(rank) for rank in values["rank"].dropna()}
        if not ranks or ranks != set(map(float, range(len(ranks)))) or tagged == {0.0}:
            raise UsageError("no line of it tells the world size; use --world-size")
        warnings.append(f"world size {len(ranks)} is inferred from the ranks in it")
        values["world_size"] = values["world_size"].fillna(len(ranks))
    if values["backend"].isna().any():
        values["backend"] = values["backend"].where(values["backend"].notna(), "not said")
        warnings.append("nobody said the backend; use --backend")
    named, worlds = values["rank"].notna(), values["world_size"]
    if named.any() and not named.all():
        raise UsageError(f"{int((~named).sum())} numbers name no rank, others do; part the file")
    if (worlds < 1).any():
        raise UsageError(f"world size {worlds.min():g} is none")
    if (beyond := values["rank"] >= worlds).any():
        rank, world = values.loc[beyond, ["rank", "world_size"]].iloc[0]
        raise UsageError(f"rank {rank:.0f} is in it, and none of a world of {world:.0f}")
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
    # each model has curves of its own
    models = [f", {model}" if isinstance(model, str) else "" for model in values["model"]]
    return values.assign(source=[f"{options.source}{model}" for model in models])


def _told_apart(values: pd.DataFrame, form: Format, options: ImportOptions) -> pd.DataFrame:
    """Tell files of one size apart as runs or ranks; where nothing says which, the user must."""
    if values.groupby([*POINT, "quantity"], dropna=False)["file"].nunique().max() == 1:
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
