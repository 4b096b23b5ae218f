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
    """Start the backend of `config` on this rank; every rank must call.

    Raises UsageError if it is not installed, WrongWorld if its ranks are not the launcher's.
    """
    from bench.launch.provenance import installed  # imported here: it imports the catalogue

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
    """Run a server process until the run has ended; raises as `load`.

    `describe` makes the process's description from the versions of its libraries; `tick` is
    called while the process waits.
    """
    catalogue.server(config.backend)(config, launch, describe, tick)
