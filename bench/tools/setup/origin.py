"""Which Horovod an environment has: built by this set-up's recipe, by conda-forge, or otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

CONDA = "conda-forge's"  # how the origin of its builds begins
# pip notes where it took a wheel from: a folder named after a key, of the cache or a wheelhouse
_OF_RECIPE = re.compile(r"/[0-9a-f]{16}/horovod-[^/]*\.whl$")


def origin(prefix: Path, built: Mapping[str, bool]) -> str:
    """Where the installed Horovod is from, in words; `built`: transport -> whether it has it."""
    source = ""
    with suppress(metadata.PackageNotFoundError, ValueError):
        noted = metadata.distribution("horovod").read_text("direct_url.json")
        source = json.loads(noted or "{}").get("url", "")
    if _OF_RECIPE.search(source):
        cmake = "" if built["nccl"] else ", for CPUs (cmake-cpu)"
        return f"built by make setup from the source release, as C++20 (cxx20){cmake}"
    return conda_build(prefix) or "built neither by make setup nor by conda-forge"


def conda_build(prefix: Path) -> str:
    """conda's record of its Horovod in the environment at `prefix`, in words; empty without one."""
    for path in (prefix / "conda-meta").glob("horovod-*.json"):
        with suppress(OSError, ValueError, KeyError):
            record = json.loads(path.read_text())
            return f"{CONDA} build {record['build_number']} ({record['build']})"
    return ""


def transports(built: Mapping[str, bool]) -> str:
    """As in "with MPI and Gloo, without NCCL"."""
    names = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL"}
    having = [name for key, name in names.items() if built[key]]
    lacking = [name for key, name in names.items() if not built[key]]
    parts = (("with", having), ("without", lacking))
    return ", ".join(f"{word} {' and '.join(those)}" for word, those in parts if those)
