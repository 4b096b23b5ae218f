"""itwinai's scalability reports: CSV with name, nodes, epoch_id, time (seconds)."""

from __future__ import annotations

from plots.imports.observation import Format, Given, Reading, cut_off
from plots.imports.plain_csv import numbers, rows
from plots.imports.text import Log

_NAMES = {"name": "backend", "nodes": "world_size", "epoch_id": "epoch", "time": "epoch_seconds"}


def _read(log: Log, given: Given) -> Reading:
    texts = rows(log.text, tuple(_NAMES))[list(_NAMES)].rename(columns=_NAMES)
    return Reading(numbers(texts), cut_off(log, len(log.lines)))


FORMAT = Format(
    read=_read,
    written_by="interTwin-eu/itwinai",
    a_file_is_a_run=True,
    notes=("world size is the number of nodes, not of ranks",),
)
