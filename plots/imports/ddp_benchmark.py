"""PyTorch's DDP benchmark: JSON with seconds of single iterations, of all ranks in one list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.config import UsageError
from plots.imports.observation import RATE, Format, Given, Reading, Row, table
from plots.imports.text import Log

_PERCENTILES = (50, 75, 90, 95)  # as its own table shows


def _read(log: Log, given: Given) -> Reading:
    try:
        return Reading(table(_results(json.loads(log.text))))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise UsageError("it is no JSON of benchmarks/distributed/ddp/benchmark.py") from None


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
        RATE: "images of all ranks over the mean of step_seconds",
        **{f"p{p}_step_seconds": "percentile over iterations of all ranks" for p in _PERCENTILES},
    },
    notes=(
        "iterations of all ranks are in one list, so which are of one step is lost",
        "the first result of one rank is of no framework, the second of DDP",
    ),
)
