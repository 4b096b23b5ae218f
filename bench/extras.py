"""Modules in the folder `extras` of a room."""

from __future__ import annotations

import pkgutil
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def names(room: str) -> tuple[str, ...]:
    """Modules in the folder `extras` of a room such as bench/models; none without the folder."""
    folder = _ROOT / room / "extras"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))
