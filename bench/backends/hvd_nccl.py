"""Horovod's NCCL, which must be the one that torch brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bench.config import UsageError


def nccl_versions(hvd: Any) -> dict[str, str]:
    """The NCCL that carries the gradients; raises UsageError where Horovod's is not torch's."""
    ours, torchs = hvd.nccl_built(), nccl_code(torch.cuda.nccl.version())
    if ours != torchs:
        raise UsageError(
            f"Horovod was built with NCCL {ours}, torch brings {torchs}: two libraries would "
            f"be compared; "
            "build Horovod with HOROVOD_NCCL_HOME at torch's NCCL and HOROVOD_NCCL_LINK=SHARED"
        )
    loaded = loaded_libraries("libnccl", Path("/proc/self/maps").read_text())
    if len(loaded) > 1:
        raise UsageError(
            f"this process has loaded {' and '.join(loaded)}: Horovod and torch would use "
            f"NCCLs of their own; "
            "take one of them out of LD_LIBRARY_PATH, or build Horovod with HOROVOD_NCCL_HOME "
            "at torch's"
        )
    return {
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "nccl library": loaded[0] if loaded else "inside torch",
    }


def loaded_libraries(name: str, maps: str) -> list[str]:
    """Paths of the shared libraries `name`*.so* that a process has loaded, from the text of its
    /proc/PID/maps.
    """
    paths = {
        line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6
    }
    return sorted(
        path for path in paths if Path(path).name.startswith(name) and ".so" in Path(path).name
    )


def nccl_code(version: tuple[int, int, int]) -> int:
    """NCCL's version as one number, as its header writes it from 2.9 on: (2, 27, 3) -> 22703."""
    major, minor, patch = version
    return 10000 * major + 100 * minor + patch
