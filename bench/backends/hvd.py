"""Horovod over MPI, over its own Gloo, or over NCCL, with the traps of its optimiser wrapper cured
here and nowhere else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from bench.backends.hvd_compression import Wire, broadcast
from bench.backends.protocol import Reduction
from bench.config import MATCHED_BUCKET_MIB, RunConfig, UsageError
from bench.launch.world import Launch, WrongWorld
from bench.train.device import Device

_MIB = 2**20


class Horovod:
    """Horovod wraps the optimiser. `shipped` leaves its fusion alone; `matched` exchanges DDP's
    buckets, one by one.
    """

    def __init__(self, config: RunConfig, launch: Launch, device: Device) -> None:
        self._config = config
        self._parameters: list[torch.nn.Parameter] = []  # what is trained, once a model is wrapped
        os.environ.update(_environment(config))
        hvd = self._hvd = _import_horovod()
        built = {"mpi": hvd.mpi_built, "gloo": hvd.gloo_built, "nccl": hvd.nccl_built}[
            config.transport
        ]()
        if not built:
            raise UsageError(
                f"this Horovod was built without {config.transport}; run make setup, or choose "
                f"another --transport"
            )
        self._rendezvous = (
            _init_mpi(hvd, config, launch)
            if config.transport == "mpi"
            else _init_gloo(hvd, config, launch)
        )
        # Horovod falls back to N silent worlds of one rank whenever its launch information is
        # incomplete
        if (hvd.size(), hvd.rank()) != (launch.size, launch.rank):
            raise WrongWorld(
                f"{launch.source} started rank {launch.rank} of {launch.size}, but Horovod is "
                f"rank {hvd.rank()} of {hvd.size()}; "
                "start with the mpirun that Horovod was built against, or use --transport gloo"
            )
        self.versions = {
            "horovod": __import__("horovod").__version__,
            **_transport_versions(hvd, config),
        }

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        if self._config.sync_batchnorm:
            _join_statistics(model, self._hvd)
        self._model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        # parameters and buffers only: broadcast_optimizer_state on a fresh optimiser takes a real
        # step with zero gradients
        broadcast(model.state_dict(), self._hvd)
        groups = self._matched_buckets()
        self._optimizer = self._hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=Wire(self._config),
            backward_passes_per_step=self._config.accumulate,
            **({"groups": groups} if groups else {}),
        )
        # wrapping forgets them: a group added later would get the class's learning rate and no
        # momentum
        self._optimizer.defaults = optimizer.defaults
        return model, self._optimizer

    def accumulating(self) -> AbstractContextManager[object]:
        return nullcontext()  # Horovod counts the backward passes itself

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def finish_backward(self) -> None:
        """Wait for the exchange: before this, clipping or unscaling would race with it."""
        idle = self._unused_everywhere() if self._config.unused_parameters else []
        self._optimizer.synchronize()
        for parameter in idle:
            # Horovod sends zeros for it; kept, they would let weight decay and momentum move what
            # nobody used
            parameter.grad = None

    def step(self) -> None:
        # Horovod's own step would wait once more, and run every hook on the step twice;
        # finish_backward has waited
        super(type(self._optimizer), self._optimizer).step()  # type: ignore[misc]  # the class is made at run time

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()  # takes no set_to_none, and has torch's default: None

    def sync_buffers(self) -> None:
        broadcast(dict(self._model.named_buffers()), self._hvd)

    def exchange_bytes(self) -> list[int]:
        """The matched buckets; as shipped Horovod fuses whatever is ready when its cycle ends."""
        return [sum(_size(p) for p in group) for group in self._matched_buckets()]

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

    def _matched_buckets(self) -> list[list[torch.Tensor]]:
        if self._config.settings != "matched":
            return []
        return list(
            buckets(self._parameters, int((self._config.bucket_mib or MATCHED_BUCKET_MIB) * _MIB))
        )

    def _unused_everywhere(self) -> list[torch.nn.Parameter]:
        """Parameters that no rank gave a gradient; one small exchange a step, as DDP makes one to
        find the same.
        """
        used = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        used = self._hvd.allreduce(used, op=self._hvd.Max, name="used parameters")
        return [
            p for p, somewhere in zip(self._parameters, used.tolist(), strict=True) if not somewhere
        ]


def buckets(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Parameters in reverse order, cut as DDP cuts them: a bucket closes once its bytes reach the
    cap, no tensor is split.
    """
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


def _init_mpi(hvd: Any, config: RunConfig, launch: Launch) -> Any:
    """Start Horovod on MPI's world once that is known to be the launcher's; there is no server to
    stop later.
    """
    from bench.backends import mpi_group

    hvd.init(comm=mpi_group.world(config, launch))
    return None


def _transport_versions(hvd: Any, config: RunConfig) -> dict[str, str]:
    """Library that carries the gradients. Raises UsageError where Horovod's NCCL is not torch's,
    and so not DDP's.
    """
    if config.transport == "mpi":
        from bench.backends import mpi_group

        return mpi_group.versions()
    if config.transport == "nccl":
        ours, torchs = hvd.nccl_built(), nccl_code(torch.cuda.nccl.version())
        if ours != torchs:
            raise UsageError(
                f"Horovod was built with NCCL {ours}, torch brings {torchs}: two libraries would "
                f"be compared; "
                "build Horovod with HOROVOD_NCCL_HOME at torch's NCCL and HOROVOD_NCCL_LINK=SHARED"
            )
        loaded = loaded_libraries("libnccl", Path("/proc/self/maps").read_text())
        if len(loaded) > 1:
            raise UsageError(
                f"this process has loaded {' and '.join(loaded)}: Horovod and torch would use "
                f"NCCLs of their own; "
                "take one of them out of LD_LIBRARY_PATH, or build Horovod with HOROVOD_NCCL_HOME "
                "at torch's"
            )
        return {
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "nccl library": loaded[0] if loaded else "inside torch",
        }
    return {}


def loaded_libraries(name: str, maps: str) -> list[str]:
    """Paths of the shared libraries `name`*.so* that a process has loaded, from the text of its
    /proc/PID/maps.
    """
    paths = {
        line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6
    }
    return sorted(
        path for path in paths if Path(path).name.startswith(name) and ".so" in Path(path).name
    )


def nccl_code(version: tuple[int, int, int]) -> int:
    """NCCL's version as one number, as its header writes it from 2.9 on: (2, 27, 3) -> 22703."""
    major, minor, patch = version
    return 10000 * major + 100 * minor + patch


def _join_statistics(model: torch.nn.Module, hvd: Any) -> None:
    """Replace every BatchNorm below `model` by Horovod's, which keeps its parameters and buffers,
    as torch's does for DDP.
    """
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
                joined = hvd.SyncBatchNorm(
                    child.num_features,
                    child.eps,
                    child.momentum,
                    child.affine,
                    child.track_running_stats,
                )
                joined._parameters, joined._buffers = child._parameters, child._buffers
                setattr(module, name, joined.train(child.training))


def _init_gloo(hvd: Any, config: RunConfig, launch: Launch) -> Any:
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
