"""What every rank of a launch must share, and one line that names where ranks differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.config import Role, RunConfig, fields_with

_CURES = {
    "code_sha256": "bring the same files to every node",
    "versions": "start every rank in the same environment of packages",
    "env": "set it on every node alike (mpirun: -x NAME), or on none",
    "backend_env": "set it on every node alike (mpirun: -x NAME), or on none",
    "workload": "give every rank the same data set and the same model",
}
_OPTIONS = "start every rank with the same options"


def shared_fields(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain values, without the folders that may differ between nodes."""
    return config.model_dump(mode="json", exclude={*fields_with(Role.FOLDER)})


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Tables inside `facts`, one level up: {'env': {'A': 1}} -> {'env.A': 1}."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        found |= (
            {f"{name}.{key}": inner for key, inner in value.items()}
            if isinstance(value, Mapping)
            else {name: value}
        )
    return found


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """One line on the first field in which ranks differ: values, ranks, cure; None if equal.

    `facts` are by rank; a field that a rank lacks is None there.
    """
    unequal = [
        name
        for name in dict.fromkeys(n for one in facts for n in one)
        if len({str(one.get(name)) for one in facts}) > 1
    ]
    if not unequal:
        return None
    ranks_of: dict[str, list[int]] = {}
    for rank, one in enumerate(facts):
        ranks_of.setdefault(str(one.get(unequal[0])), []).append(rank)
    values = ", ".join(f"{value} on {_ranks(ranks)}" for value, ranks in ranks_of.items())
    others = f" (and in {', '.join(unequal[1:])})" if unequal[1:] else ""
    return (
        f"ranks differ in {unequal[0]}: {values}{others}; "
        f"{_CURES.get(unequal[0].partition('.')[0], _OPTIONS)}"
    )


def _ranks(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> 'ranks 0-2,5'."""
    first = [ranks[0], *(after for before, after in pairwise(ranks) if after > before + 1)]
    last = [*(before for before, after in pairwise(ranks) if after > before + 1), ranks[-1]]
    spans = ",".join(f"{a}-{b}" if a < b else str(a) for a, b in zip(first, last, strict=True))
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {spans}"
