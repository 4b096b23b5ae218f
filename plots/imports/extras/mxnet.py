"""MXNet's example scripts: epoch lines, and speed lines of all versions since 2015."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pandas as pd

from plots.imports.observation import (
    NUMBER,
    RANK_RATE,
    RATE,
    SPACE,
    Format,
    ImportOptions,
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
_GPUS = re.compile(r"\bgpus='([\d, ]+)'|training with \[(gpu[^]]+)]")
_ALONE = re.compile(r"\bkv_store='(?:local|device|nccl)")
_MARKER = re.compile(r"samples/sec|(?:\b(?:Train|Validation)-[\w-]+|\bTime cost)=")


def _read(log: Log, options: ImportOptions) -> Reading:
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
    values, warnings = _of_its_gpus(table(rows), log.text)
    return Reading(values, [*understood(marked, lost), *warnings, *cut_off(log, last)])


def _of_its_gpus(values: pd.DataFrame, text: str) -> tuple[pd.DataFrame, list[str]]:
    """With the GPUs of a worker that runs alone: its rate is of all of them."""
    lists = {len(re.findall(r"\d+", m[1] or m[2])) for m in _GPUS.finditer(text)}
    if max(lists, default=1) == 1:
        return values, []
    if len(lists) > 1 or not _ALONE.search(text) or (values["rank"] > 0).any():
        several = " or ".join(map(str, sorted(lists)))
        return values, [f"a worker has {several} GPUs: the world size counts workers"]
    quantity = values["quantity"].replace(RANK_RATE, RATE)
    gpus = float(lists.pop())
    return values.assign(quantity=quantity, rank=float("nan"), world_size=gpus), []


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
