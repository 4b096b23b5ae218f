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


LAYOUTS = {
    "contiguous": IMAGES,
    "channels_last": IMAGES.to(memory_format=torch.channels_last),
    "transposed": IMAGES[0, 0].t(),
    "scalar": torch.tensor(1.0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dense_tensor_travels_without_a_copy(layout: str) -> None:
    tensor = LAYOUTS[layout]
    sent, context = wire().compress(tensor)
    assert sent.is_contiguous()
    assert sent.data_ptr() == tensor.data_ptr()
    back = wire().decompress(sent, context)
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride()


def test_bfloat16_travels_as_float32() -> None:
    tensor = IMAGES.bfloat16().to(memory_format=torch.channels_last)[:, ::2]  # with gaps
    sent, context = wire(precision="bf16").compress(tensor)
    assert sent.dtype == torch.float32
    back = wire(precision="bf16").decompress(sent, context)
    assert back.dtype == torch.bfloat16
    assert torch.equal(back, tensor)
