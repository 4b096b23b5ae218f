"""Who am I: rank, size and place on the node, read from the launcher's environment by one table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from bench.config import UsageError


@dataclass(frozen=True)
class Launch:
    """One rank's place in the world its launcher made. `key` tells this launch from every other on shared storage."""

    source: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    key: str

    def record(self) -> dict[str, object]:
        """The same as plain values, for the run log."""
        return asdict(self)


@dataclass(frozen=True)
class _Row:
    """Names of one launcher's variables. `strict`: a half-set row is an error, because nobody else sets these names."""

    source: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    key: tuple[str, ...]
    strict: bool = True


# First complete row wins. mpirun's variables stand before Slurm's because ranks started by mpirun inside a Slurm job
# inherit the daemon's SLURM_PROCID, the same on every rank of a node.
_TABLE = (
    _Row("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_PORT")),
    _Row(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    # PMI_RANK and PMI_SIZE alone are what `srun --mpi=pmi2` sets: then Slurm's own row below tells the rest.
    _Row("hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("PMI_PORT", "PMI_FD"), strict=False),
)


def discover(env: Mapping[str, str]) -> Launch:
    """The launch described by `env`; a lone process has rank 0 of 1. Raises UsageError on half-set or impossible values."""
    for row in _TABLE:
        names = (row.rank, row.size, row.local_rank, row.local_size)
        missing = [name for name in names if name not in env]
        if not missing:
            return _launch(row.source, [_integer(env, name) for name in names], _key(env, row.key))
        if row.strict and len(missing) < len(names):
            there = next(name for name in names if name in env)
            raise UsageError(
                f"{there}={env[there]!r} is set but {missing[0]} is not: a half-set launch; "
                f"start through {row.source}, or unset {there}"
            )
    if _in_slurm_step(env):
        node = _integer(env, "SLURM_NODEID")
        sizes = expand_tasks_per_node(env["SLURM_STEP_TASKS_PER_NODE"])
        if node >= len(sizes):
            raise UsageError(f"SLURM_NODEID={node} is beyond SLURM_STEP_TASKS_PER_NODE={env['SLURM_STEP_TASKS_PER_NODE']!r}")
        values = [_integer(env, name) for name in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")]
        return _launch("srun", [*values, sizes[node]], _key(env, ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")))
    return Launch("none", 0, 1, 0, 1, "alone")


def _in_slurm_step(env: Mapping[str, str]) -> bool:
    """True inside a numbered step: the batch script and an salloc shell carry SLURM_PROCID too, but no such step."""
    step = env.get("SLURM_STEP_ID", "")
    needed = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE")
    # batch, extern and interactive steps show as words or as numbers just below 2^32
    return step.isdecimal() and int(step) < 2**31 and all(name in env for name in needed)


def _launch(source: str, values: list[int], key: str) -> Launch:
    rank, size, local_rank, local_size = values
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise UsageError(
            f"{source} says rank {rank} of {size}, local rank {local_rank} of {local_size}: impossible; "
            "unset launch variables left over in the environment"
        )
    return Launch(source, rank, size, local_rank, local_size, key)


def _integer(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise UsageError(f"{name}={env[name]!r} is not a whole number; unset it or start through the launcher") from None


def _key(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", ".".join(env[name] for name in names if name in env)) or "unnamed"


def expand_tasks_per_node(text: str) -> list[int]:
    """Slurm's run-length form to one number per node: '3,1(x2)' -> [3, 1, 1]. Raises UsageError on anything else."""
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise UsageError(f"SLURM_STEP_TASKS_PER_NODE={text!r} is not of the form 3,1(x2)")
        sizes += [int(match[1])] * int(match[2] or 1)
    return sizes


def require_world(launch: Launch, world_size: int, env: Mapping[str, str]) -> None:
    """Raise UsageError unless the launcher made exactly the world that was asked for; the message names the cure."""
    if launch.size == world_size:
        return
    if launch.source != "none":
        raise UsageError(
            f"world_size={world_size} was asked for, but {launch.source} started {launch.size} ranks; "
            f"use --world-size {launch.size} or start {world_size} ranks"
        )
    forgot = "; this is the batch shell, the step needs srun" if int(env.get("SLURM_NTASKS", "1") or 1) > 1 else ""
    raise UsageError(
        f"world_size={world_size} was asked for, but this process is alone (no launcher known here started it){forgot}; "
        f"start it as: mpirun -n {world_size} --bind-to none python -m bench ..."
    )


def require_mpi_world(launch: Launch, mpi_size: int, library: str) -> None:
    """Raise UsageError unless MPI itself sees the launcher's world: N worlds of one rank are silent otherwise."""
    if mpi_size != launch.size:
        raise UsageError(
            f"{launch.source} started {launch.size} ranks, but MPI ({library}) sees a world of {mpi_size}: this launcher "
            "does not start this MPI; use the mpirun that belongs to it, or srun --mpi=pmix, or --transport gloo"
        )
