"""Floating-point operations of a training, counted by torch from the shapes that a model makes."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.config import RunConfig
from bench.train import precision


def per_image(network: torch.nn.Module, config: RunConfig) -> float | None:
    """Count the FLOP of one image's forward and backward pass, a multiply-add as two; None where
    torch cannot count them.

    Matrix products, convolutions and attention alone, as in model FLOP utilisation (Chowdhery et
    al. 2022, appendix B). Nothing is computed: parameters, buffers and images are stand-ins without
    data, but the model's own code runs once, so call it when all else is done.
    """
    images = config.samples_per_microbatch
    tensors = {n: _meta(p, p.requires_grad) for n, p in network.named_parameters()}
    tensors |= {n: _meta(b, False) for n, b in network.named_buffers()}
    shape = (images, 3, config.image_size, config.image_size)
    batch = torch.empty(shape, dtype=precision.parameter_dtype(config), device="meta")
    try:
        # a model that its author compiled would be compiled again, for these tensors
        with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False) as counter:
            torch.func.functional_call(network, tensors, (batch,)).sum().backward()
    except Exception:  # a model of the user's may need data, or a device
        return None
    return float(counter.get_total_flops() / images) or None


def _meta(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return tensor.detach().to("meta").requires_grad_(requires_grad)
