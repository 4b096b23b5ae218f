"""itwinai's scalability reports: CSV with name, nodes, epoch_id, time (seconds)."""

from __future__ import annotations

import pandas as pd

from plots.imports.observation import Format
from plots.imports.plain_csv import numbers, rows

_NAMES = {"name": "backend", "nodes": "world_size", "epoch_id": "epoch", "time": "epoch_seconds"}


def _read(text: str) -> pd.DataFrame:
    return numbers(rows(text, tuple(_NAMES))[list(_NAMES)].rename(columns=_NAMES))


FORMAT = Format(
    read=_read,
    written_by="interTwin-eu/itwinai",
    of_a_rank=False,
    notes=("world size is the number of nodes, not of ranks",),
)
