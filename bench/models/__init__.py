"""What is trained: a network by name, the project's or torchvision's, or the user's own factory."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from bench import factory
from bench.config import RunConfig, UsageError
from bench.models.extras.inception_bn import inception_bn, inception_bn_28
from bench.models.extras.mlp import mlp
from bench.models.extras.resnet9 import ResNet9, resnet9
from bench.models.extras.resnet23 import resnet23
from bench.train.precision import memory_format, parameter_dtype

if TYPE_CHECKING:
    from bench.data import Images

# of the systems that measured data parallelism before: each file names its source
OWN: dict[str, Callable[[int, RunConfig], torch.nn.Module]] = {
    "resnet23": lambda classes, c: resnet23(classes, c.model_width),
    "inception_bn": lambda classes, c: inception_bn(classes, c.model_width),
    "inception_bn_28": lambda classes, c: inception_bn_28(classes, c.model_width),
    "resnet9": lambda classes, c: resnet9(classes, c.model_width),
    "mlp": lambda classes, c: mlp(classes, c.model_width, c.image_size**2),
}
_PREPARED_WITH = 10_000 * 32 * 32  # pixels of the first images, at most
_AT_ONCE = 500 * 32 * 32  # pixels

_stubs: list[Any] = []  # operators live as long as the Library object that declared them


def build_model(config: RunConfig, classes: int) -> torch.nn.Module:
    """The model of `config`, its weights from the seed. Raises UsageError on an unknown name."""
    torch.manual_seed(config.seed)
    if config.model in OWN:
        module = OWN[config.model](classes, config)
    elif config.model_width != 1:
        setting, own_models = f"model_width={config.model_width:g}", ", ".join(OWN)
        rule = f"model={config.model!r} has one width"
        raise UsageError(f"{setting} is of {own_models}; {rule}, leave it out")
    elif ":" in config.model:
        module = _factory_model(config, classes)
    else:
        module = _torchvision_model(config, classes)
    module = module.to(dtype=parameter_dtype(config))
    # an overload that torch's stubs lack
    return module.to(memory_format=memory_format(config))  # type: ignore[call-overload, no-any-return]


def prepare(network: torch.nn.Module, config: RunConfig, images: Images) -> None:
    """Give a network that needs them the first training images, the same on every rank."""

    if not isinstance(network, ResNet9) or config.emulate is not None:
        return
    most = max(1, _PREPARED_WITH // config.image_size**2)
    total, size = min(most, images.samples or most), max(1, _AT_ONCE // config.image_size**2)
    parts = (range(start, min(start + size, total)) for start in range(0, total, size))
    network.prepare(images.__getitems__(list(part))[0] for part in parts)


def _torchvision_model(config: RunConfig, classes: int) -> torch.nn.Module:
    models = import_torchvision().models
    names = models.list_models(module=models)
    if config.model not in names:
        near = ", ".join(difflib.get_close_matches(config.model, [*OWN, *names], n=3)) or "resnet50"
        no = f"model={config.model!r} is no torchvision classification model (near: {near})"
        raise UsageError(f"{no}; or package.module:factory")
    extra = {}
    if config.model in ("googlenet", "inception_v3"):
        # their auxiliary outputs are for their own loss, and they warn without a chosen start
        extra = {"init_weights": True, "aux_logits": False}
    model: torch.nn.Module = models.get_model(
        config.model, weights=None, num_classes=classes, **extra
    )
    return model


def _factory_model(config: RunConfig, classes: int) -> torch.nn.Module:
    model = factory.make("model", config.model, classes)
    if not isinstance(model, torch.nn.Module):
        mistake = f"the factory gave a {type(model).__name__}, not a torch.nn.Module"
        raise UsageError(f"model={config.model!r}: {mistake}; return the model")
    if not config.loader_only and not any(p.requires_grad for p in model.parameters()):
        cure = "use --loader-only to measure the input alone"
        raise UsageError(f"model={config.model!r} has no parameter to train; {cure}")
    return model


def import_torchvision() -> ModuleType:
    """torchvision, importable also where its compiled extension does not load.

    PyPI's wheel is linked against CUDA. Beside a CPU build of torch its extension is missing, and
    the import fails because two operators were never declared. Declaring them is enough for models.
    """
    if not _stubs and not _extension_loads():
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _stubs.append(library)
    return importlib.import_module("torchvision")


def _extension_loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise UsageError("torchvision is not installed; run make setup")
    extensions = list(Path(spec.origin).parent.glob("_C*.so"))
    try:
        for path in extensions:
            torch.ops.load_library(str(path))
    except OSError:
        return False
    return bool(extensions)
