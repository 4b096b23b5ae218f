"""Start real ranks for tests: this environment's launchers, with a time limit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench import rank_pool

ROOT = Path(__file__).parents[2]
_BIN = Path(sys.executable).parent
# a launch of this test process must not leak into the launches that it makes
_LAUNCH_PREFIXES = (
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "MV2_", "SLURM_", "HOROVOD_"),
    *("RANK", "WORLD_SIZE", "LOCAL_", "TORCHELASTIC"),
)
_UNBOUND = ("--bind-to", "none", "--oversubscribe", sys.executable)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Make a clean environment in which the virtual environment's launchers work, also for root."""
    # not items(): pytest changes a variable of its own while a test's thread reads them all
    there = {k: os.environ.get(k) for k in os.environ if not k.startswith(_LAUNCH_PREFIXES)}
    clean = {k: v for k, v in there.items() if v is not None}
    clean["PATH"] = f"{_BIN}{os.pathsep}{clean.get('PATH', '')}"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # a second of every start of MPI goes into a look for fabrics, of which tests have none
    return {**clean, **root, "OMPI_MCA_btl": "^ofi", **(extra or {})}


def mpirun(ranks: int, *words: str) -> list[str]:
    """Make the command for `python words...` on `ranks` local ranks, more than cores if need be."""
    return ["mpirun", "-n", str(ranks), *_UNBOUND, *words]


def torchrun(ranks: int, *words: str) -> list[str]:
    """Make the command under torchrun; standalone, because its usual fixed port may be taken."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*start, "--nproc-per-node", str(ranks), *words]


def horovodrun(ranks: int, *words: str) -> list[str]:
    """Make the command under horovodrun with Gloo; its words for mpirun are not Open MPI 5's."""
    return ["horovodrun", "--gloo", "-np", str(ranks), sys.executable, *words]


def mpich(ranks: int, *words: str) -> list[str]:
    """Make the command under MPICH's mpirun, which does not start the environment's Open MPI."""
    return [_optional("mpirun.mpich", "mpich"), "-n", str(ranks), sys.executable, *words]


def _optional(command: str, package: str) -> str:
    """Name a launcher of the system's; skip the test without it, which CI counts as a failure."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed here (Debian package {package})")
    return command


def run(
    command: Sequence[str], extra: Mapping[str, str] | None = None, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run to the end; a hang fails the test with what was printed so far."""
    streams: dict[str, Any] = {"capture_output": True, "stdin": subprocess.DEVNULL, "text": True}
    done = subprocess.run(
        command, cwd=ROOT, env=environment(extra), timeout=timeout_s, check=False, **streams
    )
    return _alone(done)


def _alone(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Drop the warning of other work on the machine: tests run beside one another."""
    done.stderr = re.sub(r"(?m)^warning: other processes take .*\n", "", done.stderr)
    return done


def together(
    ranks: int, *words: str, extra: Mapping[str, str] | None = None, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run `python -m words...` under mpirun, or alone, in ranks that are launched once for many."""
    return each([rank_pool.Case(words, environment(extra), str(ROOT))] * ranks, timeout_s)


def each(
    cases: Sequence[rank_pool.Case], timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a case of its own on each rank, in ranks that are launched once for many."""
    ranks = len(cases)
    launch = [sys.executable] if ranks == 1 else mpirun(ranks)
    return _alone(rank_pool.pool(launch, ranks, environment()).run(cases, timeout_s))


def bench(
    ranks: int, *argv: str, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m bench argv...` in such ranks, alone or under mpirun."""
    return together(ranks, "bench", *argv, extra=extra)
