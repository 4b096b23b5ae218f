"""Horovod's own timeline: started for a run, read back as exchanges on our clock."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.backends.protocol import Evidence, Exchanged

DYNAMIC = {"HOROVOD_TIMELINE": "DYNAMIC"}  # it is started and stopped while Horovod runs
_CLOCK = "bench.clock"  # an exchange that we time too: it relates Horovod's clock to ours
# what Horovod does with the bytes of gradients, by its own names in a timeline
_EXCHANGES = ("MPI_ALLREDUCE", "GLOO_ALLREDUCE", "NCCL_ALLREDUCE")
_COPIES = ("MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER")
_US = 1e-6


class Recording:
    """From `__init__` to `stop`; every rank calls both, and rank 0 has the file."""

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self._folder = tempfile.TemporaryDirectory(prefix="horovod-timeline-")
        self._path = Path(self._folder.name, "timeline.json")
        hvd.start_timeline(str(self._path))
        # the file is opened at the end of a cycle, so it is open after one exchange
        hvd.allreduce(torch.zeros(1), name="bench.start")
        hvd.allreduce(torch.zeros(1), name=_CLOCK)
        self._clock_s = time.perf_counter()

    def stop(self, steps: int) -> Evidence:
        """What the timeline says of `steps` steps; nothing on ranks other than 0."""
        self._hvd.stop_timeline()
        self._hvd.allreduce(torch.zeros(1), name="bench.stop")
        text = self._path.read_text() if self._path.exists() else "[]"
        self._folder.cleanup()
        return evidence(parse(text), self._clock_s, steps)


def parse(text: str) -> list[dict[str, Any]]:
    """Events of a timeline; of a process that was killed the array has no end."""
    for end in ("", "]"):
        try:
            events = json.loads(text.rstrip().rstrip(",") + end)
        except ValueError:
            continue
        return [event for event in events if event]
    # the last event is torn as well
    complete_lines, _, _ = text.rpartition("\n")
    return parse(complete_lines) if complete_lines else []


def evidence(events: Iterable[Mapping[str, Any]], clock_s: float, steps: int) -> Evidence:
    """Exchanges in seconds of the clock that read `clock_s` when the exchange `_CLOCK` ended, and
    mean seconds per step of each activity.
    """
    spans = list(_spans(events))
    mark = max((end for tensor, _, _, end, _ in spans if tensor.endswith(_CLOCK)), default=None)
    if mark is None:
        return Evidence()
    gradient_spans = [span for span in spans if "bench." not in span[0]]
    exchange_spans = [s for s in gradient_spans if s[1] in _EXCHANGES]
    seconds = dict.fromkeys((*_EXCHANGES, *_COPIES), 0.0)
    exchanges = []
    for begin, end, count, size in _joined(exchange_spans):
        name = f"all-reduce of {count} gradients"
        exchanges.append(Exchanged(name, clock_s + _US * (begin - mark), _US * (end - begin), size))
    for name in seconds:
        parts = _joined(s for s in gradient_spans if s[1] == name)
        seconds[name] = math.fsum(_US * (end - begin) for begin, end, _, _ in parts) / steps
    return Evidence({name: s for name, s in seconds.items() if s}, exchanges)


_Span = tuple[str, str, float, float, int]  # tensor, activity, begin and end in us, bytes


def _spans(events: Iterable[Mapping[str, Any]]) -> Iterator[_Span]:
    """Begins and ends of a tensor are nested, so an end is of the last begin."""
    names: dict[int, str] = {}
    open_: dict[int, list[tuple[str, float]]] = defaultdict(list)
    closed: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    for event in events:
        pid = event.get("pid", 0)
        match event.get("ph"):
            case "M" if event.get("name") == "process_name":
                names[pid] = str(event["args"].get("name", ""))  # the clock has none
            case "B":
                open_[pid].append((str(event["name"]), float(event["ts"])))
            case "E" if open_[pid]:
                activity, begin = open_[pid].pop()
                closed[pid].append((activity, begin, float(event["ts"])))
                if not open_[pid]:  # the tensor's whole exchange: its end says how large it is
                    size = _bytes(event.get("args", {}))
                    for inner, start, end in closed.pop(pid):
                        yield names.get(pid, ""), inner, start, end, size


def _bytes(args: Mapping[str, Any]) -> int:
    shape = [
        int(word) for word in str(args.get("shape", "")).strip("[]").split(",") if word.strip()
    ]
    width = {"float64": 8, "float16": 2, "bfloat16": 2}.get(str(args.get("dtype")), 4)
    return width * math.prod(shape) if shape else 0


def _joined(spans: Iterable[_Span]) -> Iterator[tuple[float, float, int, int]]:
    """Begin, end, tensors and bytes: tensors that travel together have almost the same times."""
    group: tuple[float, float, int, int] | None = None
    for _, _, begin, end, size in sorted(spans, key=lambda span: span[2]):
        if group is not None and begin < group[1]:
            group = (group[0], max(end, group[1]), group[2] + 1, group[3] + size)
            continue
        if group is not None:
            yield group
        group = (begin, end, 1, size)
    if group is not None:
        yield group
