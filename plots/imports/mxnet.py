"""MXNet's example scripts: epoch lines, and speed lines of all versions since 2015."""

from __future__ import annotations

import pandas as pd

from plots.imports.observation import NUMBER, Format, matched

_SPEED = rf"\s+Speed: (?P<images_per_s>{NUMBER}) samples/sec"
_SOFAR = rf"(?:\s+(?:Train-)?accuracy=(?P<batch_accuracy>{NUMBER}))?"
_BATCH = rf"\[(?P<epoch>\d+)\] Batch \[(?P<step>\d+)(?:-\d+)?\]{_SPEED}{_SOFAR}"
_OF_AN_EPOCH = (
    rf"Train-accuracy=(?P<train_accuracy>{NUMBER})|"
    rf"Validation-accuracy=(?P<validation_accuracy>{NUMBER})|"
    rf"Time cost=(?P<epoch_seconds>{NUMBER})"
)
_LINES = (
    rf"Epoch\[(?P<epoch>\d+)\] (?:{_OF_AN_EPOCH})",
    rf"Iter{_BATCH}",
    rf"Epoch{_BATCH}",
)
_of_one_worker = matched(*_LINES)
# later versions name the worker before the line
_of_all = matched(*(rf"(?:Node\[(?P<rank>\d+)\] )?{line}" for line in _LINES))


def _read(text: str) -> pd.DataFrame:
    return _of_all(text) if "Node[" in text else _of_one_worker(text)


FORMAT = Format(
    read=_read,
    written_by="apache/mxnet, example/distributed-training and its successors",
    of_a_rank=True,
    notes=(
        "lines of early versions do not name the worker: give one file of each worker",
        "its own tables average synchronous workers and take the slowest of asynchronous ones",
    ),
)
