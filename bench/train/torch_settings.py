"""torch's settings and the model's layout: equal on all ranks, and unchanged during a run."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.launch.agreement import disagreement

TorchSettings = dict[str, str | int | bool]
_OF_THE_NODE = ("interop_threads",)  # as many as it has cores


def read() -> TorchSettings:
    """Read torch's settings of this process that change how fast or how exactly it computes."""
    backends = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "grad_enabled": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "onednn": bool(backends.mkldnn.enabled),
        "onednn_matmul": backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        "onednn_convolution": backends.mkldnn.conv.fp32_precision,  # type: ignore[attr-defined]
        "cuda_matmul": backends.cuda.matmul.fp32_precision,
        "cudnn": backends.cudnn.enabled,
        "cudnn_convolution": backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
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
    facts = {f"torch.{n}": value for n, value in settings.items() if n not in _OF_THE_NODE}
    facts = {**facts, **_layout(network)}
    # their digest: a gather of all names of a large model on many ranks takes its time
    digests = backend.gather(hashlib.sha256(repr([*facts.items()]).encode()).hexdigest())
    if len(set(digests)) > 1:
        of_ranks = backend.gather(facts)
        order = "state_dict: the same tensors in another order"
        raise UsageError(disagreement(of_ranks) or f"ranks differ in {order}")
    return settings


def _layout(network: torch.nn.Module) -> dict[str, str]:
    """Describe each parameter and buffer in words, in order of definition."""
    layout = {}
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
        kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
        frozen = " frozen" if kind == "parameter" and not tensor.requires_grad else ""
        layout[f"state_dict.{name}"] = f"{dtype} {kind}{frozen} {shape}"
    return layout


def check_kept(settings: TorchSettings, backend: Backend) -> dict[str, Any]:
    """Check that torch's settings are still `settings`; also the threads of each rank.

    Needs every rank's call.
    """
    now = read()
    changes = [f"{n} {value} -> {now[n]}" for n, value in settings.items() if now[n] != value]
    of_ranks = [", ".join(changed) for changed in backend.gather(changes)]
    changed_ranks = [f"rank {rank}: {line}" for rank, line in enumerate(of_ranks) if line]
    return {
        "checks": {"torch_settings_kept": not changed_ranks},
        "threads": backend.gather(now["threads"]),
        **({"torch_settings_changed": changed_ranks} if changed_ranks else {}),
    }
