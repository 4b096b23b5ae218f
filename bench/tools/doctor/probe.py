"""What is installed, asked by importing it, in a process that a library may crash."""

from __future__ import annotations

import importlib
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from bench.backends.catalogue import CATALOGUE
from bench.config import UsageError
from bench.tools.setup.origin import origin

_DIGITS = 12  # of a SHA-256: enough to tell files apart


def torch() -> dict[str, Any]:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"torch": torch.__version__, "gpus": gpus}


def torchvision() -> dict[str, Any]:
    """Read its version, and why it does not import by itself where only we can import it."""
    facts: dict[str, Any] = {}
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        facts["torchvision_alone"] = _first_line(error)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left would be taken for the module
    from bench.vision import import_torchvision

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
    source = origin(built)
    return {"horovod": horovod.__version__, "horovod_built": built, "horovod_origin": source}


def _mpi_files() -> list[str]:
    """List MPI libraries in this process: more than one, where Horovod and mpi4py differ."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(r"/\S*/libmpi(?:ch)?\.so\S*", maps)))


def _libraries_of_nccl() -> dict[str, str]:
    """Name, by framework, the NCCL that it calls; why not, where that is not known."""
    from bench.backends import nccl

    libraries: dict[str, str] = {}
    for name, row in CATALOGUE.items():
        if "nccl" in row.transports:
            try:
                library = nccl.library(row.nccl_inside)
            except UsageError as error:
                return {"error": error.text, "cure": error.cure}
            file = f"{library.path} (SHA-256 {library.sha256[:_DIGITS]})"
            libraries[name] = f"NCCL {library.version} of {file}"
    return libraries


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


_ASKED = {ask.__name__: ask for ask in (torch, torchvision, mpi4py, horovod)}


def look(names: list[str]) -> dict[str, Any]:
    """Read facts of the libraries named, or of all; why not, of each that does not import."""
    facts: dict[str, Any] = {"errors": {}, "gpus": 0}
    for name in names or _ASKED:
        try:
            facts |= _ASKED[name]()
        except Exception as error:
            facts["errors"][name] = _first_line(error)
    if facts["gpus"]:
        facts["nccl"] = _libraries_of_nccl()
    return {**facts, "mpi_files": _mpi_files()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what they would warn of is library and said by the doctor
    print(json.dumps(look(sys.argv[1:])))
