"""Tensors as Horovod takes them: no copy where none is needed, and back to what they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.backends.hvd import Wire
from bench.config import RunConfig


def wire(**fields: Any) -> Wire:
    return Wire(RunConfig(backend="horovod", batch_per_rank=4, **fields))


IMAGES = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    "tensor",
    [
        IMAGES,
        IMAGES.to(memory_format=torch.channels_last),
        IMAGES.reshape(2, 3, 4, 5, 1)
        .expand(2, 3, 4, 5, 2)
        .contiguous(memory_format=torch.channels_last_3d),
        IMAGES[0, 0].t(),
        torch.tensor(1.0),
    ],
    ids=["contiguous", "channels_last", "channels_last_3d", "transposed", "scalar"],
)
def test_a_dense_tensor_travels_without_a_copy(tensor: torch.Tensor) -> None:
    sent, context = wire().compress(tensor)
    assert sent.is_contiguous()
    assert sent.data_ptr() == tensor.data_ptr()
    back = wire().decompress(sent, context)
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride()


@pytest.mark.parametrize(
    ("fields", "own", "travels_as"),
    [
        ({"precision": "bf16"}, torch.bfloat16, torch.float32),
        ({}, torch.float64, torch.float64),
    ],
)
def test_types(fields: dict[str, Any], own: torch.dtype, travels_as: torch.dtype) -> None:
    tensor = IMAGES.to(own).to(memory_format=torch.channels_last)[:, ::2]  # with gaps
    sent, context = wire(**fields).compress(tensor)
    assert sent.dtype == travels_as
    back = wire(**fields).decompress(sent, context)
    assert back.dtype == own
    assert torch.equal(back, tensor), "small whole numbers are exact in every type here"
