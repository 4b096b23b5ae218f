"""How a GPU was set, from an nvidia-smi that says what the real one does; there is no GPU here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.launch.machine import gpu_settings

# answers for one GPU alone, with a value for each field that is asked for
NVIDIA_SMI = """#!/bin/sh
[ "$1" = --id=GPU-1a2b ] || { echo No devices were found; exit 6; }
fields=${2#--query-gpu=}
[ "$3" = --format=csv,noheader ] || exit 2
for field in $(echo "$fields" | tr , ' '); do
    case $field in
        compute_mode) value=Exclusive_Process ;;
        persistence_mode) value=Enabled ;;
        mig.mode.current) value=Disabled ;;
        power.limit) value="500.00 W" ;;
        clocks.max.sm) value="1980 MHz" ;;
        clocks.applications.graphics) value="1305 MHz" ;;
        *) exit 2 ;;
    esac
    printf '%s%s' "$comma" "$value"; comma=', '
done
echo
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Provide an environment with the test's nvidia-smi, looked up on this process's PATH."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}


def test_what_its_owner_may_change_is_recorded(env: dict[str, str], tmp_path: Path) -> None:
    found = gpu_settings("1a2b", env)
    assert found == {
        "compute_mode": "Exclusive_Process",
        "persistence_mode": "Enabled",
        "mig.mode.current": "Disabled",
        "power.limit": "500.00 W",
        "clocks.max.sm": "1980 MHz",
        "clocks.applications.graphics": "1305 MHz",
        "mps": "off",
    }
    (tmp_path / "control").touch()
    assert gpu_settings("GPU-1a2b", env) == found | {"mps": "on"}
    assert gpu_settings("3c4d", env) == {}, "nvidia-smi does not know it"
