"""A training saved after each epoch, so that the same run can go on from there."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.backends.protocol import Backend
from bench.config import Role, RunConfig, UsageError, fields_with
from bench.launch import provenance
from bench.study.disk import write_whole
from bench.train.loop import Loop

# where a run lies and how it is watched: these may differ when it goes on
_ELSEWHERE = {*fields_with(Role.FOLDER), *fields_with(Role.BOOKKEEPING)}


@dataclass(frozen=True)
class Checkpoint:
    """All that a run's further epochs depend on; the same whichever backend wrote it."""

    config: Mapping[str, Any]  # what the run is asked for
    epochs: list[dict[str, Any]]  # the log's events so far, of all trainings
    model: dict[str, torch.Tensor]  # parameters and buffers
    optimizer: dict[str, Any]
    random: list[torch.Tensor]  # torch's state on each rank

    @property
    def training(self) -> int:
        """The one that the last epoch is of."""
        return int(self.epochs[-1]["training"])


def path_of(config: RunConfig) -> Path:
    """Beside the log, whose name it has. Raises UsageError where there is no log."""
    if config.log_path is None:
        raise UsageError(
            "checkpoint=True is kept beside the log, and there is none; use --log-path"
        )
    return config.log_path.with_suffix(".checkpoint")


def save(
    config: RunConfig,
    loop: Loop,
    network: torch.nn.Module,
    backend: Backend,
    epochs: list[dict[str, Any]],
    rank: int,
) -> None:
    """Write the training's present state, whole or not at all; needs every rank's call.

    Raises UsageError where the file cannot be written.
    """
    random = backend.gather(torch.get_rng_state())
    if rank:
        return
    checkpoint = Checkpoint(
        config=_run_facts(config),
        epochs=epochs,
        model=network.state_dict(),
        optimizer=loop.session.optimizer.state_dict(),
        random=random,
    )
    content = io.BytesIO()  # torch's own writer has no words for a disk that is full
    torch.save(dict(checkpoint.__dict__), content)
    cure = "make room, or leave --checkpoint out"
    write_whole(path_of(config), content.getvalue(), cure=cure)


def read(config: RunConfig, backend: Backend, rank: int) -> Checkpoint | None:
    """The checkpoint of an earlier process, read by rank 0 for all ranks; None without one.

    Raises UsageError on every rank for a file of another run, or one that is damaged.
    """
    loaded: Checkpoint | str | None = None
    if rank == 0 and path_of(config).exists():
        loaded = _read(path_of(config), config)
    answer: Checkpoint | str | None = backend.gather(loaded)[0]
    if isinstance(answer, str):
        raise UsageError(f"{path_of(config)} {answer}; remove it, or take another --log-path")
    return answer


def _read(path: Path, config: RunConfig) -> Checkpoint | str:
    try:
        checkpoint = Checkpoint(**torch.load(path, weights_only=True))
        saved, current = dict(checkpoint.config), _run_facts(config)
    except Exception as error:  # a torn file makes torch's reader raise almost anything
        return f"is no checkpoint ({(str(error).splitlines() or ['?'])[0][:120]})"
    if saved != current:
        name = next(n for n in {**saved, **current} if saved.get(n) != current.get(n))
        return f"is of a run with {name}={saved.get(name)}, not {current.get(name)}"
    return checkpoint


def restore(checkpoint: Checkpoint, loop: Loop, network: torch.nn.Module, rank: int) -> None:
    """Set the state of model, optimiser and torch's random numbers."""
    network.load_state_dict(checkpoint.model)
    # only after wrapping: Horovod's wrapper is another optimiser, and does not take over state
    loop.session.optimizer.load_state_dict(checkpoint.optimizer)
    torch.set_rng_state(checkpoint.random[rank])


def _run_facts(config: RunConfig) -> dict[str, Any]:
    """Fields of the run, and the code and libraries that train it."""
    dumped = config.model_dump(mode="json")
    fields = {name: value for name, value in dumped.items() if name not in _ELSEWHERE}
    made_by = provenance.shared({}, {})
    return {**fields, "code_sha256": made_by["code_sha256"], "versions": made_by["versions"]}
