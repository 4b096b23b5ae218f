"""Equal work: what must agree before two runs may be compared, and whether they ended with the same
parameters.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.backends.catalogue import CATALOGUE
from bench.config import MATCHED_BUCKET_MIB, Role, RunConfig, fields_with
from plots.analyse.blocks import Block, block_name

Facts = Mapping[str, str]

_CELL = fields_with(Role.CELL)
_ASKED = {*fields_with(Role.WORK), *fields_with(Role.METHOD)}  # what two compared runs have alike
PER_BLOCK = fields_with(Role.PER_BLOCK)
VARIED = fields_with(Role.WORK)  # what may differ inside one study
# one process alone exchanges nothing and is the baseline of every variant of these
EXCHANGE = fields_with(Role.EXCHANGE)
_OWN_VARIABLES = tuple(prefix for row in CATALOGUE.values() for prefix in row.env_prefixes)
_RANK_FACTS = {
    "hostname": "hostnames",
    "cpu": "cpu",
    "threads": "threads of a rank",
    "cpus_on_node": "cpus_on_node",
}
# knobs of one framework: they must agree inside a point, and cannot between two frameworks
TUNED = "tuned."
_CODE = "code_sha256"  # older logs lack it, and were measured by other code
# recorded where it changes speed; a variable that is not there is unset, which is a fact too
_ENV = "env."
# Set by intent for the runs of one backend alone: compared all the same, and every such comparison
# says so.
OWN_ENV = "backend_env."
# Follows from the number of ranks, so it may differ between a point and its one-rank baseline.
_OF_THE_BATCH = ("samples_per_rank", "samples_per_step", "bucket_mib", "exchange_bytes")
OF_THE_POINT = ("hostnames", "affinity", _ENV, *_OF_THE_BATCH, TUNED, OWN_ENV)
BIT_IDENTICAL_WORLDS = (1, 2)  # from three ranks on, the order of summation shows in the last bits


def facts(config: RunConfig, host: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, str]:
    """Fingerprint of one run as field -> text: the work asked for, and where and with what it ran.

    With matched settings the bytes of every exchange, as they turned out, are part of it: that they
    are equal is the claim. Facts that a log does not have are left out; only what both runs state
    is compared.
    """
    work = config.model_dump(mode="json", include=_ASKED)
    work |= {
        "samples_per_rank": config.samples_per_rank,
        "samples_per_step": config.samples_per_step,
    }
    if config.settings == "matched" and config.backend != "single":
        work["bucket_mib"] = config.bucket_mib or MATCHED_BUCKET_MIB
        work |= {"exchange_bytes": end.get("exchange_bytes")} if config.world_size > 1 else {}
    if config.settings == "tuned":
        work |= {TUNED + k: getattr(config, k) for k in fields_with(Role.KNOB)}
    return {k: str(v) for k, v in work.items()} | _host_facts(host)


def _host_facts(host: Mapping[str, Any]) -> dict[str, str]:
    of_ranks = ranks(host)
    found: dict[str, object] = {"platform": host.get("platform")}
    for key, name in _RANK_FACTS.items():
        if values := sorted({str(r[key]) for r in of_ranks if key in r}):
            found[name] = ", ".join(values)
    if affinity := [r["affinity"] for r in of_ranks if "affinity" in r]:
        found["affinity"] = affinity
    found |= {f"versions.{k}": v for k, v in mapping(host, "versions").items()}
    if _CODE in host:
        found[_CODE] = host[_CODE]
    else:  # not the commit: one that leaves the measuring code alone changes nothing
        found |= {f"git.{k}": v for k, v in mapping(host, "git").items() if k != "commit"}
    env = mapping(host, "env").items()
    found |= {_ENV + k: v for k, v in env if not k.startswith(_OWN_VARIABLES)}
    found |= {OWN_ENV + k: v for k, v in mapping(host, "backend_env").items()}
    if any(of_places := [mapping(r, "env") for r in of_ranks]):
        found[_ENV + "of single ranks"] = json.dumps(of_places)
    return {k: str(v) for k, v in found.items() if v is not None}


def own_env(facts: Iterable[Facts]) -> tuple[str, ...]:
    """The variables that were set for these runs' backend alone, each as 'NAME=value'."""
    return tuple(
        sorted(
            {
                f"{k.removeprefix(OWN_ENV)}={v}"
                for one in facts
                for k, v in one.items()
                if k.startswith(OWN_ENV)
            }
        )
    )


def ranks(host: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a run recorded of each rank."""
    value = host.get("ranks")
    return [r for r in value if isinstance(r, dict)] if isinstance(value, list) else []


def mapping(host: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """What a run recorded under `key`, empty where it did not."""
    value = host.get(key)
    return value if isinstance(value, dict) else {}


def differences(a: Iterable[Facts], b: Iterable[Facts], ignore: tuple[str, ...] = ()) -> list[str]:
    """Fields on which two groups of runs do not agree, each as 'field: value, other value'; empty
    if comparable.
    """
    both = (*a, *b)
    found = []
    declared = {
        _ENV + f.removeprefix(OWN_ENV) for one in both for f in one if f.startswith(OWN_ENV)
    }
    for field in dict.fromkeys(
        f for one in both for f in one if not f.startswith(ignore) and f not in declared
    ):
        unset = "unset" if field.startswith((_CODE, _ENV, OWN_ENV)) else None
        values = {value for one in both if (value := one.get(field, unset)) is not None}
        if len(values) > 1:
            found.append(f"{field}: {', '.join(sorted(values))}")
    return found


def against_most(runs: Sequence[Facts]) -> list[list[str]]:
    """Per run in what its work differs from that of most of them; seeds and folders may differ by
    block.
    """
    work = [{k: v for k, v in facts.items() if _of_the_work(k)} for facts in runs]
    usual = Counter(tuple(w.items()) for w in work).most_common(1)
    return [differences([own], [dict(items) for items, _ in usual]) for own in work]


def _of_the_work(fact: str) -> bool:
    return fact not in PER_BLOCK and (
        fact in RunConfig.model_fields or fact.startswith((TUNED, OWN_ENV))
    )


def varying(runs: pd.DataFrame) -> list[str]:
    """Facts that are not the same in all runs of a study though no point asks for it: worth a note,
    not an exclusion.
    """
    return differences(runs["facts"], (), (*OF_THE_POINT, "seed", *VARIED))


def variants(cells: Iterable[str], facts: Iterable[Facts]) -> list[tuple[str, ...]]:
    """Per run the fields in which a folder's runs differ, as 'field=value'; what concerns the
    exchange not for `single`.
    """
    varied = list(map(_varied, cells, facts))
    same = _same(varied)
    return [tuple(f"{k}={v}" for k, v in run.items() if k not in same) for run in varied]


def shared(cells: Iterable[str], facts: Iterable[Facts]) -> Facts:
    """The varied fields that have one value in all runs they mean anything in."""
    return _same(map(_varied, cells, facts))


def _same(varied: Iterable[Facts]) -> Facts:
    values: dict[str, set[str]] = defaultdict(set)
    for run in varied:
        for k, v in run.items():
            values[k].add(v)
    return {k: next(iter(v)) for k, v in values.items() if len(v) == 1}


def _varied(cell: str, facts: Facts) -> dict[str, str]:
    alone = cell == "single"
    return {k: facts[k] for k in VARIED if k in facts and not (alone and k in EXCHANGE)}


def without_exchange(variant: tuple[str, ...]) -> tuple[str, ...]:
    """The variant of one process alone that stands beside a distributed one."""
    return tuple(word for word in variant if word.partition("=")[0] not in EXCHANGE)


def _training(found: Facts) -> tuple[tuple[str, str], ...]:
    """The part of the facts that decides the numbers of a training."""
    names = RunConfig.model_fields.keys() - {*_CELL} | {"samples_per_rank", "samples_per_step"}
    return tuple(sorted((k, v) for k, v in found.items() if k in names))


@dataclass(frozen=True)
class DigestCheck:
    """Final parameters across the cells of each block at one world size: `mismatches` names groups
    that differ.
    """

    world_size: int
    groups: int
    runs: int
    mismatches: tuple[str, ...]


def _bits_must_agree(found: Facts) -> bool:
    """Not where a compiler orders the sums, gradients are rounded on the way, or the device adds in
    any order.
    """
    return (
        found.get("compile") == "False"
        and found.get("compression") == "none"
        and found.get("device") == "cpu"
    )


def compare_digests(runs: pd.DataFrame) -> list[DigestCheck]:
    """Groups of equal block, seed and work, of two cells or more, must end bit-identical at 1 and 2
    ranks.
    """
    checks = []
    for world_size in BIT_IDENTICAL_WORLDS:
        groups: dict[tuple[Block, object], dict[str, str]] = defaultdict(dict)
        rows: Any = runs[runs["world_size"] == world_size].itertuples()
        for row in rows:
            if row.parameters_sha256 and _bits_must_agree(row.facts):
                group = groups[Block(row.block, row.allocation), _training(row.facts)]
                group[f"{row.cell} ({row.log})"] = row.parameters_sha256
        several = {k: g for k, g in groups.items() if len({name.split()[0] for name in g}) > 1}
        wrong = tuple(
            f"{block_name(k[0])}: {', '.join(sorted(g))}"
            for k, g in several.items()
            if len(set(g.values())) > 1
        )
        checks.append(DigestCheck(world_size, len(several), sum(map(len, several.values())), wrong))
    return checks
