"""What a network, its scores and its images must be, so that every cell does the same work."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bench.backends import catalogue
from bench.config import RunConfig, UsageError

_NOT_THE_USERS = ("torch", "torchvision", "bench")  # packages whose code is not looked into


def require_fit(network: nn.Module, config: RunConfig) -> None:
    """Raise UsageError where a run of `config` could not train `network` as it is, in every cell
    alike.
    """
    if problem := next(_problems(network, config), None):
        raise UsageError(f"model={config.model!r}: {problem}")


def _problems(network: nn.Module, config: RunConfig) -> Iterator[str]:
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(tensor):
            lazy = f"{name} has no shape before a first forward pass"
            yield f"{lazy}; pass a batch through the model in its factory, or name the width"
        if tensor.requires_grad and tensor.is_complex():
            which = f"{name} is {str(tensor.dtype).removeprefix('torch.')}"
            if not catalogue.facts(config.backend).carries_complex:
                carry = ", ".join(f.name for f in catalogue.CATALOGUE.values() if f.carries_complex)
                refused = f"{which}, which {config.backend} cannot exchange"
                yield f"{refused}; use {carry}, or two real tensors"
            if config.precision not in ("float32", "tf32"):
                yield f"{which}, which no precision={config.precision} has; use float32"
    for name, module in network.named_modules():
        which = f"{name or 'the model'} ({type(module).__name__})"
        bases = "".join(base.__name__ for base in type(module).__mro__)  # torch's, or another's
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and "SyncBatchNorm" in bases:
            alone = "synchronises by one framework, and not under another"
            yield f"{which} {alone}; return a plain BatchNorm"
        elif type(module).__module__.startswith(("torch.nn.parallel", "torch.distributed")):
            yield f"{which} divides or exchanges by itself; leave the exchange to the backend"
        elif call := next(_calls(type(module), object, set()), ""):
            alone = f"{which} uses {call}, which not every backend's ranks have"
            yield f"{alone}; leave the exchange to the backend"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            mixed = f"{which} makes sparse gradients, which not every backend exchanges"
            yield f"{mixed}; use sparse=False"


def _calls(value: Any, kind: type, seen: set[int]) -> Iterator[str]:
    """Yield names of torch.distributed that passes of a user's class, or a function, come to use.

    A function is a method of `kind`, or called by one. Methods that no pass calls do not count.
    """
    value = getattr(value, "__func__", value)  # a static method's, of an autograd function
    module = value if isinstance(value, ModuleType) else None
    place = str(module.__name__ if module else getattr(value, "__module__", ""))
    if f"{place}.".startswith("torch.distributed."):
        yield place if module else f"torch.distributed.{getattr(value, '__name__', place)}"
    if id(value) in seen or place.partition(".")[0] in _NOT_THE_USERS:
        return
    seen.add(id(value))
    if inspect.isclass(value) and issubclass(value, nn.Module | torch.autograd.Function):
        for base in value.__mro__:
            for name in ("__init__", "forward", "backward"):
                yield from _calls(vars(base).get(name), value, seen)
    codes = [value.__code__] if isinstance(value, FunctionType) else []
    for code in codes:  # with those of functions inside
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        names = code.co_names
        used = [x for n in names for x in (value.__globals__.get(n), getattr(kind, n, None))]
        modules = [x for x in used if isinstance(x, ModuleType)]
        for one in [*used, *(getattr(m, n, None) for m in modules for n in names)]:
            yield from _calls(one, kind, seen)


def require_scores(output: object, labels: torch.Tensor, classes: int, config: RunConfig) -> None:
    """Raise UsageError unless the first forward pass gave scores [n, classes or more], floating.

    `labels` are [n], each from 0 to classes - 1.
    """
    came, cure = "", f"give its last layer {classes} outputs, and return them as they are"
    if not isinstance(output, torch.Tensor):
        size = f" of {len(output)}" if hasattr(output, "__len__") else ""
        came, cure = f"a {type(output).__name__}{size}", "return the scores alone"
    elif not output.is_floating_point():
        came = f"{str(output.dtype).removeprefix('torch.')} {[*output.shape]}"
    elif output.dim() != 2 or len(output) != len(labels) or output.shape[1] < classes:
        came = f"{[*output.shape]}"
    elif not output.requires_grad:
        came, cure = "scores without a gradient", "train it"
    if came:
        wanted = f"not scores [{len(labels)}, {classes}] of a floating type, with a gradient"
        raise UsageError(f"model={config.model!r} gave {came}, {wanted}; {cure}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        ends = f"{int(labels.min())} to {int(labels.max())} for {classes} classes"
        cure = "number them from 0, or correct `classes`"
        raise UsageError(f"dataset={config.dataset!r} gave labels {ends}; {cure}")


def require_pictures(images: torch.Tensor, config: RunConfig) -> None:
    """Raise UsageError where each channel of the first batch [n, channels, ...] is one number, or
    a pixel is none.
    """
    problem = "" if images.isfinite().all() else "the first batch has pixels that are not finite"
    low, high = images.detach().movedim(1, 0).flatten(1).aminmax(dim=1)  # scaled channel by channel
    if not problem and not (low < high).any():
        pixels = ", ".join(f"{x:g}" for x in low.unique())
        problem = f"all pixels of the first batch are {pixels}, so nothing can be learnt"
    if problem:
        cure = "check how images are read and scaled"
        raise UsageError(f"dataset={config.dataset!r}: {problem}; {cure}")
