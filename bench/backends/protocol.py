"""What a backend is: how gradients are exchanged, and nothing else.

It chooses no learning rate, batch size, precision or data order; it neither logs nor times.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from bench.config import RunConfig

Reduction = Literal["sum", "max", "min"]


class Session:
    """A model and its optimiser in training; this base class exchanges nothing.

    Every method is called by all ranks, in the same order.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def no_sync(self) -> AbstractContextManager[object]:
        """Return a context that holds back the exchange, for all micro-batches but a step's last.

        It contains forward and backward passes, as DDP decides in the forward pass.
        """
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of this rank's mean loss; the exchange may overlap it."""
        loss.backward()

    def synchronize_gradients(self) -> None:
        """Finish the exchange. Gradients are then means over ranks (mode=sync), ready to clip."""

    def step(self) -> None:
        """Make one optimiser update from the gradients as they stand."""
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Set the gradients to None, as torch's and Horovod's optimisers do by default."""
        self.optimizer.zero_grad()

    @property
    def broadcasts_buffers(self) -> bool:
        """Whether the next forward pass begins with rank 0's buffers on every rank."""
        return False

    def sync_buffers(self) -> None:
        """Copy rank 0's buffers, such as BatchNorm's, to every rank; call it before evaluation."""

    def exchange_bytes(self) -> list[int]:
        """List bytes of each gradient exchange; empty where the framework decides as it goes."""
        return []


class Backend:
    """How a run's ranks exchange; this base class is one process, every comparison's baseline.

    Every method is called by all ranks, in the same order.
    """

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a subclass lacks a method: this class's methods exchange nothing."""
        for name in ("wrap", "reduce_scalar", "gather", "barrier", "close"):
            if getattr(cls, name) is getattr(Backend, name):
                raise TypeError(f"{cls.__name__} has no {name} of its own")

    def __init__(self, *_: object) -> None:  # the config, launch and device of a run
        self.versions: dict[str, str] = {}  # of the libraries that carry the gradients
        self.files: dict[str, str] = {}  # their paths, which may differ between nodes

    def wrap(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: RunConfig
    ) -> Session:
        """Make the session to train with; each rank starts from rank 0's parameters and buffers."""
        return Session(model, optimizer)

    def reduce_scalar(self, value: float, op: Reduction) -> float:
        """Return the sum, maximum or minimum of `value` over ranks, in float64."""
        return float(value)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum a float32 tensor over ranks in place, by the call that exchanges gradients. Only
        backends whose facts say `all_reduces` need this method.
        """

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's picklable `value`, in order of ranks, on every rank."""
        return [value]

    def barrier(self) -> None:
        """Return once every rank has called."""

    def close(self) -> None:
        """Leave the process group, as the last call; every session must be deleted before."""
