"""A rank's device and its clock. The device is the CPU, or a GPU of its own (CUDA or ROCm)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch

from bench.config import RunConfig, UsageError
from bench.launch.world import Launch


class Stopwatch:
    """The host's clock, for a device that has finished its work when a step returns."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._marks: list[float] = []

    def now(self) -> float:
        """Wait until the device has finished all its work; return the clock, in seconds."""
        return self._clock()

    def mark(self) -> None:
        """Record a moment between steps, without waiting for the device to finish its work."""
        self._marks.append(self._clock())

    def remark(self) -> None:
        """Move the last mark to this moment; never wait for the device."""
        self._marks[-1] = self._clock()

    def times(self) -> list[float]:
        """Return marks since the last call, in seconds from a fixed origin; call `now` first."""
        marks, self._marks = self._marks, []
        return marks


@dataclass(frozen=True)
class TimedSteps:
    """Durations of a rank's consecutive steps: `seconds` of all, `step_seconds` of each."""

    seconds: float
    step_seconds: list[float]


def time_steps(step: Callable[[], object], steps: int, watch: Stopwatch) -> TimedSteps:
    """Run `steps` steps and return their durations; sync the device only before and after them."""
    start = watch.now()
    watch.mark()
    for _ in range(steps):
        step()
        watch.mark()
    seconds = watch.now() - start
    return TimedSteps(seconds, [after - before for before, after in pairwise(watch.times())])


class Cpu:
    """The CPU, timed by the host's clock."""

    torch_device = torch.device("cpu")

    def stopwatch(self) -> Stopwatch:
        return Stopwatch()

    def describe(self) -> dict[str, Any]:
        return {}  # nothing beyond what is recorded of the host

    def peak_memory_bytes(self) -> int | None:
        return None


class Cuda:
    """This rank's GPU. The constructor makes it torch's current device and sets TF32 on or off."""

    def __init__(self, config: RunConfig, launch: Launch) -> None:
        if not torch.cuda.is_available():
            cause = "torch sees no GPU: a CPU build of torch, or no driver"
            raise UsageError(f"device=cuda, but {cause}; use --device cpu")
        index = gpu_index(torch.cuda.device_count(), launch)
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        # set explicitly, as torch's defaults are TF32 for convolutions, but not for matrix products
        mode = "tf32" if config.precision == "tf32" else "ieee"
        torch.backends.cuda.matmul.fp32_precision = mode
        # each kind of cuDNN's operations: in torch 2.11 their common setting changes neither
        torch.backends.cudnn.conv.fp32_precision = mode  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn.fp32_precision = mode  # type: ignore[attr-defined]

    def stopwatch(self) -> Stopwatch:
        return _EventStopwatch(self.torch_device)

    def describe(self) -> dict[str, Any]:
        """Return the GPU's name, UUID and memory in bytes, and the versions of CUDA and cuDNN."""
        properties = torch.cuda.get_device_properties(self.torch_device)
        uuid = str(getattr(properties, "uuid", f"index {self.torch_device.index}"))
        return {
            "gpu": properties.name,
            "gpu_uuid": uuid,
            "gpu_memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda or f"hip {torch.version.hip}",
            "cudnn": torch.backends.cudnn.version(),
        }

    def peak_memory_bytes(self) -> int | None:
        """Return the largest memory, in bytes, that tensors held at once."""
        return torch.cuda.max_memory_allocated(self.torch_device)


class _EventStopwatch(Stopwatch):
    """A GPU's clock. Its marks are events in the GPU's stream, for which the host does not wait."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._first: torch.cuda.Event | None = None

    def now(self) -> float:
        torch.cuda.synchronize(self._device)
        return super().now()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def remark(self) -> None:
        self._events[-1].record()  # an event tells the time of its last record

    def times(self) -> list[float]:
        """Return marks since the last call, in seconds from this clock's first mark."""
        events, self._events = self._events, []
        self._first = self._first or events[0]
        begin, *laps = (a.elapsed_time(b) / 1000 for a, b in pairwise([self._first, *events]))
        return list(accumulate(laps, initial=begin))  # once from milliseconds


Device = Cpu | Cuda


def choose(config: RunConfig, launch: Launch) -> Device:
    """Choose this rank's device. Raises UsageError if device=cuda and GPUs are missing."""
    return Cuda(config, launch) if config.device == "cuda" else Cpu()


def gpu_index(visible: int, launch: Launch) -> int:
    """Return this rank's GPU index, 0 if one GPU is visible. Raises UsageError for too few GPUs."""
    if visible >= launch.local_size:
        return launch.local_rank
    if visible == 1:  # --gpus-per-task=1 and the like; its UUID shows that it is no neighbour's
        return 0
    cure = f"start at most {visible} ranks a node, or ask for more GPUs"
    raise UsageError(f"{launch.local_size} ranks on this node see {visible} GPUs; {cure}")


def require_own_gpus(ranks: Iterable[Mapping[str, Any]]) -> None:
    """Raise UsageError if the facts of `ranks` show two of them on one GPU of one host."""
    owner: dict[tuple[str, str], int] = {}
    for rank in ranks:
        if "gpu_uuid" not in rank:
            continue
        place = (rank["hostname"], rank["gpu_uuid"])
        if place in owner:
            raise UsageError(
                f"ranks {owner[place]} and {rank['rank']} on {place[0]} share GPU {place[1]}; give "
                "each rank one of its own (srun --gpus-per-node with as many tasks, or unset "
                "CUDA_VISIBLE_DEVICES)"
            )
        owner[place] = rank["rank"]
