"""Horovod's wheel for this very machine: the recipe, and a cache by what the wheel depends on."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bench.tools.setup.runner import Runner

COMPILER = Path(__file__).resolve().with_name("cxx20")
CMAKE_CPU = COMPILER.with_name("cmake-cpu")
# CMAKE_POLICY_VERSION_MINIMUM: CMake 4 refuses the minimum that Horovod's third parties state.
RECIPE = {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
RECIPE |= {f"HOROVOD_WITH_{name}": "1" for name in ("GLOO", "MPI", "PYTORCH")}
RECIPE |= {f"HOROVOD_WITHOUT_{name}": "1" for name in ("MXNET", "TENSORFLOW")}
# The build writes this environment's absolute path into the library. These are relative to it and
# looked up first, so that the cached wheel works in the next environment too; quoted for a shell.
TORCH_BESIDE = "-Wl,-rpath,'$ORIGIN/../../torch/lib'"
MPI_BESIDE = "-Wl,-rpath,'$ORIGIN/../../../..'"
# The user's settings that change what is built; Horovod's run-time settings do not.
BUILD_SETTING = re.compile(r"HOROVOD_(BUILD_|CUDA_|GPU|NCCL_)|(C|CPP|CXX|LD)FLAGS$")
# Asked of the new environment's Python, which need not be the one that runs the set-up.
PROBE = """
import platform, sysconfig, mpi4py, torch
print("torch", torch.__version__, "for CUDA", torch.version.cuda, "Python",
    sysconfig.get_config_var("SOABI"), *platform.libc_ver(), platform.machine())
"""
PIP_WHEEL = "python -m pip wheel -v --no-deps --no-cache-dir --no-build-isolation"
CPU_S, SERIAL_S = 250.0, 40.0  # of compiling, on server cores of 2026
BYTES_PER_COMPILER = 1_500_000_000
MOST_COMPILERS = 8  # a login node is shared, and there are few files to compile


def cache_folder(env: Mapping[str, str]) -> Path:
    base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base.absolute() / "horovod-vs-ddp" / "wheels"


def jobs() -> int:
    """Count the compilers that cores and memory have room for."""
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    room = int(available[1]) * 1024 // BYTES_PER_COMPILER if available else 1
    return max(1, min(len(os.sched_getaffinity(0)), room, MOST_COMPILERS))


def build_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Add the user's linker flags to the recipe; for CPUs unless a HOROVOD_GPU variable is set."""
    flags = [*([] if env.get("MPI_HOME") else [MPI_BESIDE]), TORCH_BESIDE, env.get("LDFLAGS", "")]
    for_gpu = any(name.startswith("HOROVOD_GPU") and value for name, value in env.items())
    cmake = {} if for_gpu else {"HOROVOD_CMAKE": str(CMAKE_CPU)}
    return {**RECIPE, **cmake, "CXX": str(COMPILER), "LDFLAGS": " ".join(flags).strip()}


def key(runner: Runner, version: str) -> str:
    """Make a digest of all that the wheel depends on, and of no path of this checkout."""
    env, mpi_home = runner.env, runner.env.get("MPI_HOME", "")
    mpicxx = "mpicxx -show" if mpi_home else "true"
    commands = (f"python -c {shlex.quote(PROBE)}", "mpirun --version", mpicxx)
    script = "\n".join((*commands, f"{shlex.quote(env['HOROVOD_CXX'])} --version"))
    cure = f"Check that mpirun, mpicxx and {env['HOROVOD_CXX']} start."
    answers = runner.run("versions of torch, MPI and compiler", "sh", "-ec", script, cure=cure)
    settings = {name: env[name] for name in env if env[name] and BUILD_SETTING.match(name)}
    recipe = settings | build_environment(env)
    recipe |= {"CXX": COMPILER.read_text(), "HOROVOD_CMAKE": CMAKE_CPU.read_text()}
    parts = [version, answers, mpi_home, *(f"{name}={recipe[name]}" for name in sorted(recipe))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def obtain(runner: Runner, version: str) -> Path:
    """Return the wheel, built where the cache does not have it, which never sees half a build."""
    folder = cache_folder(runner.env) / key(runner, version)
    if not any(folder.glob("*.whl")):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder.parent) as unfinished:
            wheels = Path(unfinished, "wheels")
            runner.run(
                f"horovod=={version} from source, once",
                *PIP_WHEEL.split(),
                f"--wheel-dir={wheels}",
                "--no-binary=horovod",
                f"horovod=={version}",
                estimate=f"about {(SERIAL_S + CPU_S / jobs()) / 60:.0f} min, {jobs()} compilers",
                cure="The lines below say what the compiler missed; the recipe is in wheel.py.",
                env=build_environment(runner.env) | {"MAKEFLAGS": f"-j{jobs()}"},
            )
            with suppress(OSError):  # another set-up was faster: its wheel is as good
                wheels.rename(folder)
    return next(folder.glob("*.whl"))
