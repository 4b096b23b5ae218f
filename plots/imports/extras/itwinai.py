"""itwinai's scalability reports: CSV with name, nodes or workers, epoch_id, time (seconds)."""

from __future__ import annotations

from bench.config import UsageError
from plots.imports.extras.csv import numbers, rows
from plots.imports.observation import Format, ImportOptions, Reading, cut_off
from plots.imports.text import Log

_NAMES = {"name": "backend", "epoch_id": "epoch", "time": "epoch_seconds"}


def _read(log: Log, options: ImportOptions) -> Reading:
    texts = rows(log.text, tuple(_NAMES))
    size = "workers" if "workers" in texts else "nodes"  # of versions until 2025
    if size not in texts:
        raise UsageError("no column workers or nodes; it is none of itwinai's epoch times")
    names = {**_NAMES, size: "world_size"}
    warnings = ["world size is the number of nodes, not of ranks"] if size == "nodes" else []
    values = numbers(texts[list(names)].rename(columns=names))
    return Reading(values, [*warnings, *cut_off(log, len(log.lines))])


FORMAT = Format(
    read=_read,
    written_by="interTwin-eu/itwinai",
    a_file_is_a_run=True,
)
