"""torch's settings and the model's layout: equal on all ranks, and unchanged during a run."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.launch.provenance import disagreement

TorchSettings = dict[str, str | int | bool]


def read() -> TorchSettings:
    """Read torch's settings of this process that change how fast or how exactly it computes."""
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
    """Read the settings with which training starts; needs every rank's call, before all exchanges.

    Raises UsageError where they, or the layout of the model, differ between ranks: exchanges
    would fail, wait for one another for ever, or mix up tensors.
    """
    settings = read()
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
    """Check that torch's settings are still `settings`; needs every rank's call."""
    now = read()
    changes = [f"{n} {value} -> {now[n]}" for n, value in settings.items() if now[n] != value]
    of_ranks = enumerate(backend.gather(changes))
    changed_ranks = [f"rank {rank}: {', '.join(changed)}" for rank, changed in of_ranks if changed]
    return {
        "checks": {"torch_settings_kept": not changed_ranks},
        "threads": backend.gather(now["threads"]),
        **({"torch_settings_changed": changed_ranks} if changed_ranks else {}),
    }
