"""The base classes of backends. A backend exchanges gradients, and does nothing else.

It chooses no learning rate, batch size, precision or data order. It neither logs nor times.
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
        """Return a context without exchange, for all micro-batches of a step but the last.

        The forward pass must run inside it as well, as DDP decides there whether to exchange.
        """
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of this rank's mean loss; the exchange may overlap it."""
        loss.backward()

    def synchronize_gradients(self) -> None:
        """Finish the exchange. With mode=sync, gradients then are means over ranks, unclipped."""

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
        """List the bytes of each exchange in a step; empty if no exchange has a known size."""
        return []


class Backend:
    """A way for ranks to exchange gradients. This base class is `single`, for one process.

    Every method is called by all ranks, in the same order.
    """

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a subclass lacks wrap, reduce_scalar, gather, barrier or close."""
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
        backends with `all_reduces` in their BackendFacts need this method.
        """

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's picklable `value`, in order of ranks, on every rank."""
        return [value]

    def barrier(self) -> None:
        """Wait until every rank has called this."""

    def close(self) -> None:
        """Leave the process group, as the last call; every session must be deleted before."""
