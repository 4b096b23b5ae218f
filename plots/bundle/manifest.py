"""The manifest of a bundled study: every file with its digest, how the runs ended, what is missing,
on what they ran.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.record import STATES, Run
from plots.analyse import comparability
from plots.bundle.check import Contents, is_attempt

SCHEMA = 1
NAME = "MANIFEST.json"
_OF_A_RANK = (
    "hostname",
    "cpu",
    "cpus_on_node",
    "memory_bytes",
    "threads",
    "source",
    "gpu",
    "gpu_memory_bytes",
    "cuda",
    "cudnn",
)


def manifest(
    name: str,
    contents: Contents,
    runs: Mapping[str, Run],
    planned: Iterable[str],
    left_out: Sequence[str],
) -> dict[str, Any]:
    """Plain values, in an order that depends on the contents alone; `runs` by the ids `planned`."""
    states = {
        run_id: runs[run_id].state if run_id in runs else "planned" for run_id in sorted(planned)
    }
    counts = Counter(states.values())
    report = json.loads(contents["summary.json"])
    told = report["study"]
    return {
        "schema": SCHEMA,
        "folder": name,
        "study": tomllib.loads(contents["study.toml"].decode()),
        "blocks": {"planned": told["blocks_planned"], "usable": told["blocks_usable"]},
        "runs": {"planned": len(states), "by_state": {state: counts[state] for state in STATES}},
        "gaps": [
            {
                "run": run_id,
                "state": state,
                "reason": runs[run_id].problem if run_id in runs else None,
            }
            for run_id, state in states.items()
            if state != "ok"
        ],
        "points_with_missing_blocks": report["gaps"],
        "superseded_attempts": sorted(path for path in contents if is_attempt(path)),
        "provenance": provenance(runs),
        "files": [
            {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for path, data in sorted(contents.items())
        ],
        "left_out": sorted(left_out),
    }


def provenance(runs: Mapping[str, Run]) -> dict[str, list[Any]]:
    """Every value that the runs recorded of versions, code and hardware: where a list holds one,
    all agree.
    """
    seen: dict[str, set[str]] = {}

    def note(name: str, value: object) -> None:
        if value is not None:
            seen.setdefault(name, set()).add(json.dumps(value, sort_keys=True))

    for run in runs.values():
        host = run.host if isinstance(run.host, dict) else {}  # a log that failed may hold anything
        note("platform", host.get("platform"))
        for part in ("versions", "git", "env"):
            for name, value in comparability.mapping(host, part).items():
                note(f"{part}.{name}", value)
        for rank in comparability.ranks(host):
            for name in _OF_A_RANK:
                note(name, rank.get(name))
    return {
        name: [json.loads(value) for value in sorted(values)]
        for name, values in sorted(seen.items())
    }
