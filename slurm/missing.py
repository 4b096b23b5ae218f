"""What to say where a package that the command line needs is not installed; needs none itself."""

from __future__ import annotations

import sys
from typing import NoReturn

_OWN = ("bench", "slurm", "plots")  # one of these missing is a fault of ours, not of the environment


def leave(error: ModuleNotFoundError) -> NoReturn:
    """Exit with 2 and one line that names the package and the ways to get it; raises `error` again where it names none."""
    package = (error.name or "").partition(".")[0]
    if not package or package in _OWN:
        raise error
    print(
        f"error: {package} is not installed for {sys.executable}; run `make setup` and start .venv/bin/python, or install what "
        "pyproject.toml lists: python -m pip install .",
        file=sys.stderr,
    )
    sys.exit(2)
