"""Observed steps as a Chrome trace, which Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.record import Run
from bench.record.events import PARTS

_US = 1e6  # the format counts microseconds


def reserve(path: Path) -> None:
    """Create it, empty, before anything is measured. Raises UsageError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        wrong = f"trace={str(path)!r} cannot be created: {error.strerror}"
        raise UsageError(f"{wrong}; choose another name") from None


def write(path: Path, run: Run) -> None:
    """All observed steps of a log, or no file. Raises UsageError where it cannot be written."""
    try:
        path.write_text(json.dumps(list(spans(run))))
    except OSError as error:
        path.unlink(missing_ok=True)
        wrong = f"trace={str(path)!r} cannot be written: {error.strerror}"
        raise UsageError(f"{wrong}; make room, or leave --trace out") from None


def spans(run: Run) -> Iterator[dict[str, Any]]:
    """Events of the format: each rank is a process, each step, part of one and exchange a span."""
    for rank in run.host.get("ranks", ()):
        name = {"name": f"rank {rank['rank']} on {rank['hostname']}"}
        yield {"name": "process_name", "ph": "M", "pid": rank["rank"], "args": name}
        for thread, name_of in enumerate(("steps", "exchanges")):
            thread_event = {"ph": "M", "pid": rank["rank"], "tid": thread}
            yield {**thread_event, "name": "thread_name", "args": {"name": name_of}}
    for event in (event for event in run.events if event["event"] == "exchanges"):
        for rank, exchanges in enumerate(event["ranks"]):
            for exchange in exchanges:
                span = {
                    "name": exchange["name"],
                    "ts": exchange["begin_s"] * _US,
                    "dur": exchange["seconds"] * _US,
                }
                yield {
                    "ph": "X",
                    "pid": rank,
                    "tid": 1,
                    "args": {"bytes": exchange["bytes"]},
                    **span,
                }
    steps_done = 0  # steps
    for event in (event for event in run.events if event["event"] == "breakdown"):
        for rank, begins in enumerate(event["begin"]):
            for step, begin in enumerate(begins):
                seconds = [event[part][rank][step] for part in PARTS]
                base = {"ph": "X", "pid": rank, "tid": 0}
                args = {"phase": event["phase"], "window": event["index"]}
                step_span = {"name": f"step {steps_done + step}", "ts": begin * _US, "args": args}
                yield {**base, **step_span, "dur": sum(seconds) * _US}
                for part, lasts in zip(PARTS, seconds, strict=True):
                    yield {**base, "name": part, "ts": begin * _US, "dur": lasts * _US}
                    begin += lasts
        steps_done += len(event["begin"][0])
