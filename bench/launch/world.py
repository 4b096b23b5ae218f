"""A process's rank, world size and local rank, read from the variables that its launcher sets.

This module also chooses the variables that every rank gets before torch or MPI loads.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.backends.catalogue import CATALOGUE, interface_variables
from bench.config import RunConfig, UsageError


class WrongWorld(UsageError):
    """A world other than the one asked for: the wrong ranks started, or not all of them met."""


class Launch(NamedTuple):
    """A rank's place in its world. `source` names the launcher; `key` names the launch if known."""

    source: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    key: str


class _Row(NamedTuple):
    """The variables that one launcher sets."""

    source: str
    names: tuple[str, ...]  # rank, size, local rank, local size
    key: tuple[str, ...]  # tell launches apart, as far as any are the same on all ranks
    marks: tuple[str, ...]  # set by no other launcher: one without the rest is an error


def _family(source: str, prefix: str, *key: str) -> _Row:
    names = tuple(prefix + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    return _Row(source, names, key, marks=names)


_JOB = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID")
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_GLOO = "HOROVOD_GLOO_RENDEZVOUS_"
_HYDRA = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
_PALS = ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
# First complete row wins. mpirun's variables stand before Slurm's because ranks started by mpirun
# inside a Slurm job inherit the daemon's SLURM_PROCID, the same on every rank of a node.
_TABLE = (
    _Row("torchrun", _TORCHRUN, ("TORCHELASTIC_RUN_ID", "MASTER_PORT"), marks=_TORCHRUN),
    _family("horovodrun", "HOROVOD_", _GLOO + "ADDR", _GLOO + "PORT"),
    _family("mpirun", "OMPI_COMM_WORLD_", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    _family("mpirun_rsh", "MV2_COMM_WORLD_", *_JOB),
    # PMI_RANK and PMI_SIZE alone are what `srun --mpi=pmi2` sets: then Slurm's own variables below
    # tell the rest. PMI_PORT and PMI_FD are no key: they are one node's daemon's, or one rank's.
    _Row("hydra", ("PMI_RANK", "PMI_SIZE", *_HYDRA), _JOB, marks=_HYDRA),
    _Row(
        "pals", ("PMI_RANK", "PMI_SIZE", *_PALS), ("PALS_APID", "SLURM_STEP_ID", *_JOB), marks=_PALS
    ),
)
_STEP = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
_STEP_NODE = ("SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE")
_STEP_KEY = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")


def discover(env: Mapping[str, str]) -> Launch:
    """Read the launch from `env`; 1 rank without a launcher. Raises UsageError on wrong values."""
    for row in _TABLE:
        missing = [name for name in row.names if name not in env]
        if not missing:
            return _launch(row.source, [_integer(env, name) for name in row.names], env, row.key)
        if names := [name for name in row.marks if name in env]:
            raise UsageError(
                f"{names[0]}={env[names[0]]!r} is set but {missing[0]} is not: a half-set launch; "
                f"start through {row.source}, or unset {names[0]}"
            )
    if _in_slurm_step(env):
        node, text = _integer(env, "SLURM_NODEID"), env["SLURM_STEP_TASKS_PER_NODE"]
        sizes = expand_tasks_per_node(text)
        if node >= len(sizes):
            raise UsageError(f"SLURM_NODEID={node} is beyond SLURM_STEP_TASKS_PER_NODE={text!r}")
        values = [*(_integer(env, name) for name in _STEP), sizes[node]]
        return _launch("srun", values, env, _STEP_KEY)
    for name in ("PMI_RANK", "PMIX_RANK"):  # a Slurm job's shell may have them
        if name in env and "SLURM_JOB_ID" not in env:
            raise UsageError(
                f"{name}={env[name]!r} is set, but no launcher known here sets the rest (rank, "
                f"size and place on the node); use mpirun, srun or torchrun, or unset {name}"
            )
    return Launch("none", 0, 1, 0, 1, "alone")


def agent_store(source: str, env: Mapping[str, str]) -> bool:
    """Check whether torchrun keeps a store; False if a user set torchrun's variables by hand."""
    return source == "torchrun" and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _in_slurm_step(env: Mapping[str, str]) -> bool:
    """Check whether srun started this process in a numbered step, unlike batch or salloc shells."""
    step = env.get("SLURM_STEP_ID", "")
    # batch, extern and interactive steps show as words or as numbers just below 2^32
    numbered = step.isdecimal() and int(step) < 2**31
    return numbered and all(name in env for name in (*_STEP, *_STEP_NODE))


def _launch(source: str, values: list[int], env: Mapping[str, str], key: tuple[str, ...]) -> Launch:
    rank, size, local_rank, local_size = values
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise UsageError(
            f"{source} says rank {rank} of {size}, local rank {local_rank} of {local_size}: "
            "impossible; unset launch variables left over in the environment"
        )
    key_text = ".".join(env[name] for name in key if name in env)
    key_name = re.sub(r"[^A-Za-z0-9.-]+", "_", key_text) or "unnamed"
    return Launch(source, rank, size, local_rank, local_size, key_name)


def _integer(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        cure = "unset it or start through the launcher"
        raise UsageError(f"{name}={env[name]!r} is not a whole number; {cure}") from None


def meeting_folder(launch: Launch, log_path: Path | None) -> Path:
    """Choose the folder where ranks meet. Raises UsageError for several nodes without a log."""
    if launch.local_size == launch.size:
        return Path(tempfile.gettempdir())
    if log_path is not None:
        return log_path.parent
    need = "ranks on several nodes need a folder all of them see"
    raise UsageError(f"{need}; use --log-path on shared storage")


def expand_tasks_per_node(text: str) -> list[int]:
    """Expand Slurm's tasks per node: '3,1(x2)' -> [3, 1, 1]. Raises UsageError for another form."""
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part)
        if match is None:
            form = "is not of the form 3,1(x2); unset it, or start through srun"
            raise UsageError(f"SLURM_STEP_TASKS_PER_NODE={text!r} {form}")
        sizes += [int(match[1])] * int(match[2] or 1)
    return sizes


def require_world(launch: Launch, world_size: int, env: Mapping[str, str]) -> None:
    """Raise WrongWorld, with a cure, if the launch's size is not `world_size`."""
    if launch.size == world_size:
        return
    asked_for = f"world_size={world_size} was asked for"
    if launch.source != "none":
        raise WrongWorld(
            f"{asked_for}, but {launch.source} started {launch.size} ranks; use --world-size "
            f"{launch.size} or start {world_size} ranks"
        )
    tasks = env.get("SLURM_NTASKS", "")
    in_batch = tasks.isdecimal() and int(tasks) > 1
    forgot = "; this is the batch shell, the step needs srun" if in_batch else ""
    launcher = f"mpirun -n {world_size} --bind-to none"
    if "SLURM_JOB_ID" in env:
        launcher = f"srun --mpi=pmix -n {world_size}"
    raise WrongWorld(
        f"{asked_for}, but this process is alone (no launcher known here started it){forgot}; "
        f"start it as: {launcher} python -m bench ..."
    )


def require_mpi_world(launch: Launch, mpi_size: int, library: str) -> None:
    """Raise WrongWorld, naming MPI's `library`, if MPI's world has another size than the launch."""
    if mpi_size != launch.size:
        raise WrongWorld(
            f"{launch.source} started {launch.size} ranks, but MPI ({library}) sees a world of "
            f"{mpi_size}: this launcher does not start this MPI; use the mpirun that belongs to "
            "it, or srun --mpi=pmix, or --transport gloo"
        )


def require_unmodified(env: Mapping[str, str]) -> None:
    """Raise UsageError if a variable would change one framework without a trace in the config."""
    for name in sorted(env):
        for row in CATALOGUE.values():
            if name.startswith(row.env_prefixes) and not name.startswith(row.env_harmless):
                raise UsageError(
                    f"{name}={env[name]!r} would change one framework unseen; unset it"
                )


def environment(
    config: RunConfig, launch: Launch, cores: int, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables to set on a rank that may use `cores` cores, the same for every backend.

    Numbers of threads are always set, as their default depends on the launcher (torchrun exports 1,
    mpirun makes MKL choose 1, srun leaves all cores). Other variables keep the user's value. Open
    MPI yields if the ranks' threads fill the cores, as its busy polling slows the computation. All
    frameworks' Gloo get one interface: the user's, or else loopback if there is one node.
    """
    threads = str(config.threads)
    changes = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    if cores <= launch.local_size * config.threads and "OMPI_MCA_mpi_yield_when_idle" not in env:
        changes["OMPI_MCA_mpi_yield_when_idle"] = "1"
    names = interface_variables()
    user_interface = next((env[name] for name in names if env.get(name)), None)
    if interface := user_interface or ("lo" if launch.local_size == launch.size else None):
        # the same wire for all, where a launcher names one framework's too
        changes |= {name: interface for name in names if not env.get(name)}
    return changes


def advice(config: RunConfig, launch: Launch, cores: int) -> str | None:
    """Return a warning if cores are too few for the ranks' threads and the exchange, else None."""
    if launch.size > 1 and cores <= config.threads and cores < (os.cpu_count() or 1):
        return (
            f"rank {launch.rank} is bound to {cores} core(s) for {config.threads} thread(s) and "
            "the exchange thread; mpirun binds by default: use --bind-to none, or bind wider"
        )
    if config.emulate is None and launch.local_size * config.threads > cores:
        return (
            f"{launch.local_size} rank(s) of {config.threads} thread(s) share {cores} core(s): they"
            " take turns, and frameworks suffer from that unequally; use fewer ranks or --threads"
        )
    return None
