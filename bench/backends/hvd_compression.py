"""What a tensor must be like before Horovod takes it, which is contiguous and of a type it can add;
and back again.

torch's DDP copies gradients into buckets and so takes any layout, and Gloo and NCCL add bfloat16;
Horovod 0.28 does neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bench.config import RunConfig

_Context = tuple[torch.dtype, list[int] | None]


class Wire:
    """A compressor in Horovod's sense: `compress` before the exchange, `decompress` after it."""

    def __init__(self, config: RunConfig) -> None:
        # bfloat16 gradients travel as float32: exact on the way, twice the bytes, and the same in
        # the DDP backend
        self._dtype = {"fp16": torch.float16}.get(
            config.compression, torch.float32 if config.precision == "bf16" else None
        )

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, _Context]:
        """`tensor` as it travels: a view of the same memory wherever no type has to change."""
        order = None
        sent = tensor
        if not tensor.is_contiguous():
            order = memory_order(tensor)
            sent = tensor.permute(
                order
            ).contiguous()  # a channels_last tensor is contiguous in this order: no copy
        return sent if self._dtype is None else sent.to(self._dtype), (tensor.dtype, order)

    def decompress(self, tensor: torch.Tensor, context: _Context) -> torch.Tensor:
        """`tensor` in the type and the order of dimensions that it had."""
        dtype, order = context
        back = tensor.to(dtype)
        if order is None:
            return back
        return back.permute([order.index(dim) for dim in range(len(order))])


def memory_order(tensor: torch.Tensor) -> list[int]:
    """Dimensions from the slowest to the fastest in memory: [0, 2, 3, 1] for channels_last."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def broadcast(tensors: Mapping[str, torch.Tensor], hvd: Any) -> None:
    """Give every rank rank 0's values, in place, whatever their type and layout: they travel as
    bytes, in order.
    """
    packed = {name: tensor.detach().contiguous().reshape(-1) for name, tensor in tensors.items()}
    hvd.broadcast_parameters(
        {name: flat.view(torch.uint8) for name, flat in packed.items()}, root_rank=0
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            if packed[name].data_ptr() != tensor.data_ptr():  # it had to be copied to be in order
                tensor.copy_(packed[name].reshape(tensor.shape))
