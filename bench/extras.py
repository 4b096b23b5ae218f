"""What stands beside the core: modules in the folder `extras` of a room, and the user's by name."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path
from typing import NoReturn

_ROOT = Path(__file__).parents[1]


def names(room: str) -> tuple[str, ...]:
    """Modules in the folder `extras` of a room such as bench/models; none without the folder."""
    folder = _ROOT / room / "extras"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def users(prefix: str) -> tuple[str, ...]:
    """Modules and packages on Python's path whose names begin with `prefix`."""
    return tuple(sorted({m.name for m in pkgutil.iter_modules() if m.name.startswith(prefix)}))


def give_up(module: str, error: Exception) -> NoReturn:
    """End a command that needs a module which does not load."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    cure = "mend it, or take it off Python's path"
    print(f"error: {module} does not load ({line}); {cure}", file=sys.stderr)
    sys.exit(2)
