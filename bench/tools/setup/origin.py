"""Which Horovod an environment has: built by this set-up's recipe, or otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

# pip notes where it took a wheel from: a folder named after a key, of the cache
_OF_RECIPE = re.compile(r"/[0-9a-f]{16}/horovod-[^/]*\.whl$")


def origin(built: Mapping[str, bool]) -> str:
    """Describe where the installed Horovod is from; `built`: transport -> whether it has it."""
    source = ""
    with suppress(metadata.PackageNotFoundError, ValueError):
        noted = metadata.distribution("horovod").read_text("direct_url.json")
        source = json.loads(noted or "{}").get("url", "")
    if _OF_RECIPE.search(source):
        cmake = "" if built["nccl"] else ", for CPUs (cmake-cpu)"
        return f"built by make setup from the source release, as C++20 (cxx20){cmake}"
    return "not built by make setup"


def transports(built: Mapping[str, bool]) -> str:
    """Describe the transports, as in "with MPI and Gloo, without NCCL"."""
    names = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL"}
    having = [name for key, name in names.items() if built[key]]
    lacking = [name for key, name in names.items() if not built[key]]
    parts = (("with", having), ("without", lacking))
    return ", ".join(f"{word} {' and '.join(those)}" for word, those in parts if those)
