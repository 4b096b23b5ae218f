"""torchvision, also where its compiled extension does not load."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bench.config import UsageError

_stubs: list[Any] = []  # operators live as long as the Library object that declared them


def import_torchvision() -> ModuleType:
    """Import torchvision; raises UsageError where it is not installed.

    PyPI's wheel is linked against CUDA. Beside a CPU build of torch its extension is missing, and
    the import fails because two operators were never declared. Declaring them is enough here.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise UsageError("torchvision is not installed; run make setup")
    if not _stubs:
        try:
            for path in (extensions := [*Path(spec.origin).parent.glob("_C*.so")]):
                torch.ops.load_library(str(path))
        except OSError:
            extensions = []
        if not extensions:
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                words = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                library.define(f"{operator}{words}")
            _stubs.append(library)
    return importlib.import_module("torchvision")
