"""The start of Horovod without horovodrun: environment variables, controller, rendezvous."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from bench.backends import mpi_group
from bench.config import RunConfig, UsageError
from bench.launch.machine import host_name_interface
from bench.launch.world import Launch, WrongWorld
from bench.lifecycle.turns import VARIABLE

_INTERFACE = "HOROVOD_GLOO_IFACE"
_GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
ONE_EXCHANGE_MIB = 1024  # of a buffer that a host gives page by page; a GPU gives it all at once


def start(config: RunConfig, launch: Launch) -> tuple[Any, Any]:
    """Start Horovod. Return horovod.torch, and the rendezvous server, which the caller must `stop`.

    The server is None over MPI, and on all ranks but 0. Raises UsageError if no Horovod fits,
    WrongWorld if Horovod's rank or size is not the launch's.
    """
    os.environ.update(_environment(config))
    try:
        import horovod.torch as hvd
    except ImportError as error:
        reason = str(error).split("\n")[0]
        need = f"backend=horovod needs Horovod built for this torch ({reason})"
        raise UsageError(f"{need}; run make setup") from None
    if not getattr(hvd, f"{config.transport}_built")():
        cure = "run make setup, or choose another --transport"
        raise UsageError(f"this Horovod was built without {config.transport}; {cure}")
    server = None
    if config.transport == "mpi":
        hvd.init(comm=mpi_group.world(config, launch))  # on MPI's world, if it is the launcher's
    else:
        server = _start_gloo(hvd, config, launch)
    # Horovod falls back to N silent worlds of one rank where its launch information is incomplete
    if (hvd.size(), hvd.rank()) != (launch.size, launch.rank):
        raise WrongWorld(
            f"{launch.source} started rank {launch.rank} of {launch.size}, but Horovod is rank "
            f"{hvd.rank()} of {hvd.size()}; start with the mpirun that Horovod was built against, "
            "or use --transport gloo"
        )
    return hvd, server


def _environment(config: RunConfig) -> dict[str, str]:
    """Return the environment variables that set Horovod's transport, fusion and time limit."""
    # NCCL is fixed when Horovod is built; its controller and scalars go over Gloo then, as DDP's do
    control = "mpi" if config.transport == "mpi" else "gloo"
    variables: dict[str, str] = {"HOROVOD_CONTROLLER": control, "HOROVOD_CPU_OPERATIONS": control}
    if VARIABLE in os.environ and _GLOO_TIMEOUT not in os.environ:
        # Gloo's limit also runs while a rank is stopped, and other worlds may warm up for long
        variables[_GLOO_TIMEOUT] = str(24 * 3600)
    if config.overlap == "off":
        variables["HOROVOD_FUSION_THRESHOLD"] = str(ONE_EXCHANGE_MIB * 2**20)
    if config.settings == "matched":
        variables["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # keep one exchange per bucket
    return variables


def _start_gloo(hvd: Any, config: RunConfig, launch: Launch) -> Any:
    """Start Horovod's Gloo controller; return rank 0's rendezvous server, None on other ranks."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    from bench.launch.rendezvous import host_address, open_store

    if launch.local_size < launch.size:
        require_interface_taken(os.environ.get(_INTERFACE, ""), host_name_interface())
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


def require_interface_taken(iface: str, host_iface: str) -> None:
    """Raise UsageError if `iface` is set, but Horovod's Gloo would not use it for gradients.

    Horovod 0.28 gives Gloo an empty interface name for gradients (gloo_iface_ in
    GlooContext::InitializeForProcessSet). Gloo then uses `host_iface`, the interface whose address
    the host's name resolves to.
    """
    if iface and iface != host_iface:
        taken = f"takes the address of the host's name, on {host_iface or 'no interface of it'}"
        cure = "name that one, or let the host's name resolve to an address of the other"
        raise UsageError(f"{_INTERFACE}={iface!r}: Horovod's Gloo {taken}, for gradients; {cure}")


def gloo_environment(launch: Launch, hosts: Sequence[str], address: str) -> dict[str, str]:
    """Return the variables that horovodrun would set on this rank.

    `hosts` has the host of each rank; `address` is the rendezvous server's, host:port.
    """
    rank_host, host_order = hosts[launch.rank], dict.fromkeys(hosts)  # of their first rank
    # the cross communicator of local rank l joins the hosts with more than l ranks
    crossing = [host for host in host_order if hosts.count(host) > launch.local_rank]
    server, port = address.rsplit(":", 1)
    places = {"RANK": launch.rank, "SIZE": launch.size, "HOSTNAME": rank_host}
    places |= {"LOCAL_RANK": launch.local_rank, "LOCAL_SIZE": launch.local_size}
    places |= {"CROSS_RANK": crossing.index(rank_host), "CROSS_SIZE": len(crossing)}
    places |= {"GLOO_RENDEZVOUS_ADDR": server, "GLOO_RENDEZVOUS_PORT": port}
    return {f"HOROVOD_{name}": str(value) for name, value in places.items()}
