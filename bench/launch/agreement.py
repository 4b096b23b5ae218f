"""What every rank of a launch must share, and one line that names where ranks differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from bench.config import Role, RunConfig, fields_with

_CURES = {
    "code_sha256": "bring the same files to every node",
    "versions": "start every rank in the same environment of packages",
    "env": "set it on every node alike (mpirun: -x NAME), or on none",
    "malloc": "start every rank with the same C library and MALLOC_* variables",
    "user_code": "bring the same files to every node",
    "workload": "give every rank the same data set and the same model",
    "state_dict": "give every rank the same model",
    "gpu": "ask for one kind of GPU (gpu.type or access.constraint of a site)",
    "torch": "let no code of yours set it on some ranks alone",
}
_MOST_NAMED = 3  # of further fields
_OPTIONS = "start every rank with the same options"


def shared_fields(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as plain values, without folders that may differ between nodes."""
    return config.model_dump(mode="json", exclude={*fields_with(Role.FOLDER)})


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Move tables inside `facts` one level up: {'env': {'A': 1}} -> {'env.A': 1}."""
    flattened: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flattened |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flattened[name] = value
    return flattened


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the first field in which ranks' facts differ, in a line with its cure; None if equal."""
    names = dict.fromkeys(name for row in facts for name in row)
    unequal = [name for name in names if len({str(row.get(name)) for row in facts}) > 1]
    if not unequal:
        return None
    field, *further = unequal
    ranks_of: dict[str, list[int]] = {}
    for rank, row in enumerate(facts):
        ranks_of.setdefault(str(row.get(field)), []).append(rank)
    values = ", ".join(f"{value} on {_ranks(ranks)}" for value, ranks in ranks_of.items())
    unnamed = f" and {len(further) - _MOST_NAMED} others" if len(further) > _MOST_NAMED else ""
    also = f" (and in {', '.join(further[:_MOST_NAMED])}{unnamed})" if further else ""
    cure = _CURES.get(field.partition(".")[0], _OPTIONS)
    return f"ranks differ in {field}: {values}{also}; {cure}"


def _ranks(ranks: Sequence[int]) -> str:
    """Shorten a list of ranks: [0, 1, 2, 5] -> 'ranks 0-2,5'."""
    spans = []
    for _, span in groupby(enumerate(ranks), lambda at: at[1] - at[0]):  # equal in a row of ranks
        start, *tail = [rank for _, rank in span]
        spans.append(f"{start}-{tail[-1]}" if tail else str(start))
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {','.join(spans)}"
