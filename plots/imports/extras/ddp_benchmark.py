"""PyTorch's DDP benchmark: JSON with seconds of all iterations, or the table that it prints.

`   8 GPUs --    1M/8G:  p50:  0.104s     307/s  p75:  0.104s     307/s` and so on, examples per
second of one rank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.config import UsageError
from plots.imports.observation import (
    RATE,
    Format,
    ImportOptions,
    Reading,
    Row,
    as_number,
    cut_off,
    table,
    understood,
)
from plots.imports.text import Log

_PERCENTILES = (50, 75, 90, 95)  # as its own table shows


_BENCHMARK = re.compile(r"Benchmark: (\S+) with batch size (\d+)")
_TRANSPORT = re.compile(r"Distributed backend: (\w+)")
_ROW = re.compile(r"(\d+) GPUs --\s+(no ddp|\d+M/\s*\d+G):((?:\s+p\d+:\s+[\d.]+s\s+\d+/s)+)\s*$")
_CELL = re.compile(r"p(\d+):\s+([\d.]+)s\s+(\d+)/s")
_MARKER = re.compile(r"\d GPUs --")


def _read(log: Log, options: ImportOptions) -> Reading:
    if any(_MARKER.search(line.text) for line in log.lines):
        return _printed(log)
    try:
        return Reading(table(_results(json.loads(log.text))))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise UsageError("it is no JSON of benchmarks/distributed/ddp/benchmark.py") from None


def _printed(log: Log) -> Reading:
    rows: list[Row] = []
    marked, lost, last = 0, [], 0
    transport, place = "", {}
    for line in log.lines:
        if match := _TRANSPORT.search(line.text):
            transport = f"/{match[1]}"
        elif match := _BENCHMARK.search(line.text):
            place = {"model": match[1], "batch_per_rank": int(match[2])}
        elif _MARKER.search(line.text):
            marked += 1
            if (row := _ROW.search(line.text)) is None or not place:
                lost.append(line)
                continue
            last, world = line.number, int(row[1])
            backend = "single" if row[2] == "no ddp" else f"ddp{transport}"
            rows += _of_row(row[3], {**place, "world_size": world, "backend": backend})
    return Reading(table(rows), [*understood(marked, lost), *cut_off(log, last)])


def _of_row(cells: str, place: Row) -> Iterator[Row]:
    """Examples per second are the batch over the seconds, which are rounded more."""
    for p, text, rate in _CELL.findall(cells):
        seconds = as_number(text, f"p{p}")
        if not abs(place["batch_per_rank"] - seconds * int(rate)) <= 0.00051 * int(rate) + seconds:
            rates = f"{place['batch_per_rank']} examples in {text} s are not {rate}/s"
            raise UsageError(f"{rates}; mend the line, or take it out")
        yield {"quantity": f"p{p}_step_seconds", "value": seconds, **place}
        if p == "50":
            yield {"quantity": RATE, "value": place["world_size"] * int(rate), **place}


def _results(report: Any) -> Iterator[Row]:
    """A point for each model and number of ranks.

    The first result of one rank is of no framework, the second of DDP.
    """
    transport = report.get("distributed_backend")
    ddp = f"ddp/{transport}" if transport else "ddp"
    for benchmark in report["benchmark_results"]:
        batch, model = benchmark["batch_size"], benchmark.get("model")
        alone = 0
        for result in benchmark["result"]:
            if not isinstance(result["ranks"], list):
                raise TypeError
            world = len(result["ranks"])
            alone += world == 1
            backend = "single" if world == 1 and alone == 1 else ddp
            place = {"world_size": world, "backend": backend, "batch_per_rank": batch}
            place |= {"model": str(model)} if model else {}
            seconds = [float(s) for s in result["measurements"]]
            if not seconds or world < 1 or not min(seconds) > 0:
                raise ValueError
            for step, value in enumerate(seconds):
                yield {"quantity": "step_seconds", "value": value, "step": step, **place}
            yield {"quantity": RATE, "value": world * batch / np.mean(seconds), **place}
            for p in _PERCENTILES:
                value = float(np.percentile(seconds, p))
                yield {"quantity": f"p{p}_step_seconds", "value": value, **place}


FORMAT = Format(
    read=_read,
    written_by="pytorch/pytorch, benchmarks/distributed/ddp",
    a_file_is_a_run=True,
    how={
        RATE: "images of all ranks over the mean step (of a printed table: the median step)",
        **{f"p{p}_step_seconds": "percentile over iterations of all ranks" for p in _PERCENTILES},
    },
    notes=(
        "iterations of all ranks are in one list, so which are of one step is lost",
        "the first result of one rank is of no framework, the second of DDP",
    ),
)
