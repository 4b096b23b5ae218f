"""Measurement of one configuration: one training loop, interchangeable backends, one run log."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NoReturn

_ROOT = Path(__file__).resolve().parents[1]


def version() -> str:
    """Return the version in a checkout's pyproject.toml, else the installed package's version."""
    try:
        text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
    except OSError:
        return metadata.version("horovod-vs-ddp")


def checkout() -> Path | None:
    """Return the root of this checkout, where `make setup` works; None for an installed copy."""
    return _ROOT if (_ROOT / "Makefile").exists() else None


def explain_missing(error: ImportError) -> str:
    """Explain a failed import in a line. Raises `error` if a module of this project is missing."""
    cause: BaseException = error  # pandas hides which package it lacks
    while (before := cause.__cause__ or cause.__context__) is not None:
        cause = before
    if not isinstance(cause, ModuleNotFoundError) or cause.name is None:
        return f"{error.name or 'a package'} does not import: {cause}"
    package = cause.name.partition(".")[0]
    if package in ("bench", "slurm", "plots", "tests"):
        raise error
    if package in sys.stdlib_module_names:
        return f"{package} is not part of Python on {sys.platform}; run this command on Linux"
    cure = "install it with pip, or run `make setup`"
    if root := checkout():
        cure = f"run `make setup` and start .venv/bin/python, or `pip install {root}`"
    return f"{package} is not installed for {sys.executable}; {cure}"


def give_up(error: ImportError) -> NoReturn:
    """Print why an import failed; exit with status 2. Raises `error` for a module of ours."""
    print(f"error: {explain_missing(error)}", file=sys.stderr)
    sys.exit(2)
