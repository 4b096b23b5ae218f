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
    "fusion_mib": None,
    "momentum": 0.9,
    "sysfs": "/sys",
    "trace": None,
    "loader_only": False,
    "sync_batchnorm": False,
}
_OF_NO_MEASUREMENT = ("download", "rendezvous_dir", "rendezvous_timeout_s")  # at any value
_NAMES_VARIANTS, _NAMES_LAUNCHES = 9, 18  # the first schemas that do


def without_retired(values: Mapping[str, Any], schema: int) -> dict[str, Any]:
    """Drop retired fields of a logged configuration. Raises ValueError where one was in use."""
    for name, value in values.items():
        if name in RETIRED and value != RETIRED[name]:
            raise ValueError(f"{name}={value!r} is of version 1.0.0, which reads this log")
    kept = {k: v for k, v in values.items() if k not in RETIRED and k not in _OF_NO_MEASUREMENT}
    if schema < _NAMES_LAUNCHES:
        kept["launch"] = kept.pop("block", None)
    if schema < _NAMES_VARIANTS:  # the study tells the arm by its fields
        kept["arm"] = None
    elif variant := kept.pop("variant", None):  # which all cells had, and an arm one of them
        if not isinstance(variant, str) or not isinstance(kept.get("arm"), str | None):
            raise ValueError(f"variant={variant!r} is no name")
        kept["arm"] = "-".join(filter(None, (kept.get("arm"), variant)))
    return kept
