"""Logs of `bench collectives` that lie beside a study: FOLDER/collectives/*.jsonl."""

from __future__ import annotations

from pathlib import Path

from bench.config import UsageError
from bench.study import collectives
from bench.study.collectives import Measured

FOLDER = "collectives"


def read(folder: Path) -> list[Measured]:
    """One log of each cell and number of ranks; [] where the study has none.

    Raises UsageError on a log that cannot be read, and on two of one cell at equally many ranks.
    """
    paths = sorted((folder / FOLDER).glob("*.jsonl"))
    found = {(m.cell, m.ranks): m for m in map(collectives.read, paths)}
    if len(found) < len(paths):
        there = f"{folder / FOLDER}: {len(paths)} logs of {len(found)} cells and numbers of ranks"
        raise UsageError(f"{there}; leave one of each")
    return list(found.values())
