"""Checks of known truth, drawn by the thousand: how many call a machine slower, as it is or not.

Speeds are log-normal: a part of each session, and of each launch. A small part of each rank stands
for what its own clock reads otherwise than the others'.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from slurm.check.answer import compare, outcome
from slurm.check.reference import CellSpeeds, Reference, Sitting

CELLS = ("ddp/mpi", "horovod/mpi")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Standard deviations of log speeds, and how much it is measured."""

    between: float  # sessions
    within: float  # launches of a session
    of_rank: float = 0.001
    sessions: int = 6  # of the reference
    launches: int = 6  # of each session, and of the check
    ranks: int = 2


def counts(
    machine: Machine, slowdown: float, checks: int, seed: int, tolerance: float | None = None
) -> Counter[str]:
    """Outcomes of checks, each against a reference of its own; `slowdown` of 0.1 is 10 %."""
    draw = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(checks):
        workload = {cell: {"world_size": machine.ranks} for cell in CELLS}
        sessions = tuple(sitting(machine, 0.0, draw) for _ in range(machine.sessions))
        reference = Reference(workload=workload, sessions=sessions)
        now = sitting(machine, slowdown, draw)
        outcomes[outcome(tuple(compare(reference, now, tolerance)))[0]] += 1
    return outcomes


def sitting(machine: Machine, slowdown: float, draw: np.random.Generator) -> Sitting:
    """One session, in which both cells meet the same state of the machine."""
    of_session = draw.normal(0, machine.between)
    cells = {}
    for cell in CELLS:
        logs = of_session + draw.normal(0, machine.within, machine.launches)
        speeds = 100 * (1 - slowdown) * np.exp(logs)
        shares = np.exp(draw.normal(0, machine.of_rank, (machine.launches, machine.ranks)))
        by_rank = speeds[:, None] / machine.ranks * shares
        rates = tuple(map(tuple, by_rank.tolist()))
        cells[cell] = CellSpeeds(images_per_s=tuple(speeds.tolist()), rank_images_per_s=rates)
    hosts = ("n1",) * machine.ranks
    return Sitting(started="", hosts=hosts, processors=("cpu",), versions={}, cells=cells)
