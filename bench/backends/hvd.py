"""Horovod over MPI or over its own Gloo, with the traps of its optimiser wrapper cured here and nowhere else."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.backends import Reduction
from bench.config import MATCHED_BUCKET_MIB, RunConfig, UsageError
from bench.launch import Launch

_MIB = 2**20


class Horovod:
    """Horovod wraps the optimiser. `shipped` leaves its fusion alone; `matched` exchanges DDP's buckets, one by one."""

    def __init__(self, config: RunConfig, launch: Launch) -> None:
        self._bucket_bytes: int | None = None
        if config.settings == "matched":
            self._bucket_bytes = int((config.bucket_mib or MATCHED_BUCKET_MIB) * _MIB)
        os.environ.update(_environment(config))
        hvd = self._hvd = _import_horovod()
        built = {"mpi": hvd.mpi_built, "gloo": hvd.gloo_built}[config.transport]()
        if not built:
            raise UsageError(f"this Horovod was built without {config.transport}; run make setup, or choose another --transport")
        self._rendezvous = _init_mpi(hvd, launch) if config.transport == "mpi" else _init_gloo(hvd, config, launch)
        # Horovod falls back to N silent worlds of one rank whenever its launch information is incomplete
        if (hvd.size(), hvd.rank()) != (launch.size, launch.rank):
            raise UsageError(
                f"{launch.source} started rank {launch.rank} of {launch.size}, but Horovod is rank {hvd.rank()} of {hvd.size()}; "
                "start with the mpirun that Horovod was built against, or use --transport gloo"
            )
        self.versions = {"horovod": __import__("horovod").__version__, **_mpi_version(config)}

    def wrap(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self._model = model
        # parameters and buffers only: broadcast_optimizer_state on a fresh optimiser takes a real step with zero gradients
        self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        options = {} if self._bucket_bytes is None else {"groups": list(buckets(list(model.parameters()), self._bucket_bytes))}
        self._optimizer = self._hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
        return model, self._optimizer

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def finish_backward(self) -> None:
        self._optimizer.synchronize()

    def step(self) -> None:
        with self._optimizer.skip_synchronize():  # finish_backward has done it
            self._optimizer.step()

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()  # takes no set_to_none, and has torch's default: None

    def sync_buffers(self) -> None:
        self._hvd.broadcast_parameters(dict(self._model.named_buffers()), root_rank=0)

    def exchange_bytes(self) -> list[int]:
        """The matched buckets; as shipped Horovod fuses whatever is ready when its cycle ends."""
        if self._bucket_bytes is None:
            return []
        return [sum(_size(p) for p in group) for group in buckets(list(self._model.parameters()), self._bucket_bytes)]

    def all_reduce(self, value: float, op: Reduction) -> float:
        ops = {"sum": self._hvd.Sum, "max": self._hvd.Max, "min": self._hvd.Min}
        tensor = torch.tensor([value], dtype=torch.float64)
        return float(self._hvd.allreduce(tensor, op=ops[op], name="scalar").item())

    def gather(self, value: Any) -> list[Any]:
        return list(self._hvd.allgather_object(value, name="object"))

    def barrier(self) -> None:
        self._hvd.barrier()

    def close(self) -> None:
        self._hvd.shutdown()
        if self._rendezvous is not None:
            self._rendezvous.stop()


def buckets(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Parameters in reverse order, cut as DDP cuts them: a bucket closes once its bytes reach the cap, no tensor is split."""
    bucket: list[torch.Tensor] = []
    for parameter in reversed([p for p in parameters if p.requires_grad]):
        bucket.append(parameter)
        if sum(_size(p) for p in bucket) >= bucket_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _environment(config: RunConfig) -> dict[str, str]:
    """Horovod's variables for this config. Controller and operations always agree: a mismatch crashes."""
    variables: dict[str, str] = {"HOROVOD_CONTROLLER": config.transport, "HOROVOD_CPU_OPERATIONS": config.transport}
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
        raise UsageError(f"backend=horovod needs Horovod built for this torch ({reason}); run make setup") from None
    return hvd


def _init_mpi(hvd: Any, launch: Launch) -> Any:
    """Start Horovod on MPI's world once that is known to be the launcher's; there is no server to stop later."""
    from bench.backends import mpi_group

    hvd.init(comm=mpi_group.world(launch))
    return None


def _mpi_version(config: RunConfig) -> dict[str, str]:
    from bench.backends import mpi_group

    return mpi_group.versions() if config.transport == "mpi" else {}


def _init_gloo(hvd: Any, config: RunConfig, launch: Launch) -> Any:
    """Start Horovod's Gloo controller without horovodrun: rank 0 serves the rendezvous, our store tells where."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    from bench.rendezvous import host_address, open_store

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
    """What horovodrun would set for this rank: `hosts` holds every rank's host name, `address` rank 0's host:port.

    The cross communicator of local rank l joins the hosts that have more than l ranks, so uneven hosts work.
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
