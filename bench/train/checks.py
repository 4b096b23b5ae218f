"""Checks that a run did what was asked. Their log field `checks` is {name of check: passed}."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.instrument.parity import Parity
from bench.launch.provenance import disagreement
from bench.train import numbers
from bench.train.loop import Input, Loop

_EXPLODED = 10  # times the loss at the start


def check_samples(data: Input, backend: Backend, config: RunConfig) -> dict[str, Any]:
    """Check that ranks took as many samples as asked; return log fields. All ranks must call it."""
    sampled = backend.reduce_scalar(data.samples, "sum")
    complete = sampled == config.steps * config.samples_per_step
    complete = complete and len(data.wait_seconds) == config.steps
    return {"checks": {"samples_per_step": complete}, "samples": int(sampled)}


def check_training(
    loop: Loop,
    parity: Parity | None,
    backend: Backend,
    config: RunConfig,
    model: torch.nn.Module,
    classes: int,
) -> dict[str, Any]:
    """Check losses, parameters and a given `parity`; return log fields. All ranks must call it."""
    losses = loop.losses.tolist()
    digests = backend.gather(digest(model))

    def on_all_ranks(passed: bool) -> bool:
        return backend.reduce_scalar(float(passed), "min") == 1.0

    checks = {
        "loss_finite": on_all_ranks(all(math.isfinite(loss) for loss in losses)),
        "loss_bounded": on_all_ranks(loss_bounded(losses, config.steps_per_window, classes)),
        **(_parameters(config, len(set(digests))) if config.averages else {}),
        **({} if parity is None else {"parity": parity.holds}),
    }
    return {
        "parity": [] if parity is None else parity.record(),
        "checks": checks,
        "first_loss": backend.reduce_scalar(losses[0], "sum") / config.world_size,
        "last_loss": backend.reduce_scalar(losses[-1], "sum") / config.world_size,
        **({"parameters_sha256": digests[0]} if config.averages else {}),  # of all ranks
    }


def check_emulation(
    averaged_steps: int, backend: Backend, config: RunConfig, model: torch.nn.Module
) -> dict[str, Any]:
    """Check gradients and parameters of an emulation; return log fields. All ranks must call it.

    `averaged_steps` is how many steps of this rank have passed the check of their gradients.
    """
    digests = backend.gather(digest(model))
    averaged = backend.reduce_scalar(float(averaged_steps == config.steps), "min") == 1.0
    checks = {"gradients_averaged": averaged, **_parameters(config, len(set(digests)))}
    return {"checks": checks, "parameters_sha256": digests[0]}


def _parameters(config: RunConfig, kinds: int) -> dict[str, bool]:
    """Check that all ranks' parameters are equal, or that all differ if nothing is exchanged.

    Returns {name of the check: passed}. `kinds` is how many different digests the ranks have.
    """
    if config.ranks_part:
        return {"parameters_differ": kinds == config.world_size}
    return {"parameters_equal": kinds == 1}


def loss_bounded(losses: Sequence[float], steps_per_window: int, classes: int) -> bool:
    """Check that the last window's mean loss is at most 10 * max(first loss, ln(classes)).

    Noise of small batches and the first steps' overshoot stay far below this bound. A learning rate
    that is too high exceeds the bound within a few steps.
    """
    last_window = losses[-steps_per_window:]
    return sum(last_window) / len(last_window) <= _EXPLODED * max(losses[0], math.log(classes))


def digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 of all parameters' bytes in order of definition, whatever their layout."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        in_order = parameter.detach().cpu().contiguous().reshape(-1)
        sha.update(in_order.view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


TorchSettings = dict[str, str | int | bool]


def torch_settings() -> TorchSettings:
    """Return those settings of torch that change how fast or exactly this process computes."""
    backends: Any = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "grad_enabled": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "onednn": bool(backends.mkldnn.enabled),
        "onednn_matmul": backends.mkldnn.matmul.fp32_precision,
        "onednn_convolution": backends.mkldnn.conv.fp32_precision,
        "cuda_matmul": backends.cuda.matmul.fp32_precision,
        "cudnn": backends.cudnn.enabled,
        "cudnn_convolution": backends.cudnn.conv.fp32_precision,
        "cudnn_benchmark": backends.cudnn.benchmark,
        "cudnn_deterministic": backends.cudnn.deterministic,
    }


def require_alike(config: RunConfig, backend: Backend, network: torch.nn.Module) -> TorchSettings:
    """Check that all ranks' torch settings and models are alike; return the settings.

    All ranks must call this before any exchange. Raises UsageError if they differ in settings or in
    names, types, shapes or order of the model's tensors, or if torch does not use --threads.
    """
    settings = torch_settings()
    if settings["threads"] != config.threads:
        now = f"the code of the model or data set has set torch's threads to {settings['threads']}"
        raise UsageError(f"{now}; leave them to --threads, which is {config.threads}")
    facts: dict[str, Any] = {f"torch.{name}": value for name, value in settings.items()}
    del facts["torch.interop_threads"]  # as many as a node has cores
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
        kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
        frozen = " frozen" if kind == "parameter" and not tensor.requires_grad else ""
        facts[f"state_dict.{name}"] = f"{dtype} {kind}{frozen} {shape}"
    # their digest: a gather of all names of a large model on many ranks takes its time
    digests = backend.gather(hashlib.sha256(repr([*facts.items()]).encode()).hexdigest())
    if len(set(digests)) > 1:
        order = "ranks differ in state_dict: the same tensors in another order"
        raise UsageError(disagreement(backend.gather(facts)) or order)
    return settings


def check_kept(settings: TorchSettings, backend: Backend) -> dict[str, Any]:
    """Check that every rank's torch still has `settings`; return log fields. All must call it."""
    now = torch_settings()
    changes = [f"{n} {value} -> {now[n]}" for n, value in settings.items() if now[n] != value]
    of_ranks = enumerate(backend.gather(changes))
    changed_ranks = [f"rank {rank}: {', '.join(changed)}" for rank, changed in of_ranks if changed]
    return {
        "checks": {"torch_settings_kept": not changed_ranks},
        "threads": backend.gather(now["threads"]),
        **({"torch_settings_changed": changed_ranks} if changed_ranks else {}),
    }


def flops_per_image(network: torch.nn.Module, config: RunConfig) -> float | None:
    """Count the FLOP of one image's forward and backward pass; None if torch cannot count them.

    A multiply-add counts as two. Only matrix products, convolutions and attention count, as in
    model FLOP utilisation (Chowdhery et al. 2022, appendix B). Call this at the end of a run: the
    model's own code runs once more, on tensors without data.
    """
    images = config.samples_per_microbatch
    tensors = {n: _meta(p, p.requires_grad) for n, p in network.named_parameters()}
    tensors |= {n: _meta(b, False) for n, b in network.named_buffers()}
    shape = (images, 3, config.image_size, config.image_size)
    batch = torch.empty(shape, dtype=numbers.parameter_dtype(config), device="meta")
    try:
        # a model that its author compiled would be compiled again, for these tensors
        with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False) as counter:
            torch.func.functional_call(network, tensors, (batch,)).sum().backward()
    except Exception:  # a model of the user's may need data, or a device
        return None
    return float(counter.get_total_flops() / images) or None


def _meta(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return tensor.detach().to("meta").requires_grad_(requires_grad)
