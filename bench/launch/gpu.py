"""How a GPU was set when a run began: what its owner may change, and torch does not tell."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_ASKED = (
    *("compute_mode", "persistence_mode", "mig.mode.current", "power.limit"),
    *("clocks.max.sm", "clocks.applications.graphics"),
)
_LIMIT_S = 20.0


def settings(uuid: str, env: Mapping[str, str]) -> dict[str, str]:
    """What nvidia-smi says of the GPU, in its words, and whether MPS's daemon is there.

    Empty where nvidia-smi does not know the GPU, as on ROCm.
    """
    which = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    command = ["nvidia-smi", f"--id={which}", f"--query-gpu={','.join(_ASKED)}"]
    command += ["--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.split(",")]
    if done.returncode or len(values) != len(_ASKED):
        return {}
    daemon = Path(env.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control"
    return dict(zip(_ASKED, values, strict=True)) | {"mps": "on" if daemon.exists() else "off"}
