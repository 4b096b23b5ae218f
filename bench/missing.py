"""What to say where a package that a command needs is not installed; loads none itself."""

from __future__ import annotations

import sys
from typing import NoReturn

_OURS = ("bench", "slurm", "plots", "tests")


def explain_missing(error: ImportError) -> str:
    """One line with the package and the way out. Raises `error` if a module of ours is missing."""
    first: BaseException = error  # pandas hides which package it lacks
    while (before := first.__cause__ or first.__context__) is not None:
        first = before
    if not isinstance(first, ModuleNotFoundError) or first.name is None:
        return f"{error.name or 'a package'} does not import: {first}"
    package = first.name.partition(".")[0]
    if package in _OURS:
        raise error
    if package in sys.stdlib_module_names:
        return f"{package} is not part of Python on {sys.platform}; run this command on Linux"
    cure = "run `make setup` and start .venv/bin/python, or `pip install .`"
    return f"{package} is not installed for {sys.executable}; {cure}"


def give_up(error: ImportError) -> NoReturn:
    """End a command whose own packages are not there."""
    print(f"error: {explain_missing(error)}", file=sys.stderr)
    sys.exit(2)
