"""Time to accuracy: DAWNBench's TSV, and a line a run such as those of ml-cifar-10-faster.

`Train acc 0.988 loss 0.920, validation acc 0.942 loss 0.992 wall time 10.318s`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import NUMBER, Format, long, table, wide

_RUN = re.compile(
    rf"Train acc (?P<train_accuracy>{NUMBER}) loss (?P<train_loss>{NUMBER}), "
    rf"validation acc (?P<validation_accuracy>{NUMBER}) loss (?P<validation_loss>{NUMBER}) "
    rf"wall time (?P<run_seconds>{NUMBER})s"
)
_HEAD = re.compile(r"epochs?\thours\ttop1Accuracy")
_PLAIN = r"(\d{1,9}(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_ROW = re.compile(rf"(\d{{1,9}})\t{_PLAIN}\t{_PLAIN}")


def _read(text: str) -> pd.DataFrame:
    if _HEAD.search(text):
        return table(_epochs(text))
    lines = wide(_RUN, text)
    return long(lines.assign(run=range(len(lines))))  # each line is a run


def _epochs(text: str) -> Iterator[dict[str, Any]]:
    """Hours are cumulative, and count no validation; accuracy in percent becomes a share."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if _HEAD.fullmatch(words):
            inside = True
        elif inside and words:
            row = _ROW.fullmatch(words)
            if row is None:
                wrong = f"line {number}: {words[:60]!r} is no epoch, hours, top1Accuracy"
                raise UsageError(f"{wrong}; mend it, or take it out")
            epoch, hours, percent = int(row[1]), float(row[2]), float(row[3])
            yield {"quantity": "run_seconds", "value": 3600 * hours, "epoch": epoch}
            yield {"quantity": "validation_accuracy", "value": percent / 100, "epoch": epoch}


FORMAT = Format(
    read=_read,
    written_by="DAWNBench, and apple/ml-cifar-10-faster",
    of_a_rank=False,
    cumulative=True,
    notes=("seconds are cumulative and leave validation out: those of the last epoch count",),
)
