"""The network to train, by its name in torchvision or networks.py, or from the user's factory.

Networks that backends would train differently are refused, as are unusable outputs and images.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bench import factory
from bench.backends import catalogue
from bench.config import RunConfig, UsageError
from bench.config.fields import NETWORKS
from bench.data.dataset import Images, import_torchvision
from bench.options import near
from bench.train.numbers import memory_format, parameter_dtype, seed_all

_NOT_THE_USERS = ("torch", "torchvision", "bench")  # packages whose code is not looked into
_PREPARED_WITH = 10_000 * 32 * 32  # pixels of the first images, at most
_AT_ONCE = 500 * 32 * 32  # pixels


def build_model(config: RunConfig, classes: int) -> nn.Module:
    """Build `config`'s model with seeded weights. Raises UsageError if it is unknown or faulty."""
    seed_all(config.seed)
    name = config.model
    place = f"bench.models.networks:{name}" if name in NETWORKS else name
    make = _factory_model if ":" in place else _torchvision_model
    if config.model_width != 1 and not (
        ":" in place and factory.takes(factory.function("model", place), "config")
    ):
        setting, rule = f"model_width={config.model_width:g}", f"model={name!r} has one width"
        wide = f"{', '.join(NETWORKS)}, a factory that takes a config"
        raise UsageError(f"{setting} is of {wide}; {rule}, leave it out")
    module = make(config, place, classes)
    require_fit(module, config)
    if (dtype := parameter_dtype(config)) != torch.float32:  # all other types stay as they are
        module._apply(lambda tensor: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor)
    if config.memory_format == "channels_last":
        # an overload that torch's stubs lack
        module = module.to(memory_format=memory_format(config))  # type: ignore[call-overload]
    return module


def prepare(network: nn.Module, config: RunConfig, images: Images) -> None:
    """Pass the first images to the network's `prepare_on_images`, if any; not with --emulate."""
    whiten = getattr(network, "prepare_on_images", None)
    if whiten is None or config.emulate is not None:
        return
    most = max(1, _PREPARED_WITH // config.image_size**2)
    total, size = min(most, images.samples or most), max(1, _AT_ONCE // config.image_size**2)
    parts = (range(start, min(start + size, total)) for start in range(0, total, size))
    whiten(images.__getitems__(list(part))[0] for part in parts)


def _torchvision_model(config: RunConfig, name: str, classes: int) -> nn.Module:
    models = import_torchvision().models
    offered = models.list_models(module=models)
    if name not in offered:
        no = f"model={name!r} is no torchvision classification model; name one"
        raise UsageError(f"{no}, or package.module:factory{near(name, [*NETWORKS, *offered])}")
    extra = {}
    if name in ("googlenet", "inception_v3"):
        # their auxiliary outputs are for their own loss, and they warn without a chosen start
        extra = {"init_weights": True, "aux_logits": False}
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes, **extra)
    return model


def _factory_model(config: RunConfig, place: str, classes: int) -> nn.Module:
    with suppress(UsageError):
        import_torchvision()  # before a factory does, which knows nothing of its operators
    model = factory.make("model", place, classes, config=config)
    if not isinstance(model, nn.Module):
        mistake = f"the factory gave a {type(model).__name__}, not a torch.nn.Module"
        raise UsageError(f"model={config.model!r}: {mistake}; return the model")
    if not any(p.requires_grad for p in model.parameters()):
        raise UsageError(f"model={config.model!r} has no parameter to train; give it one")
    return model


def require_fit(network: nn.Module, config: RunConfig) -> None:
    """Raise UsageError if `network` does not fit `config`, or its work depends on the backend."""
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


def _calls(value: Any, kind: type, seen: set[int]) -> Iterator[str]:
    """Yield names from torch.distributed that `value`, a class or function, uses, directly or not.

    Of a class, __init__, forward and backward are searched. Methods are looked up in class `kind`.
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
    """Raise UsageError unless `output` is floating scores [n, classes or more] with a gradient.

    `labels` [n] must each be from 0 to classes - 1, or UsageError is raised too.
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
    """Raise UsageError if no channel of `images` [n, c, h, w] varies or a pixel is not finite."""
    problem = "" if images.isfinite().all() else "the first batch has pixels that are not finite"
    low, high = images.detach().movedim(1, 0).flatten(1).aminmax(dim=1)  # scaled channel by channel
    if not problem and not (low < high).any():
        pixels = ", ".join(f"{x:g}" for x in low.unique())
        problem = f"all pixels of the first batch are {pixels}, so nothing can be learnt"
    if problem:
        cure = "check how images are read and scaled"
        raise UsageError(f"dataset={config.dataset!r}: {problem}; {cure}")
