"""What is installed, asked by importing it: a process of its own, so that a library that crashes
takes only this one.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "doctor-probe "


def _torch() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "devices": [],
    }
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        facts["devices"] = [str(getattr(device, "uuid", device.name)) for device in devices]
        facts["torch_nccl"] = list(torch.cuda.nccl.version())
    return facts


def torchvision() -> dict[str, Any]:
    """Its version, and why it does not import by itself where only we can import it."""
    facts: dict[str, Any] = {}
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        facts["torchvision_alone"] = _first_line(error)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left would be taken for the module
    from bench.models import import_torchvision

    return {"torchvision": import_torchvision().__version__, **facts}


def _mpi4py() -> dict[str, Any]:
    import mpi4py

    mpi4py.rc.initialize = (
        False  # asking for the version must not start MPI: a wrong launcher would abort here
    )
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return {
        "mpi4py": mpi4py.__version__,
        "mpi": re.split(r"[,\n]", MPI.Get_library_version())[0].strip("\0 "),
    }


def _horovod() -> dict[str, Any]:
    import horovod
    import horovod.torch as hvd

    built = {name: bool(getattr(hvd, f"{name}_built")()) for name in ("mpi", "gloo", "nccl")}
    return {
        "horovod": horovod.__version__,
        "horovod_built": built,
        "horovod_nccl": int(hvd.nccl_built()),
    }


LIBRARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "torchvision": torchvision,
    "mpi4py": _mpi4py,
    "horovod": _horovod,
}


def _mpi_files() -> list[str]:
    """MPI libraries that this process has loaded: more than one means that Horovod and mpi4py use
    different ones.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(r"/\S*/libmpi(?:ch)?\.so\S*", maps)))


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def look() -> dict[str, Any]:
    """Versions and facts of every library; the first line of the error of each that does not
    import.
    """
    facts: dict[str, Any] = {"errors": {}}
    for name, ask in LIBRARIES.items():
        try:
            facts |= ask()
        except Exception as error:
            facts["errors"][name] = _first_line(error)
    return {**facts, "mpi_files": _mpi_files()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what they would warn of is found and said by the doctor
    started = time.monotonic()
    print(MARK + json.dumps({**look(), "seconds": time.monotonic() - started}))
    sys.exit(0)
