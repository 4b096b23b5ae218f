"""Measure one configuration: one training loop, interchangeable backends, one run log."""

import tomllib
from importlib import metadata
from pathlib import Path


def version() -> str:
    """Read the project's version from pyproject.toml in a checkout, else of the installed copy."""
    try:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
    except OSError:
        return metadata.version("horovod-vs-ddp")
