"""PyTorch's DDP benchmark: JSON with seconds of single iterations, of all ranks in one list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import Format, table


def _read(text: str) -> pd.DataFrame:
    try:
        return table(_iterations(json.loads(text)))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise UsageError("it is no JSON of benchmarks/distributed/ddp/benchmark.py") from None


def _iterations(report: Any) -> Iterator[dict[str, Any]]:
    """The first result of one rank is of no framework, the second of DDP."""
    transport = report.get("distributed_backend")
    ddp = f"ddp/{transport}" if transport else "ddp"
    for run, benchmark in enumerate(report["benchmark_results"]):
        of = {"quantity": "step_seconds", "run": run, "batch_per_rank": benchmark["batch_size"]}
        alone = 0
        for result in benchmark["result"]:
            if not isinstance(result["ranks"], list):
                raise TypeError
            alone += len(result["ranks"]) == 1
            backend = "single" if len(result["ranks"]) == 1 and alone == 1 else ddp
            place = {"world_size": len(result["ranks"]), "backend": backend}
            for step, seconds in enumerate(result["measurements"]):
                yield {**of, **place, "step": step, "value": float(seconds)}


FORMAT = Format(
    read=_read,
    written_by="pytorch/pytorch, benchmarks/distributed/ddp",
    of_a_rank=False,
    notes=(
        "iterations of all ranks are in one list, so which are of one step is lost",
        "the first result of one rank is of no framework, the second of DDP",
    ),
)
