"""MXNet's example scripts: epoch lines, and speed lines of all versions since 2015."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plots.imports.observation import (
    NUMBER,
    RANK_RATE,
    SPACE,
    Format,
    Given,
    Reading,
    Row,
    cut_off,
    cuts_a_number,
    of_groups,
    table,
    understood,
)
from plots.imports.text import Line, Log

# later versions name the worker before the line
_HEAD = r"(?:Node\[(?P<rank>\d+)\] )?"
_EPOCH = re.compile(
    rf"{_HEAD}Epoch\[(?P<epoch>\d+)\] "
    rf"(?:(?P<metric>(?:Train|Validation)-[\w-]+)=(?P<value>{NUMBER})"
    rf"|Time cost=(?P<epoch_seconds>{NUMBER}))(?!\w)"
)
_SPEED = re.compile(
    rf"{_HEAD}(?:Epoch|Iter)\[(?P<epoch>\d+)\] Batch \[(?:\d+-)?(?P<step>\d+)\]"
    rf"{SPACE}Speed: (?P<{RANK_RATE}>{NUMBER}) samples/sec"
)
_METRIC = re.compile(rf"{SPACE}(?:Train-)?(?P<metric>[a-zA-Z][\w-]*)=(?P<value>{NUMBER})(?!\w)")
_MARKER = re.compile(r"samples/sec|(?:\b(?:Train|Validation)-[\w-]+|\bTime cost)=")


def _read(log: Log, given: Given) -> Reading:
    rows: list[Row] = []
    marked, lost, last = 0, [], 0
    for line in log.lines:
        if not _MARKER.search(line.text):
            continue
        marked += 1
        numbers = list(_of(line))
        rows += numbers
        if numbers:
            last = line.number
        if not numbers or len(re.findall(r"(?:Epoch|Iter)\[", line.text)) > 1:
            lost.append(line)
    return Reading(table(rows), [*understood(marked, lost), *cut_off(log, last)])


def _of(line: Line) -> Iterator[Row]:
    """A speed line's metrics are of the batches up to it, an epoch line's of the epoch."""
    speed = _SPEED.search(line.text)
    if speed and not cuts_a_number(speed):
        yield from of_groups(speed.groupdict(), line)
        places = {name: speed[name] for name in ("rank", "epoch", "step")}
        for metric in _METRIC.finditer(line.text, speed.end()):
            yield from _named(metric, f"batch_{metric['metric']}", line, places)
        return
    for match in _EPOCH.finditer(line.text):
        if match["metric"]:
            places = {name: match[name] for name in ("rank", "epoch")}
            yield from _named(match, match["metric"], line, places)
        elif not cuts_a_number(match):
            yield from of_groups(match.groupdict(), line)


def _named(
    match: re.Match[str], name: str, line: Line, places: dict[str, str | None]
) -> Iterator[Row]:
    """A metric's quantity: train_accuracy, validation_cross_entropy, batch_accuracy."""
    if not cuts_a_number(match):
        yield from of_groups({**places, name.lower().replace("-", "_"): match["value"]}, line)


FORMAT = Format(
    read=_read,
    written_by="apache/mxnet, example/distributed-training and its successors",
    notes=(
        "lines of early versions do not name the worker: give one file of each, --files ranks",
        "its own tables average synchronous workers and take the slowest of asynchronous ones",
    ),
)
