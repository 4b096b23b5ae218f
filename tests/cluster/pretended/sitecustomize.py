"""On PYTHONPATH, torch believes in the GPUs that Slurm has granted: each has a name of its own on
its host, and none computes.
"""

import os
import socket
from types import SimpleNamespace

import torch

_granted = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]


def _properties(index: int) -> SimpleNamespace:
    return SimpleNamespace(name="pretended", uuid=f"{socket.gethostname()}/{_granted[index]}")


torch.cuda.is_available = lambda: bool(_granted)
torch.cuda.device_count = lambda: len(_granted)
torch.cuda.get_device_properties = _properties  # type: ignore[assignment]
torch.cuda.nccl.version = lambda: (2, 29, 3)
