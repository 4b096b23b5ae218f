"""How gradients are exchanged, one file per framework; `load` starts the one that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.backends import catalogue

if TYPE_CHECKING:  # the catalogue is read where there is no torch
    from bench.backends.protocol import Backend
    from bench.config import RunConfig
    from bench.launch.world import Launch
    from bench.train.device import Device


def load(config: RunConfig, launch: Launch, device: Device) -> Backend:
    """Start it. Raises UsageError if it is not installed, WrongWorld if its world is another."""
    from bench.launch.provenance import installed  # here: it reads the catalogue itself

    backend: Backend = catalogue.implementation(config.backend)(config, launch, device)
    if build := catalogue.gloo(config.cell, installed()):
        backend.versions["gloo"] = build
    return backend
