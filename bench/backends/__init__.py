"""Backends: each is one way to exchange gradients. `load` starts the backend of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the facts of a backend are read where there is no torch
    from bench.backends.protocol import Backend
    from bench.config import RunConfig
    from bench.launch.world import Launch
    from bench.train.device import Device


def load(config: RunConfig, launch: Launch, device: Device) -> Backend:
    """Start and return the backend of `config`; every rank must call this.

    Raises UsageError if the backend cannot start, WrongWorld if it has other ranks than the launch.
    """
    # imported here: the catalogue imports users' backends, which import their form from this room
    from bench.backends import catalogue
    from bench.launch.provenance import installed

    if config.transport == "nccl":
        from bench.backends import nccl

        return nccl.load(config, launch, device)
    backend: Backend = catalogue.implementation(config.backend)(config, launch, device)
    if build := catalogue.gloo(config.cell, installed()):
        backend.versions["gloo"] = build
    return backend
