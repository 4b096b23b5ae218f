"""A torch.distributed process group over mpi4py, as PyTorch's stock wheel is built without MPI.

Collectives are queued, and one thread runs them in order as blocking MPI calls. DDP launches its
buckets in the same order on every rank, so the ranks need not negotiate. mpi4py releases the
interpreter lock inside MPI, so the exchange overlaps the backward pass.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]  # not in torch's stubs

from bench.config import RunConfig, UsageError
from bench.launch.provenance import disagreement, shared_fields
from bench.launch.world import Launch, require_mpi_world

NAME = "mpi4py"


def init(config: RunConfig, launch: Launch) -> None:
    """Make MPI torch's default process group. Raises UsageError or WrongWorld as `world` does."""
    comm = world(config, launch)
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, MpiGroup, extended_api=True, devices=["cpu"])
    # MPI itself is the rendezvous: the store holds nothing that others must read
    rank, size = comm.Get_rank(), comm.Get_size()
    dist.init_process_group(NAME, store=dist.HashStore(), rank=rank, world_size=size)


def world(config: RunConfig, launch: Launch) -> Any:
    """Return COMM_WORLD. All ranks must call this.

    Raises UsageError if MPI does not load or ranks have different configs, WrongWorld if MPI has
    another number of ranks than the launch.
    """
    comm = library().COMM_WORLD
    require_mpi_world(launch, comm.Get_size(), versions()["mpi"])
    if problem := disagreement(comm.allgather(shared_fields(config))):
        raise UsageError(problem)
    return comm


def versions() -> dict[str, str]:
    """Return the versions of the MPI library and its Python binding, for the run log."""
    import mpi4py

    name = library().Get_library_version().split("\n")[0].split(",")[0].strip("\0 ")
    return {"mpi": name, "mpi4py": mpi4py.__version__}


def library() -> Any:
    """Import and return mpi4py's MPI. Raises UsageError if it does not load."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).split("\n")[0]
        need = f"transport=mpi needs mpi4py and an MPI library ({reason})"
        raise UsageError(f"{need}; run make setup, or --transport gloo") from None
    return MPI


class MpiGroup(dist.ProcessGroup):
    """A process group with the collectives that DDP and the training loop use, and no others."""

    def __init__(self, options: Any, _: Any) -> None:
        super().__init__(options.group_rank, options.group_size)  # type: ignore[call-arg]  # the stub knows the other constructor only
        MPI = library()
        self._ops = {getattr(dist.ReduceOp, op): getattr(MPI, op) for op in ("SUM", "MAX", "MIN")}
        self._in_place = MPI.IN_PLACE
        # a context of its own: nothing else in the process can match our messages
        self._comm = MPI.COMM_WORLD.Dup()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="mpi-collectives", daemon=True)
        self._thread.start()
        # outliving the interpreter it aborts: "terminate called without an active exception"
        atexit.register(self._stop)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _stop(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _enqueue(self, collective: Callable[[], object], result: list[Any]) -> dist.Work:
        future: torch.futures.Future[Any] = torch.futures.Future()

        def call() -> None:
            try:
                collective()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        if threading.current_thread() is self._thread:
            call()  # a hook's callback, which waits for it here
        else:
            self._calls.put(call)
        work: dist.Work = _create_work_from_future(future)
        return work

    # torch calls these four by position or by the name `opts`; its stubs overload them with forms
    # it never uses on us

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:  # type: ignore[override]
        op = opts.reduceOp.op if hasattr(opts.reduceOp, "op") else opts.reduceOp
        arrays, reduce = [_array(tensor) for tensor in tensors], self._comm.Allreduce
        mark, mpi_op = self._in_place, self._ops[op]
        return self._enqueue(lambda: [reduce(mark, data, op=mpi_op) for data in arrays], tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:  # type: ignore[override]
        arrays, root = [_bytes(_as_it_lies(tensor)) for tensor in tensors], opts.rootRank
        return self._enqueue(lambda: [self._comm.Bcast(a, root=root) for a in arrays], tensors)

    def allgather(  # type: ignore[override]
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> dist.Work:
        def collective() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                gathered = torch.empty((self.size(), *tensor.shape), dtype=tensor.dtype)
                self._comm.Allgather(_bytes(tensor), _bytes(gathered))
                for place, part in zip(output, gathered, strict=True):
                    place.copy_(part)

        return self._enqueue(collective, outputs)

    def barrier(self, opts: Any) -> dist.Work:  # type: ignore[override]
        return self._enqueue(self._comm.Barrier, [])

    def getBackendName(self) -> str:
        return NAME


def _array(tensor: torch.Tensor) -> Any:
    """Return the tensor's own memory as an array. Raises ValueError if it is not contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(f"a collective needs a contiguous tensor, not strides {tensor.stride()}")
    return tensor.detach().numpy()


def _as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous view of a channels_last tensor, and any other tensor as it is."""
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.permute(0, 2, 3, 1) if last else tensor


def _bytes(tensor: torch.Tensor) -> Any:
    """View the tensor's memory as bytes, for types unknown to numpy and MPI, such as bfloat16."""
    return _array(tensor.detach().view(-1).view(torch.uint8))
