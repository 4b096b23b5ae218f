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
    "backend_env": "set it on every node alike (mpirun: -x NAME), or on none",
    "malloc": "start every rank with the same C library and MALLOC_* variables",
    "user_code": "bring the same files to every node",
    "workload": "give every rank the same data set and the same model",
    "state_dict": "give every rank the same model",
    "torch": "let no code of yours set it on some ranks alone",
}
_MOST_NAMED = 3  # of further fields
_OPTIONS = "start every rank with the same options"


def shared_fields(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain values, without the folders that may differ between nodes."""
    return config.model_dump(mode="json", exclude={*fields_with(Role.FOLDER)})


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Tables inside `facts`, one level up: {'env': {'A': 1}} -> {'env.A': 1}."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """One line on the first field in which ranks' facts differ, with its cure; None if equal."""
    names = dict.fromkeys(name for one in facts for name in one)
    unequal = [name for name in names if len({str(one.get(name)) for one in facts}) > 1]
    if not unequal:
        return None
    first, *more = unequal
    ranks_of: dict[str, list[int]] = {}
    for rank, one in enumerate(facts):
        ranks_of.setdefault(str(one.get(first)), []).append(rank)
    values = ", ".join(f"{value} on {_ranks(ranks)}" for value, ranks in ranks_of.items())
    rest = f" and {len(more) - _MOST_NAMED} others" if len(more) > _MOST_NAMED else ""
    others = f" (and in {', '.join(more[:_MOST_NAMED])}{rest})" if more else ""
    cure = _CURES.get(first.partition(".")[0], _OPTIONS)
    return f"ranks differ in {first}: {values}{others}; {cure}"


def _ranks(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> 'ranks 0-2,5'."""
    spans = []
    for _, span in groupby(enumerate(ranks), lambda at: at[1] - at[0]):  # equal in a row of ranks
        first, *rest = [rank for _, rank in span]
        spans.append(f"{first}-{rest[-1]}" if rest else str(first))
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {','.join(spans)}"
