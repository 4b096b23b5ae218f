"""Measure one configuration: one training loop, interchangeable backends, one run log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn


def version() -> str:
    """The project's version: pyproject.toml's in a checkout, else that of the installed distribution."""
    import tomllib
    from importlib import metadata

    try:
        return str(
            tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
        )
    except OSError:
        return metadata.version("horovod-vs-ddp")


def without(missing: ModuleNotFoundError) -> NoReturn:
    """End a command whose own packages are not there. Raises `missing` again where it is a module of ours."""
    name = (missing.name or "").partition(".")[0]
    if name in ("", "bench", "slurm", "plots"):
        raise missing
    print(f"error: {sys.executable} has no {name}; run make setup, then . .venv/bin/activate", file=sys.stderr)
    sys.exit(2)
