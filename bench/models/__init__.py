"""What is trained: a torchvision classification model by name, or the user's own factory."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bench import factory
from bench.config import RunConfig, UsageError
from bench.train.precision import memory_format, parameter_dtype

_stubs: list[Any] = []  # operators live as long as the Library object that declared them


def build_model(config: RunConfig, classes: int) -> torch.nn.Module:
    """The model of `config`, its weights from the seed. Raises UsageError on an unknown name."""
    torch.manual_seed(config.seed)
    module = _own(config, classes) if ":" in config.model else _torchvision_model(config, classes)
    module = module.to(dtype=parameter_dtype(config))
    # an overload that torch's stubs lack
    return module.to(memory_format=memory_format(config))  # type: ignore[call-overload, no-any-return]


def _torchvision_model(config: RunConfig, classes: int) -> torch.nn.Module:
    models = import_torchvision().models
    names = models.list_models(module=models)
    if config.model not in names:
        near = ", ".join(difflib.get_close_matches(config.model, names, n=3)) or "resnet50"
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


def _own(config: RunConfig, classes: int) -> torch.nn.Module:
    model = factory.make("model", config.model, classes)
    if not isinstance(model, torch.nn.Module):
        found = f"the factory gave a {type(model).__name__}, not a torch.nn.Module"
        raise UsageError(f"model={config.model!r}: {found}; return the model")
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
