"""The user's own model or data set, named on the command line as package.module:factory."""

from __future__ import annotations

import importlib
from typing import Any

from bench.config import UsageError


def find(field: str, name: str) -> Any:
    """The callable that `name` means. Raises UsageError, naming `field`, if it cannot be imported."""
    module_name, _, factory_name = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{field}={name!r}: {error}; give package.module:factory, importable from here") from None
