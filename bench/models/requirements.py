"""What a network of the user's must not hold, told by its name before a framework has it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from bench.backends import catalogue
from bench.config import RunConfig, UsageError

_NOT_THE_USERS = ("torch", "torchvision", "bench")  # packages whose code is not looked into
# what every backend exchanges; complex parameters are some backends' alone
_TRAINED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)


def require_fit(network: nn.Module, config: RunConfig) -> None:
    """Raise UsageError where a run of `config` could not train `network` as it is, in every cell
    alike.
    """
    problem = next(_problems(network, config), None)
    if problem is not None:
        raise UsageError(f"model={config.model!r}: {problem}")


def _problems(network: nn.Module, config: RunConfig) -> Iterator[str]:
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            lazy = f"{name} has no shape before a first forward pass"
            yield f"{lazy}; pass a batch through the model in its factory, or name the width"
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            yield from _type_problems(f"{name} is {_in_words(parameter.dtype)}", parameter, config)
    for name, module in network.named_modules():
        yield from _layer_problems(name or "the model", module)


def _type_problems(which: str, parameter: nn.Parameter, config: RunConfig) -> Iterator[str]:
    if parameter.dtype in _COMPLEX:
        if not catalogue.facts(config.backend).carries_complex:
            carry = ", ".join(f.name for f in catalogue.CATALOGUE.values() if f.carries_complex)
            refused = f"{which}, which {config.backend} cannot exchange"
            yield f"{refused}; use {carry}, or two real tensors"
        if config.precision not in ("float32", "tf32"):
            yield f"{which}, which no precision={config.precision} has; use float32"
    elif parameter.dtype not in _TRAINED:
        yield f"{which}, which no backend exchanges; use float32, or freeze it"


def _layer_problems(name: str, module: nn.Module) -> Iterator[str]:
    kind = type(module).__name__
    bases = [base.__name__ for base in type(module).__mro__]  # torch's, or a framework's own
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and "SyncBatchNorm" in "".join(bases):
        alone = f"{name} ({kind}) synchronises by one framework, and not under another"
        yield f"{alone}; return a plain BatchNorm"
    elif type(module).__module__.startswith(("torch.nn.parallel", "torch.distributed")):
        yield f"{name} ({kind}) divides or exchanges by itself; leave the exchange to the backend"
    elif call := _asks_for_group(module):
        alone = f"{name} ({kind}) uses {call}, which not every backend's ranks have"
        yield f"{alone}; leave the exchange to the backend"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
        mixed = f"{name} ({kind}) makes sparse gradients, which not every backend exchanges"
        yield f"{mixed}; use sparse=False"


def _asks_for_group(module: nn.Module) -> str:
    """Name what of torch.distributed a layer holds, or calls in a pass; '' for nothing."""
    for name, value in vars(module).items():
        if isinstance(value, torch.distributed.ProcessGroup):
            return f"a process group of torch.distributed ({name})"
    return next(_calls_of(type(module), object, set()), "")


def _calls_of(value: object, kind: type, seen: set[CodeType]) -> Iterator[str]:
    """Yield names of torch.distributed that passes of a user's class, or a function, come to use.

    A function is a method of `kind`, or called by one. Methods that no pass calls do not count.
    """
    if inspect.isclass(value) and issubclass(value, nn.Module | torch.autograd.Function):
        for base in value.__mro__:
            for name in ("__init__", "forward", "backward"):
                yield from _calls_of(vars(base).get(name), value, seen)
    function = getattr(value, "__func__", value)  # a static method's, of an autograd function
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    if isinstance(function, FunctionType) and package not in _NOT_THE_USERS:
        yield from _distributed(function.__code__, function.__globals__, kind, seen)


def _distributed(
    code: CodeType, names: dict[str, Any], kind: type, seen: set[CodeType]
) -> Iterator[str]:
    """Yield names of torch.distributed that code uses: dist.all_reduce, or all_reduce itself."""
    if code in seen:
        return
    seen.add(code)
    values = [names.get(name) for name in code.co_names]
    values += [getattr(kind, name, None) for name in code.co_names]
    modules = [v for v in values if isinstance(v, ModuleType)]
    modules = [m for m in modules if m.__name__.partition(".")[0] not in _NOT_THE_USERS]
    values += [getattr(module, name, None) for module in modules for name in code.co_names]
    for value in values:
        yield from _calls_of(value, kind, seen)
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, ModuleType) and value.__name__.startswith("torch.distributed"):
            yield value.__name__
        elif str(getattr(value, "__module__", "")).startswith("torch.distributed"):
            yield f"torch.distributed.{name}"
    if "distributed" in code.co_names and names.get("torch") is torch:
        yield "torch.distributed"
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _distributed(inner, names, kind, seen)


def _in_words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def require_scores(output: object, labels: torch.Tensor, classes: int, config: RunConfig) -> None:
    """Raise UsageError unless the first forward pass gave scores [n, classes or more], floating.

    `labels` are [n], each from 0 to classes - 1.
    """
    wanted = f"not scores [{len(labels)}, {classes}] of a floating type"
    cure = "return the scores alone from the factory's model"
    if not isinstance(output, torch.Tensor):
        size = f" of {len(output)}" if hasattr(output, "__len__") else ""
        came = f"a {type(output).__name__}{size}"
        raise UsageError(f"model={config.model!r} gave {came}, {wanted}; {cure}")
    shape, dtype = list(output.shape), output.dtype
    fits = output.dim() == 2 and shape[0] == len(labels) and shape[1] >= classes
    if not (fits and output.is_floating_point()):
        came = f"{_in_words(dtype)} {shape}" if not output.is_floating_point() else f"{shape}"
        cure = f"give its last layer {classes} outputs, and return them as they are"
        raise UsageError(f"model={config.model!r} gave {came}, {wanted}; {cure}")
    if not output.requires_grad:
        raise UsageError(f"model={config.model!r} gave scores without a gradient; train it")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        ends = f"{int(labels.min())} to {int(labels.max())}"
        raise UsageError(
            f"dataset={config.dataset!r} gave labels {ends} for {classes} classes; "
            "number them from 0, or correct `classes`"
        )


def require_pictures(images: torch.Tensor, config: RunConfig) -> None:
    """Raise UsageError where each channel of the first batch [n, channels, ...] is one number, or
    a pixel is none.
    """
    first = f"dataset={config.dataset!r}: "
    cure = "check how images are read and scaled"
    if not images.isfinite().all():
        raise UsageError(f"{first}the first batch has pixels that are not finite; {cure}")
    low, high = images.detach().movedim(1, 0).flatten(1).aminmax(dim=1)  # scaled channel by channel
    if not (low < high).any():
        pixels = f"all pixels of the first batch are {', '.join(f'{x:g}' for x in low.unique())}"
        raise UsageError(f"{first}{pixels}, so nothing can be learnt; {cure}")
