"""The same stated resources for every rank, whatever its launcher; before torch or MPI loads."""

from __future__ import annotations

import os
from collections.abc import Mapping

from bench.backends.catalogue import CATALOGUE, interface_variables
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch


def require_unmodified(env: Mapping[str, str]) -> None:
    """Raise UsageError where a variable changes one framework behind the config's back."""
    for name in sorted(env):
        for row in CATALOGUE.values():
            if name.startswith(row.env_prefixes) and not name.startswith(row.env_harmless):
                raise UsageError(
                    f"{name}={env[name]!r} would change one framework unseen; unset it"
                )


def environment(
    config: RunConfig, launch: Launch, cores: int, env: Mapping[str, str]
) -> dict[str, str]:
    """Choose this rank's variables, the same for every backend; `cores` is its affinity's size.

    Threads: launchers change the default (torchrun exports 1, mpirun makes MKL choose 1, srun
    leaves all cores). Yielding: where ranks fill the cores, Open MPI's busy polling takes the core
    from the computation, so that even an idle framework costs 60-90 %; a value the user has set
    stays, and either way the run log records it.
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
    """Advise if a rank has fewer cores than its threads and the exchange need; else return None."""
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
