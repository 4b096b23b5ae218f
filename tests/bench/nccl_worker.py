"""A process that loads a backend over a stub of NCCL, writes a log's start, and says its id."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench import backends
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.launch.world import Launch, discover
from bench.record import RunLog
from bench.start import write_start
from bench.train.device import Cpu


class Stubbed(Backend):
    """One rank that believes in a second one, which NCCL reaches over sockets."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        ctypes.CDLL(sys.argv[1])

    def wrap(self, *_: Any) -> Any:
        raise NotImplementedError

    def reduce_scalar(self, value: float, *_: object) -> float:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value, {"NET/Socket"}] if isinstance(value, set) else [value]

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass


def all_reduce(*_: torch.Tensor) -> None:
    assert ctypes.CDLL(sys.argv[1]).ncclAllReduce() == 0, "NCCL writes of every call"


def main() -> None:
    config = RunConfig(backend="stub", transport="nccl", device="cuda", batch_per_rank=1)
    before = dict(os.environ)
    alone: Launch = discover({})
    place: Any = Cpu()
    backend = backends.load(config, replace(alone, size=2), place)
    assert dict(os.environ) == before
    write_start(config, alone, RunLog(Path(sys.argv[2])), backend, place, {})
    print(json.dumps(os.getpid()))


if __name__ == "__main__":
    main()
