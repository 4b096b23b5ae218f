"""One server process of a backend that has them: it never enters the loop."""

from __future__ import annotations

import os
from typing import Any

import torch

from bench.backends import catalogue
from bench.config import RunConfig
from bench.launch import provenance
from bench.launch.agreement import flat
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.record import RunLog


def serve(config: RunConfig, launch: Launch, _: RunLog, pulse: Pulse) -> bool:
    """True once the ranks that train have said that the run has ended."""
    torch.set_num_threads(config.threads)
    pulse.enter(f"serving {config.cell}")

    def describe(versions: dict[str, str]) -> tuple[Any, ...]:
        """As the ranks that train describe themselves to rank 0 (bench/start.py)."""
        rank_facts = provenance.describe_rank(launch, torch.get_num_threads(), config.sysfs)
        shared = flat(provenance.shared(os.environ, versions))
        return shared, {**rank_facts, **provenance.disturbance()}, provenance.placement(os.environ)

    catalogue.server(config.backend)(config, launch, describe, pulse.tick)
    pulse.passed = True
    pulse.leave()
    return True
