"""Rank, size and place on the node, read from the launcher's environment by one table."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.config import UsageError


class WrongWorld(UsageError):
    """The ranks that started, or met, are not the world that was asked for."""


@dataclass(frozen=True)
class Launch:
    """A rank's place in its world. `key` tells this launch from every other on shared storage."""

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
    """One launcher's variables: rank, size, local rank, local size.

    `own` are those that no other launcher sets: one of them without the rest is an error. `key`
    tells launches apart, as far as a launcher sets anything that is the same on all its ranks.
    """

    source: str
    names: tuple[str, str, str, str]
    key: tuple[str, ...]
    own: tuple[str, ...]


def _family(source: str, prefix: str, key: tuple[str, ...]) -> _Row:
    names = (f"{prefix}RANK", f"{prefix}SIZE", f"{prefix}LOCAL_RANK", f"{prefix}LOCAL_SIZE")
    return _Row(source, names, key, own=names)


_MOST_NODES = 100_000  # ten times the largest machines
_JOB = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID")
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# First complete row wins. mpirun's variables stand before Slurm's because ranks started by mpirun
# inside a Slurm job inherit the daemon's SLURM_PROCID, the same on every rank of a node.
_TABLE = (
    _Row("torchrun", _TORCHRUN, ("TORCHELASTIC_RUN_ID", "MASTER_PORT"), own=_TORCHRUN),
    _family(
        "horovodrun", "HOROVOD_", ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
    ),
    _family("mpirun", "OMPI_COMM_WORLD_", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    _family("mpirun_rsh", "MV2_COMM_WORLD_", _JOB),
    # PMI_RANK and PMI_SIZE alone are what `srun --mpi=pmi2` sets: then Slurm's own variables below
    # tell the rest. PMI_PORT and PMI_FD are no key: they belong to the daemon of one node, or to
    # one rank.
    _Row(
        "hydra",
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        _JOB,
        own=("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ),
    _Row(
        "pals",
        ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
        ("PALS_APID", "SLURM_STEP_ID", *_JOB),
        own=("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ),
)


def discover(env: Mapping[str, str]) -> Launch:
    """The launch that `env` describes; a lone process has rank 0 of 1.

    Raises UsageError on half-set or impossible values.
    """
    for row in _TABLE:
        missing = [name for name in row.names if name not in env]
        if not missing:
            _require_agent(row.source, env)
            return _launch(
                row.source, [_integer(env, name) for name in row.names], _key(env, row.key)
            )
        if there := [name for name in row.own if name in env]:
            raise UsageError(
                f"{there[0]}={env[there[0]]!r} is set but {missing[0]} is not: a half-set launch; "
                f"start through {row.source}, or unset {there[0]}"
            )
    if _in_slurm_step(env):
        node = _integer(env, "SLURM_NODEID")
        sizes = expand_tasks_per_node(env["SLURM_STEP_TASKS_PER_NODE"])
        if node >= len(sizes):
            raise UsageError(
                f"SLURM_NODEID={node} is beyond "
                f"SLURM_STEP_TASKS_PER_NODE={env['SLURM_STEP_TASKS_PER_NODE']!r}"
            )
        values = [
            _integer(env, name)
            for name in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
        ]
        return _launch(
            "srun",
            [*values, sizes[node]],
            _key(env, ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
        )
    _require_nobody(env)
    return Launch("none", 0, 1, 0, 1, "alone")


def agent_store(source: str, env: Mapping[str, str]) -> bool:
    """True if torchrun's agent serves a store; variables set by hand come without an agent."""
    return source == "torchrun" and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _require_agent(source: str, env: Mapping[str, str]) -> None:
    """Raise UsageError where that store is promised without its address."""
    if not agent_store(source, env):
        return
    wrong = {name: env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")}
    if wrong["MASTER_PORT"].isdecimal() and 0 < int(wrong["MASTER_PORT"]) < 2**16:
        del wrong["MASTER_PORT"]
    if wrong["MASTER_ADDR"]:
        del wrong["MASTER_ADDR"]
    for name, value in wrong.items():
        how = f"{name}={value!r} is no port" if value else f"{name} is not"
        raise UsageError(
            f"TORCHELASTIC_USE_AGENT_STORE='True' is set but {how}: a half-set launch; start "
            "through torchrun, or unset TORCHELASTIC_USE_AGENT_STORE"
        )


def _require_nobody(env: Mapping[str, str]) -> None:
    """Raise UsageError where an unknown launcher started this process.

    The shell of a Slurm job may have such variables.
    """
    for name in ("PMI_RANK", "PMIX_RANK"):
        if name in env and "SLURM_JOB_ID" not in env:
            raise UsageError(
                f"{name}={env[name]!r} is set, but no launcher known here sets the rest (rank, "
                f"size and place on the node); use mpirun, srun or torchrun, or unset {name}"
            )


def _in_slurm_step(env: Mapping[str, str]) -> bool:
    """True in a numbered step; the batch script and an salloc shell have SLURM_PROCID too."""
    step = env.get("SLURM_STEP_ID", "")
    needed = (
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_STEP_TASKS_PER_NODE",
    )
    # batch, extern and interactive steps show as words or as numbers just below 2^32
    return step.isdecimal() and int(step) < 2**31 and all(name in env for name in needed)


def _launch(source: str, values: list[int], key: str) -> Launch:
    rank, size, local_rank, local_size = values
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise UsageError(
            f"{source} says rank {rank} of {size}, local rank {local_rank} of {local_size}: "
            "impossible; unset launch variables left over in the environment"
        )
    return Launch(source, rank, size, local_rank, local_size, key)


def _integer(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise UsageError(
            f"{name}={env[name]!r} is not a whole number; unset it or start through the launcher"
        ) from None


def _key(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    return (
        re.sub(r"[^A-Za-z0-9.-]+", "_", ".".join(env[name] for name in names if name in env))
        or "unnamed"
    )


def meeting_folder(launch: Launch, rendezvous_dir: Path | None, log_path: Path | None) -> Path:
    """Folder where the ranks meet. Raises UsageError if none is known that all of them see."""
    if rendezvous_dir is not None:
        return rendezvous_dir
    if launch.local_size == launch.size:
        return Path(tempfile.gettempdir())
    if log_path is not None:
        return log_path.parent
    raise UsageError(
        "ranks on several nodes need a folder all of them see; use --rendezvous-dir, or "
        "--log-path on shared storage"
    )


def expand_tasks_per_node(text: str) -> list[int]:
    """Slurm's run-length form as one number per node: '3,1(x2)' -> [3, 1, 1].

    Raises UsageError on anything else.
    """
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if match is None:
            raise UsageError(
                f"SLURM_STEP_TASKS_PER_NODE={text!r} is not of the form 3,1(x2); unset it, or "
                f"start through srun"
            )
        count = int(match[2] or 1)
        if len(sizes) + count > _MOST_NODES:
            raise UsageError(
                f"SLURM_STEP_TASKS_PER_NODE={text!r} counts more than {_MOST_NODES} nodes; unset "
                f"it, or start through srun"
            )
        sizes += [int(match[1])] * count
    return sizes


def require_world(launch: Launch, world_size: int, env: Mapping[str, str]) -> None:
    """Raise WrongWorld, with the cure, unless the launcher made the world that was asked for."""
    if launch.size == world_size:
        return
    if launch.source != "none":
        raise WrongWorld(
            f"world_size={world_size} was asked for, but {launch.source} started {launch.size} "
            f"ranks; use --world-size {launch.size} or start {world_size} ranks"
        )
    asked = env.get("SLURM_NTASKS", "")
    forgot = (
        "; this is the batch shell, the step needs srun"
        if asked.isdecimal() and int(asked) > 1
        else ""
    )
    launcher = (
        f"srun --mpi=pmix -n {world_size}"
        if "SLURM_JOB_ID" in env
        else f"mpirun -n {world_size} --bind-to none"
    )
    raise WrongWorld(
        f"world_size={world_size} was asked for, but this process is alone (no launcher known here "
        f"started it){forgot}; start it as: {launcher} python -m bench ..."
    )


def require_mpi_world(launch: Launch, mpi_size: int, library: str) -> None:
    """Raise WrongWorld unless MPI sees the launcher's world, not N silent worlds of one rank."""
    if mpi_size != launch.size:
        raise WrongWorld(
            f"{launch.source} started {launch.size} ranks, but MPI ({library}) sees a world of "
            f"{mpi_size}: this launcher does not start this MPI; use the mpirun that belongs to "
            "it, or srun --mpi=pmix, or --transport gloo"
        )
