"""Settings of a GPU that its owner may change and torch does not show."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_FIELDS = (
    *("compute_mode", "persistence_mode", "mig.mode.current", "power.limit"),
    *("clocks.max.sm", "clocks.applications.graphics"),
)
_LIMIT_S = 20.0


def settings(uuid: str, env: Mapping[str, str]) -> dict[str, str]:
    """Read nvidia-smi's fields of the GPU, in its words, and whether MPS's daemon runs.

    Empty where nvidia-smi does not know the GPU, as on ROCm.
    """
    id_option = f"--id={full_name(uuid)}"
    values = [value.strip() for value in _query(env, id_option, *_FIELDS).split(",")]
    if len(values) != len(_FIELDS):
        return {}
    return dict(zip(_FIELDS, values, strict=True)) | {"mps": "on" if _has_mps(env) else "off"}


def full_name(uuid: str) -> str:
    """Write the UUID as nvidia-smi takes it; torch leaves out the beginning."""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def of_one_process(env: Mapping[str, str]) -> bool:
    """Check whether a GPU here takes one process at a time, as far as nvidia-smi says."""
    return "Exclusive_Process" in _query(env, "", "compute_mode") and not _has_mps(env)


def _query(env: Mapping[str, str], gpu: str, *fields: str) -> str:
    """Ask nvidia-smi: a line for each GPU, or '' where it has no answer."""
    options = [gpu] if gpu else []
    command = ["nvidia-smi", *options, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, env=env, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if process.returncode else process.stdout


def _has_mps(env: Mapping[str, str]) -> bool:
    """Check whether MPS's daemon is there, which shares a GPU between processes."""
    return (Path(env.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control").exists()
