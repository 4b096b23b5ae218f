"""What is installed, asked by importing it, in a process that a library may crash."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.backends import nccl
from bench.backends.catalogue import CATALOGUE
from bench.config import UsageError
from bench.launch import gpu
from bench.tools.doctor import process
from bench.tools.setup.origin import origin


def torch() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {"torch": torch.__version__, "torch_threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        facts["devices"] = [str(getattr(device, "uuid", device.name)) for device in devices]
        facts["buses"] = [gpu.bus_address(device) for device in devices]
    return facts


def torchvision() -> dict[str, Any]:
    """Its version, and why it does not import by itself where only we can import it."""
    facts: dict[str, Any] = {}
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        facts["torchvision_alone"] = process.first_line(error)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left would be taken for the module
    from bench.models import import_torchvision

    return {"torchvision": import_torchvision().__version__, **facts}


def mpi4py() -> dict[str, Any]:
    import mpi4py

    # asking for the version must not start MPI: a wrong launcher would abort here
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    version = re.split(r"[,\n]", MPI.Get_library_version())[0].strip("\0 ")
    return {"mpi4py": mpi4py.__version__, "mpi": version}


def horovod() -> dict[str, Any]:
    import horovod
    import horovod.torch as hvd

    built = {name: bool(getattr(hvd, f"{name}_built")()) for name in ("mpi", "gloo", "nccl")}
    source = origin(Path(sys.prefix), built)
    return {"horovod": horovod.__version__, "horovod_built": built, "horovod_origin": source}


def _mpi_files() -> list[str]:
    """MPI libraries in this process: more than one, where Horovod and mpi4py use different ones."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(r"/\S*/libmpi(?:ch)?\.so\S*", maps)))


def _libraries_of_nccl() -> dict[str, Any]:
    """By framework, the NCCL that it calls; why not, where that is not known."""
    over_nccl = {name: row for name, row in CATALOGUE.items() if "nccl" in row.transports}
    try:
        return {name: asdict(nccl.library(row.nccl_inside)) for name, row in over_nccl.items()}
    except UsageError as error:
        return {"error": error.text, "cure": error.cure}


def look() -> dict[str, Any]:
    """Versions and facts of every library; why not, of each that does not import."""
    facts: dict[str, Any] = {"errors": {}, "devices": []}
    for ask in (torch, torchvision, mpi4py, horovod):
        try:
            facts |= ask()
        except Exception as error:
            facts["errors"][ask.__name__] = process.first_line(error)
    if facts["devices"]:
        facts["nccl"] = _libraries_of_nccl()
    return {**facts, "mpi_files": _mpi_files()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what they would warn of is found and said by the doctor
    process.answer(look())
