"""Equal work: what must agree before two runs may be compared, and where they may meet."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from bench.backends.catalogue import BUNDLED, CATALOGUE
from bench.config import Role, RunConfig, fields_with

Facts = Mapping[str, str]

PER_BLOCK = fields_with(Role.PER_BLOCK)
VARIED = fields_with(Role.WORK)  # what may differ inside one study
EXCHANGE = fields_with(Role.EXCHANGE)  # one process alone is the baseline of every variant of these
_OF_THE_WORK = {*VARIED, *fields_with(Role.METHOD)}  # what two compared runs have alike
_SAMPLES = ("samples_per_rank", "samples_per_step")
_OF_THE_TRAINING = RunConfig.model_fields.keys() - {*fields_with(Role.CELL)} | {*_SAMPLES}
_OF_THE_TRAINING -= {"inject_ms"}  # a sleep takes time and changes no number
_ASKED = RunConfig.model_fields.keys() - {*PER_BLOCK}
_OF_A_RANK = ("hostname", "cpu", "threads", "cpus_on_node")
_RENAMED = {"hostname": "hostnames", "threads": "threads of a rank"}
_OWN_VARIABLES = tuple(prefix for row in CATALOGUE.values() for prefix in row.env_prefixes)
EMULATE = "emulate"
TUNED = "tuned."  # knobs of one framework: they agree inside a point, and cannot between two
_CODE = "code_sha256"  # older logs lack it, and were measured by other code
_MALLOC = "malloc"  # as the C library held memory; older logs left it alone
_ENV = "env."  # recorded where it changes speed; what is not there is unset, a fact too
# set by intent for the runs of one backend: compared all the same, and every comparison says so
OWN_ENV = "backend_env."
OF_THE_ARM = "arm."  # fields that the study sets for one arm alone: by intent as well
# follows from the number of ranks, so it may differ between a point and its one-rank baseline
_COUNTED = (*_SAMPLES, "bucket_mib", "exchange_bytes")
# on more nodes NCCL has more ways to take; two cells of one point must have taken the same
_WIRE = "versions.nccl transport"
OF_THE_POINT = ("hostnames", "affinity", _ENV, _WIRE, *_COUNTED, TUNED, OWN_ENV)
# a compiler orders the sums, compression rounds, and other devices add in any order
_BITS_AGREE = {"compile": "False", "compression": "none", "device": "cpu"}
BIT_IDENTICAL_WORLDS = (1, 2)  # from three ranks on, the order of summation shows in the last bits

_DIGITS = 12  # of a timeline's digest: enough to tell files apart
NO_BLOCK = -1  # runs started by hand name no block and together make one


class Block(NamedTuple):
    """One randomised pass inside one allocation: what two points share where they are compared."""

    number: int
    allocation: str = ""  # a job, or a session; '' of logs that name none: hosts are facts too

    @property
    def name(self) -> str:
        name = "no block recorded" if self.number == NO_BLOCK else f"block {self.number}"
        return f"{name} ({self.allocation})" if self.allocation else name


def facts(
    config: RunConfig,
    host: Mapping[str, Any],
    end: Mapping[str, Any],
    workload: Mapping[str, Any] = MappingProxyType({}),
    of_the_arm: Collection[str] = (),
) -> dict[str, str]:
    """Fingerprint of one run as field -> text: the work asked for, and where and with what it ran.

    With matched settings, and without overlap, the bytes of every exchange are part of it: that
    they are equal is the claim. Facts that a log does not have are left out; only what both runs
    state is compared. `of_the_arm` are the fields that the study sets for the run's arm alone.
    """
    work = config.model_dump(mode="json", include=_OF_THE_WORK)
    work |= {name: getattr(config, name) for name in _SAMPLES}
    if config.emulate is not None:  # by what the file says, wherever it lies
        work[EMULATE] = f"{config.emulate.name} {workload['timeline_sha256'][:_DIGITS]}"
    fixed = config.settings == "matched" or config.overlap == "off"
    if fixed and config.backend != "single":
        work["bucket_mib"] = config.bucket_cap_mib
        work |= {"exchange_bytes": end.get("exchange_bytes")} if config.world_size > 1 else {}
    if config.settings == "tuned":
        work |= {TUNED + k: getattr(config, k) for k in fields_with(Role.KNOB)}
    own = {OF_THE_ARM + k: getattr(config, k) for k in of_the_arm}
    work = {k: v for k, v in work.items() if k not in of_the_arm} | own
    return {k: str(v) for k, v in work.items()} | _host_facts(host)


def _host_facts(host: Mapping[str, Any]) -> dict[str, str]:
    ranks = host.get("ranks", ())
    found: dict[str, object] = {"platform": host.get("platform")}
    for name in _OF_A_RANK:
        if values := sorted({str(rank[name]) for rank in ranks if name in rank}):
            found[_RENAMED.get(name, name)] = ", ".join(values)
    if affinity := [rank["affinity"] for rank in ranks if "affinity" in rank]:
        found["affinity"] = affinity
    versions = host.get("versions", {}).items()
    found |= {f"versions.{k}": v for k, v in versions if k not in BUNDLED}
    if _CODE in host:
        found[_CODE] = host[_CODE]
    else:  # not the commit: one that leaves the measuring code alone changes nothing
        found |= {f"git.{k}": v for k, v in host.get("git", {}).items() if k != "commit"}
    found[_MALLOC] = host.get(_MALLOC)
    env = host.get("env", {}).items()
    found |= {_ENV + k: v for k, v in env if not k.startswith(_OWN_VARIABLES)}
    found |= {OWN_ENV + k: v for k, v in host.get("backend_env", {}).items()}
    if any(of_places := [rank.get("env", {}) for rank in ranks]):
        found[_ENV + "of single ranks"] = json.dumps(of_places)
    return {k: str(v) for k, v in found.items() if v is not None}


def own_env(facts: Iterable[Facts]) -> tuple[str, ...]:
    """The variables that were set for these runs' backend alone, each as 'NAME=value'."""
    return _by_intent(facts, OWN_ENV)


def own_fields(facts: Iterable[Facts]) -> tuple[str, ...]:
    """The fields that were set for these runs' arm alone, each as 'name=value'."""
    return _by_intent(facts, OF_THE_ARM)


def _by_intent(facts: Iterable[Facts], kind: str) -> tuple[str, ...]:
    own = {item for one in facts for item in one.items() if item[0].startswith(kind)}
    return tuple(sorted(f"{name.removeprefix(kind)}={value}" for name, value in own))


def differences(a: Iterable[Facts], b: Iterable[Facts], ignore: tuple[str, ...] = ()) -> list[str]:
    """Fields on which two groups of runs do not agree, each as 'field: value, other value'."""
    both = (*a, *b)
    fields = dict.fromkeys(field for one in both for field in one)
    declared = {_ENV + f.removeprefix(OWN_ENV) for f in fields if f.startswith(OWN_ENV)}
    found = []
    for field in fields:
        if field.startswith(ignore) or field in declared:
            continue
        may_be_unset = (_CODE, _MALLOC, _ENV, OWN_ENV, OF_THE_ARM)
        unset = "unset" if field.startswith(may_be_unset) else None
        values = {value for one in both if (value := one.get(field, unset)) is not None}
        if len(values) > 1:
            found.append(f"{field}: {', '.join(sorted(values))}")
    return found


def against_most(runs: Iterable[Facts]) -> list[str]:
    """Per run in what its work differs from most, or ''; seeds and folders may differ by block."""
    work = list(map(work_of, runs))
    ((most, _),) = Counter(tuple(one.items()) for one in work).most_common(1)
    usual = dict(most)
    return ["" if own == usual else "; ".join(differences([own], [usual])) for own in work]


def work_of(facts: Facts) -> Facts:
    """What the run was asked to do, apart from what may differ by block."""
    besides = (TUNED, OWN_ENV, OF_THE_ARM)
    return {k: v for k, v in facts.items() if k in _ASKED or k.startswith(besides)}


def variants(cells: Sequence[str], facts: Sequence[Facts]) -> list[tuple[str, ...]]:
    """Per run the fields in which a folder's runs differ, as 'field=value'."""
    same = shared(cells, facts)
    varied = map(_varied, cells, facts)
    return [tuple(f"{k}={v}" for k, v in run.items() if k not in same) for run in varied]


def shared(cells: Sequence[str], facts: Sequence[Facts]) -> Facts:
    """The varied fields that have one value in all runs they mean anything in."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in map(_varied, cells, facts):
        for k, v in run.items():
            values[k].add(v)
    return {k: next(iter(v)) for k, v in values.items() if len(v) == 1}


def _varied(cell: str, facts: Facts) -> dict[str, str]:
    alone = cell == "single"
    return {k: facts[k] for k in VARIED if k in facts and not (alone and k in EXCHANGE)}


def without_exchange(variant: tuple[str, ...]) -> tuple[str, ...]:
    """The variant of one process alone that stands beside a distributed one."""
    return tuple(word for word in variant if word.partition("=")[0] not in EXCHANGE)


def changes_exchange(variant: tuple[str, ...]) -> bool:
    """Whether a variant exchanges otherwise than a plain run, or not at all."""
    told = (word.partition("=") for word in variant)
    return any(name in EXCHANGE and value != usual(name) for name, _, value in told)


def is_emulated(facts: Facts) -> bool:
    """Whether the compute of a run slept."""
    return facts.get(EMULATE, usual(EMULATE)) != usual(EMULATE)


def usual(field: str) -> str:
    """A field's default as facts write it."""
    return str(RunConfig.model_fields[field].default)


@dataclass(frozen=True)
class DigestCheck:
    """Final parameters across the cells of each block at one world size."""

    world_size: int
    groups: int
    runs: int
    mismatches: tuple[str, ...]  # the groups that differ


def compare_digests(runs: pd.DataFrame) -> Iterator[DigestCheck]:
    """Runs of equal block, seed and work, of two cells or more, must end bit-identical."""
    agree = runs["facts"].map(lambda one: _BITS_AGREE.items() <= one.items())
    told = runs[agree & (runs["parameters_sha256"] != "")]
    for world_size in BIT_IDENTICAL_WORLDS:
        there = told[told["world_size"] == world_size]
        keys = ["block", "allocation", there["facts"].map(_training)]
        grouped: Any = there.groupby(keys, sort=False)
        groups = [(Block(*key[:2]), rows) for key, rows in grouped if rows["cell"].nunique() > 1]
        wrong = tuple(
            f"{block.name}: {', '.join(sorted(rows['cell'] + ' (' + rows['log'] + ')'))}"
            for block, rows in groups
            if rows["parameters_sha256"].nunique() > 1
        )
        yield DigestCheck(world_size, len(groups), sum(len(rows) for _, rows in groups), wrong)


def _training(found: Facts) -> tuple[tuple[str, str], ...]:
    """The part of the facts that decides the numbers of a training."""
    named = ((k.removeprefix(OF_THE_ARM), v) for k, v in found.items())
    return tuple(sorted((k, v) for k, v in named if k in _OF_THE_TRAINING))
