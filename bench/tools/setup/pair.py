"""Do torch and torchvision belong together? A build for CPUs beside one for CUDA works in part, and
nobody says which part.
"""

from __future__ import annotations

# asked of the new environment's Python, where the two may be of different indexes
PROBE = """
import torch
from importlib import metadata
reason = ""
try:
    import torchvision
except Exception as error:
    reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
print("pair", torch.__version__, metadata.version("torchvision"), reason, sep="|")
"""
INDEXES = "https://download.pytorch.org/whl"


def mismatch(torch: str, torchvision: str, reason: str) -> tuple[str, str]:
    """What does not work and what does, and the way to a matching pair; `reason` is what `import
    torchvision` fails with.
    """
    build = torch.partition("+")[2] or "cpu"
    text = (
        f"torch {torch} and torchvision {torchvision} are no pair: `import torchvision` alone "
        f"fails ({reason}). "
        "All that bench does works, its models and data sets included, because it declares what "
        "is missing; "
        "your own scripts, and torchvision's operators such as nms and roi_align, do not"
    )
    return text, f"for a matching pair: make setup TORCH_INDEX_URL={INDEXES}/{build}"


def read(output: str) -> str | None:
    """What `PROBE` found, in one line, or None where the two are a pair."""
    for line in output.splitlines():
        if line.startswith("pair|"):
            _, torch, torchvision, reason = line.split("|", 3)
            return "; ".join(mismatch(torch, torchvision, reason)) if reason else None
    return None
