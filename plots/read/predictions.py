"""What was predicted of a study's curves, as `python -m plots predict` wrote it beside its logs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.config import UsageError, explain
from bench.record.archive import logs_in, read_file

FOLDER = "predictions"  # beside a study's runs
_Efficiency = Annotated[float, Field(ge=0, le=100)]


class PredictionLine(BaseModel):
    """One number of ranks of a curve; what else a line has is not read."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: str  # the cell and its variant
    curve: Literal["weak", "strong"]
    images: Annotated[int, Field(ge=1)]  # of a rank (weak) or of a step (strong)
    world_size: Annotated[int, Field(ge=2)]
    use: Literal["fitted", "predicted"]
    predicted_efficiency: _Efficiency
    low: _Efficiency
    high: _Efficiency
    doubt: str = ""


def read(folder: Path) -> list[PredictionLine]:
    """All lines of FOLDER/predictions/*.csv. Raises UsageError for what is none, or there twice."""
    lines = [line for path in logs_in(folder / FOLDER, ".csv") for line in _lines(path)]
    keys = [(line.name, line.curve, line.images, line.world_size) for line in lines]
    if len({*keys}) < len(keys):
        name, curve, _, ranks = next(key for key in keys if keys.count(key) > 1)
        twice = f"{name}, {curve} scaling, {ranks} ranks is predicted twice"
        raise UsageError(f"{folder / FOLDER}: {twice}; leave one file of each")
    return lines


def _lines(path: Path) -> Iterator[PredictionLine]:
    try:
        rows = [*csv.DictReader(read_file(path).decode().splitlines())]
        yield from map(PredictionLine.model_validate, rows)
    except (OSError, ValueError, csv.Error) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        cure = "write it with python -m plots predict STUDY --format csv"
        raise UsageError(f"{path} is no table of predictions: {why[:200]}; {cure}") from None
