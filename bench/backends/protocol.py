"""What a backend is: the mechanism by which gradients meet, never a policy.

No learning rate, batch size, precision, data order, logging or timing belongs in a backend.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from bench.config import RunConfig

Reduction = Literal["sum", "max", "min"]


class Session:
    """A model and its optimiser in training; here, one process that exchanges nothing.

    Every method is called by all ranks, in the same order.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def no_sync(self) -> AbstractContextManager[object]:
        """Hold back the exchange in forward and backward of all micro-batches but a step's last.

        A context, not an argument of `backward`: DDP decides in the forward pass.
        """
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of this rank's mean loss; the exchange may overlap it."""
        loss.backward()

    def synchronize_gradients(self) -> None:
        """Make every gradient the mean over ranks; the caller may unscale and clip from here on."""

    def step(self) -> None:
        """Make one optimiser update from the gradients as they stand."""
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Forget the gradients: None, the default of torch's and Horovod's optimisers alike."""
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
    """How a run's ranks exchange; here, one process, the baseline of every comparison.

    Every method is called by all ranks, in the same order.
    """

    def __init_subclass__(cls) -> None:
        """Raise TypeError where a method is missing: the run would be measured without it."""
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
        """Reduce `value` over ranks, in float64."""
        return float(value)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Add a float32 tensor over ranks in place, by the call that exchanges gradients; of
        backends with `all_reduces`.
        """

    def gather(self, value: Any) -> list[Any]:
        """Gather every rank's picklable `value`, by rank, on every rank."""
        return [value]

    def barrier(self) -> None:
        """Return once every rank has called."""

    def close(self) -> None:
        """Leave the process group; every session must be deleted before. Use it no more after."""
