"""Facts of the installed libraries, read in a process of its own, as an import may crash it."""

from __future__ import annotations

import json
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any


def torch() -> dict[str, Any]:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"torch": torch.__version__, "gpus": gpus}


def torchvision() -> dict[str, Any]:
    from bench.data.dataset import import_torchvision

    return {"torchvision": import_torchvision().__version__}


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

    note = json.loads(Path(horovod.__file__).with_name("metadata.json").read_text())
    wheel = json.loads(metadata.distribution("horovod").read_text("direct_url.json") or "{}")
    return {
        "horovod": horovod.__version__,
        "horovod_torch": note.get("pytorch", "none at all"),
        "horovod_built": [n for n in ("mpi", "gloo", "nccl") if getattr(hvd, f"{n}_built")()],
        "horovod_wheel": wheel.get("url", "an index"),
    }


def look() -> dict[str, Any]:
    """Return facts of the libraries; `errors` tells which fail to import, and why."""
    facts: dict[str, Any] = {"errors": {}, "gpus": 0}
    for reader in (torch, torchvision, mpi4py, horovod):
        try:
            facts |= reader()
        except Exception as error:
            facts["errors"][reader.__name__] = (
                str(error).strip().partition("\n")[0] or type(error).__name__
            )
    # more than one, where Horovod and mpi4py differ
    maps = Path("/proc/self/maps").read_text()
    facts["mpi_files"] = sorted(set(re.findall(r"/\S*/libmpi(?:ch)?\.so\S*", maps)))
    return facts


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what they would warn of is library and said by the doctor
    print(json.dumps(look()))
