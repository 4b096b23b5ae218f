"""A fourth backend, which lives in the tests alone: PyTorch's DDP under another name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.backends.catalogue import CATALOGUE
from bench.config import RunConfig
from bench.launch.world import Launch

FOURTH = replace(
    CATALOGUE["ddp"],
    name="fourth",
    label="Fourth framework",
    short_label="Fourth",
    implementation="tests.bench.fourth:start",
    transports=("gloo",),
    env_prefixes=("FOURTH_",),
    interface_variable=None,
    looks={},
)


def start(config: RunConfig, launch: Launch, device: Any) -> Any:
    from bench.backends.ddp import Ddp  # torch is loaded where it trains, not where it is planned

    class Fourth(Ddp):
        pass

    return Fourth(config, launch, device)


def register() -> None:
    """From here on this process knows it; all it takes is a row of the catalogue."""
    CATALOGUE[FOURTH.name] = FOURTH
