"""One rank of the tests of parity: exchanges with planted faults, of models that draw and reassign;
rank 0 prints what parity says of each as JSON.

    mpirun -n 2 python -m tests.bench.parity_worker ddp gloo
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench import backends
from bench.config import RunConfig
from bench.instrument.parity import Parity
from bench.launch import world as launch
from bench.launch.resources import environment
from bench.models import build_model
from bench.train import device
from bench.train.input import Input
from bench.train.loop import Loop
from tests.bench import test_parity as models

Parameters = dict[str, nn.Parameter]
MODELS = ("with_state", "forgetful", "recomputed", "unsteady", "moody")


def of_one_rank(rank: int, spoil: Callable[[Parameters], None]) -> Callable[[Parameters], None]:
    """Plant a fault on the last rank alone."""
    return spoil if rank else lambda parameters: None


FAULTS: dict[str, Callable[[Parameters], None]] = {
    "none": lambda parameters: None,
    "scale": models.scale,
    "drop": models.drop,
    "swap": models.swap,
    "delay": models.delay,
}


def spoilt(backend: Any, fault: Callable[[Parameters], None]) -> Callable[..., Any]:
    """Make a `wrap` whose sessions spoil the gradients once they are exchanged."""
    wrap = type(backend).wrap

    def wrapped(model: nn.Module, optimizer: Any, config: RunConfig) -> Any:
        session = wrap(backend, model, optimizer, config)
        exchange = session.synchronize_gradients

        def wrong() -> None:
            exchange()
            fault(dict(model.named_parameters()))

        session.synchronize_gradients = wrong
        return session

    return wrapped


def main(name: str, transport: str) -> None:
    place = launch.discover(os.environ)
    usual: dict[str, Any] = {"backend": name, "transport": transport, "world_size": place.size}
    config = RunConfig(**usual, batch_per_rank=4, accumulate=1, max_lr=1e-3)
    os.environ.update(environment(config, place, 1, os.environ))
    torch.set_num_threads(1)
    backend: Any = backends.load(config, place, device.choose(config, place))
    rows = []
    for model in MODELS:
        for fault, spoil in FAULTS.items():
            for last_alone in (False, True) if fault != "none" else (False,):
                where = of_one_rank(place.rank, spoil) if last_alone else spoil
                backend.wrap = spoilt(backend, where)
                results = trained(config, backend, model, place.rank)
                rows.append([model, fault, last_alone, results.holds, results.record()[0]])
    del backend.wrap
    if place.rank == 0:
        print(json.dumps(rows, default=str), flush=True)
    backend.close()


def trained(config: RunConfig, backend: Any, model: str, rank: int) -> Parity:
    """Train four steps; the check of the third."""
    of_model = config.model_copy(update={"model": f"tests.bench.test_parity:{model}"})
    network = build_model(of_model, 10)
    own = torch.Generator().manual_seed(rank)
    batches = iter([(torch.randn(4, 3, 8, 8, generator=own), torch.arange(4)) for _ in range(4)])
    parity = Parity(of_model, backend, network)
    place = Input(of_model, batches, torch.device("cpu"))
    loop = Loop(of_model, backend, network, place, observer=parity)
    for _ in range(4):
        loop.step()
    return parity


if __name__ == "__main__":
    main(*sys.argv[1:])
