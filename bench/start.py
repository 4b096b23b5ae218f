"""The start of a run: what all ranks must have alike, compared and logged before any exchange."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.launch import provenance, sources
from bench.launch.agreement import disagreement, flat
from bench.launch.world import Launch, WrongWorld
from bench.lifecycle.turns import ALONE, Turns
from bench.record import SCHEMA, RunLog
from bench.train import device
from bench.train.device import Device


def write_start(
    config: RunConfig,
    launch: Launch,
    log: RunLog,
    backend: Backend,
    place: Device,
    workload: dict[str, Any],
    turns: Turns = ALONE,
) -> dict[str, bytes]:
    """Compare what all ranks must share, and log it; needs all ranks. Returns the user's own files.

    Raises UsageError where ranks differ or share a place.
    """
    files = sources.loaded(config)
    user_code, packages = sources.digests(files), sources.versions(config)
    versions = {**backend.versions, **packages}
    shared = {**provenance.shared(os.environ, versions), "user_code": user_code}
    rank_facts = provenance.describe_rank(launch, torch.get_num_threads())
    rank_facts |= place.describe()
    rank_facts |= {**backend.files, **disturbance(turns)}
    model = {"gpu": rank_facts["gpu"]} if "gpu" in rank_facts else {}
    alike = flat({**shared, **model, "workload": workload})
    ranks = _compare(backend, alike, rank_facts)
    _require_places(launch, ranks)
    device.require_own_gpus(ranks)
    if launch.rank == 0:
        facts: dict[str, Any] = {"ranks": ranks}
        facts |= provenance.describe_run(os.environ, versions)
        facts |= {"user_code": user_code} if user_code else {}
        facts |= {"turns": turns.place.record()} if turns.place else {}
        start = {"config": config.model_dump(mode="json"), "host": facts, "workload": workload}
        log.write("start", schema=SCHEMA, **start)
        sources.keep(files, config.log_path)
    return files


def _compare(
    backend: Backend, shared: dict[str, str], rank_facts: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the description of every rank. Raises UsageError where `shared` differs."""
    of_ranks = backend.gather((shared, rank_facts, provenance.placement(os.environ)))
    if problem := disagreement([of_all for of_all, _, _ in of_ranks]):
        raise UsageError(problem)
    first = of_ranks[0][2]
    return [{**one, "env": provenance.changed(first, placed)} for _, one, placed in of_ranks]


def _require_places(launch: Launch, ranks: Sequence[dict[str, Any]]) -> None:
    """Raise WrongWorld where a rank is doubled or lost."""
    places = {(r["hostname"], r["local_rank"]) for r in ranks}
    if len(places) != launch.size or [r["rank"] for r in ranks] != list(range(launch.size)):
        held = f"{launch.size} ranks hold {len(places)} distinct places (host, local rank)"
        cure = "see python -m bench doctor under the same launcher"
        raise WrongWorld(f"{held}: a doubled or lost rank; {cure}")


def disturbance(turns: Turns) -> dict[str, Any]:
    """Read the node's counters without what they counted in the turns of other worlds."""
    noted, outside = provenance.disturbance(), turns.aside()
    return noted | {k: noted[k] - outside[k] for k in outside if noted[k] is not None}
