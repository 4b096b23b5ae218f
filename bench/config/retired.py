"""Fields of a run that earlier versions had, each with the value at which its logs still count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# name -> the value that changed nothing. CHANGELOG names the version that reads the others.
RETIRED: Mapping[str, Any] = {
    "alone": False,
    "checkpoint": False,
    "compile": False,
    "compression": "none",
    "cycle_ms": None,
    "servers": None,
    "download": True,
    "fusion_mib": None,
    "momentum": 0.9,
    "rendezvous_dir": None,
    "rendezvous_timeout_s": 60.0,
    "sysfs": "/sys",
    "trace": None,
    "loader_only": False,
    "sync_batchnorm": False,
}
_NAMES_VARIANTS = 9  # the first schema that does


def without_retired(values: Mapping[str, Any], schema: int) -> dict[str, Any]:
    """Drop retired fields of a logged configuration. Raises ValueError where one was in use."""
    for name, value in values.items():
        if name in RETIRED and value != RETIRED[name]:
            raise ValueError(f"{name}={value!r} is of version 1.0.0, which reads this log")
    kept = {name: value for name, value in values.items() if name not in RETIRED}
    if schema < _NAMES_VARIANTS:  # the study tells the arm by its fields
        kept["arm"] = None
    elif variant := kept.pop("variant", None):  # which all cells had, and an arm one of them
        kept["arm"] = "-".join(filter(None, (kept.get("arm"), variant)))
    return kept
