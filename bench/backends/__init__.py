"""How gradients are exchanged, one file per framework; `load` starts the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.backends import catalogue

if TYPE_CHECKING:  # the catalogue is read where there is no torch
    from bench.backends.protocol import Backend
    from bench.config import RunConfig
    from bench.launch.world import Launch
    from bench.train.device import Device


def load(config: RunConfig, launch: Launch, device: Device) -> Backend:
    """Start it. Raises UsageError if it is not installed, WrongWorld if its world is another."""
    from bench.launch.provenance import installed  # here: it reads the catalogue itself

    if config.transport == "nccl":
        from bench.backends import nccl

        return nccl.load(config, launch, device)
    backend: Backend = catalogue.implementation(config.backend)(config, launch, device)
    if build := catalogue.gloo(config.cell, installed()):
        backend.versions["gloo"] = build
    return backend


def serve(
    config: RunConfig,
    launch: Launch,
    describe: Callable[[dict[str, str]], Any],
    tick: Callable[[], object],
) -> None:
    """Be a server process until the run has ended; raises as `load`.

    `describe` makes what it says of itself from the versions of its libraries; `tick` is called
    while it waits.
    """
    catalogue.server(config.backend)(config, launch, describe, tick)
