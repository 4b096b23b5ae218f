"""Start Horovod without horovodrun: its variables, its controller, and its rendezvous."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from bench.backends import mpi_group
from bench.config import RunConfig, UsageError
from bench.launch.world import Launch, WrongWorld

_MIB = 2**20


def start(config: RunConfig, launch: Launch) -> tuple[Any, Any]:
    """Horovod's module, started on the ranks of `launch`, and a server to stop later or None.

    Raises UsageError if it is missing or lacks the transport, WrongWorld if its world is another.
    """
    os.environ.update(_environment(config))
    hvd = _import_horovod()
    if not getattr(hvd, f"{config.transport}_built")():
        raise UsageError(
            f"this Horovod was built without {config.transport}; run make setup, or choose "
            f"another --transport"
        )
    server = None
    if config.transport == "mpi":
        hvd.init(comm=mpi_group.world(config, launch))  # on MPI's world, if it is the launcher's
    else:
        server = _start_gloo(hvd, config, launch)
    # Horovod falls back to N silent worlds of one rank whenever its launch information is
    # incomplete
    if (hvd.size(), hvd.rank()) != (launch.size, launch.rank):
        raise WrongWorld(
            f"{launch.source} started rank {launch.rank} of {launch.size}, but Horovod is "
            f"rank {hvd.rank()} of {hvd.size()}; "
            "start with the mpirun that Horovod was built against, or use --transport gloo"
        )
    return hvd, server


def _environment(config: RunConfig) -> dict[str, str]:
    """Horovod's variables for this config. Controller and operations always agree: a mismatch
    crashes.
    """
    # NCCL is fixed when Horovod is built; its controller and the scalars then go over Gloo, as
    # DDP's do
    control = "mpi" if config.transport == "mpi" else "gloo"
    variables: dict[str, str] = {"HOROVOD_CONTROLLER": control, "HOROVOD_CPU_OPERATIONS": control}
    if config.fusion_mib is not None:
        variables["HOROVOD_FUSION_THRESHOLD"] = str(int(config.fusion_mib * _MIB))
    if config.cycle_ms is not None:
        variables["HOROVOD_CYCLE_TIME"] = str(config.cycle_ms)
    if config.settings == "matched":
        variables["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # keep one exchange per bucket
    return variables


def _import_horovod() -> Any:
    try:
        import horovod.torch as hvd
    except ImportError as error:
        reason = str(error).split("\n")[0]
        raise UsageError(
            f"backend=horovod needs Horovod built for this torch ({reason}); run make setup"
        ) from None
    return hvd


def _start_gloo(hvd: Any, config: RunConfig, launch: Launch) -> Any:
    """Start Horovod's Gloo controller without horovodrun: rank 0 serves the rendezvous, our store
    tells where.
    """
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    from bench.launch.rendezvous import host_address, open_store

    store = open_store(config, launch)
    store.set(f"host/{launch.rank}", socket.gethostname())
    hosts = [store.get(f"host/{rank}").decode() for rank in range(launch.size)]
    server = None
    if launch.rank == 0:
        server = RendezvousServer()
        port = server.start()
        slots = ",".join(f"{host}:{hosts.count(host)}" for host in dict.fromkeys(hosts))
        server.init(get_host_assignments(parse_hosts(slots), launch.size))
        store.set("horovod", f"{host_address(launch)}:{port}")
    os.environ.update(gloo_environment(launch, hosts, store.get("horovod").decode()))
    hvd.init()
    return server


def gloo_environment(launch: Launch, hosts: Sequence[str], address: str) -> dict[str, str]:
    """What horovodrun would set for this rank: `hosts` holds every rank's host name, `address` rank
    0's host:port.

    The cross communicator of local rank l joins the hosts that have more than l ranks, so uneven
    hosts work.
    """
    sizes = {host: hosts.count(host) for host in hosts}  # in order of their first rank
    crossing = [host for host, size in sizes.items() if size > launch.local_rank]
    server, port = address.rsplit(":", 1)
    return {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_HOSTNAME": hosts[launch.rank],
        "HOROVOD_RANK": str(launch.rank),
        "HOROVOD_SIZE": str(launch.size),
        "HOROVOD_LOCAL_RANK": str(launch.local_rank),
        "HOROVOD_LOCAL_SIZE": str(launch.local_size),
        "HOROVOD_CROSS_RANK": str(crossing.index(hosts[launch.rank])),
        "HOROVOD_CROSS_SIZE": str(len(crossing)),
    }
