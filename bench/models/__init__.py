"""What is trained: a network of torchvision or of this room by name, or the user's own factory."""

from __future__ import annotations

import difflib
from contextlib import suppress

import torch

from bench import factory
from bench.config import RunConfig, UsageError
from bench.config.fields import NETWORKS
from bench.data.dataset import Images
from bench.models.requirements import require_fit
from bench.train.numbers import memory_format, parameter_dtype, seed_all
from bench.vision import import_torchvision

_WIDE = "a factory that takes a config"
_PREPARED_WITH = 10_000 * 32 * 32  # pixels of the first images, at most
_AT_ONCE = 500 * 32 * 32  # pixels


def build_model(config: RunConfig, classes: int) -> torch.nn.Module:
    """Build the model of `config`, its weights from the seed; an unknown name raises UsageError."""
    seed_all(config.seed)
    name = config.model
    place = f"bench.models.{name.removesuffix('_28')}:{name}" if name in NETWORKS else name
    if config.model_width != 1 and not _has_widths(place):
        setting, rule = f"model_width={config.model_width:g}", f"model={name!r} has one width"
        raise UsageError(f"{setting} is of {', '.join([*NETWORKS, _WIDE])}; {rule}, leave it out")
    make = _factory_model if ":" in place else _torchvision_model
    module = make(config, place, classes)
    require_fit(module, config)
    _convert(module, parameter_dtype(config))
    if config.memory_format == "channels_last":
        # an overload that torch's stubs lack
        module = module.to(memory_format=memory_format(config))  # type: ignore[call-overload]
    return module


def _convert(network: torch.nn.Module, dtype: torch.dtype) -> None:
    """Give parameters and buffers of float32 the type `dtype`; all others stay as they are."""
    if dtype != torch.float32:
        network._apply(lambda tensor: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor)


def prepare(network: torch.nn.Module, config: RunConfig, images: Images) -> None:
    """Give a network that needs them the first training images, the same on every rank."""

    whiten = getattr(network, "prepare_on_images", None)
    if whiten is None or config.emulate is not None:
        return
    most = max(1, _PREPARED_WITH // config.image_size**2)
    total, size = min(most, images.samples or most), max(1, _AT_ONCE // config.image_size**2)
    parts = (range(start, min(start + size, total)) for start in range(0, total, size))
    whiten(images.__getitems__(list(part))[0] for part in parts)


def _has_widths(place: str) -> bool:
    return ":" in place and factory.takes(factory.function("model", place), "config")


def _torchvision_model(config: RunConfig, name: str, classes: int) -> torch.nn.Module:
    models = import_torchvision().models
    offered = models.list_models(module=models)
    if name not in offered:
        near = ", ".join(difflib.get_close_matches(name, [*NETWORKS, *offered], n=3)) or "resnet50"
        no = f"model={name!r} is no torchvision classification model (near: {near})"
        raise UsageError(f"{no}; or package.module:factory")
    extra = {}
    if name in ("googlenet", "inception_v3"):
        # their auxiliary outputs are for their own loss, and they warn without a chosen start
        extra = {"init_weights": True, "aux_logits": False}
    model: torch.nn.Module = models.get_model(name, weights=None, num_classes=classes, **extra)
    return model


def _factory_model(config: RunConfig, place: str, classes: int) -> torch.nn.Module:
    with suppress(UsageError):
        import_torchvision()  # before a factory does, which knows nothing of its operators
    model = factory.make("model", place, classes, config=config)
    if not isinstance(model, torch.nn.Module):
        mistake = f"the factory gave a {type(model).__name__}, not a torch.nn.Module"
        raise UsageError(f"model={config.model!r}: {mistake}; return the model")
    if not any(p.requires_grad for p in model.parameters()):
        raise UsageError(f"model={config.model!r} has no parameter to train; give it one")
    return model
