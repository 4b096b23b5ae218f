"""Equal work: the facts of two runs that must agree before the runs may be compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from bench.backends.catalogue import BUNDLED, CATALOGUE, USERS
from bench.config import Role, RunConfig, fields_with

Facts = Mapping[str, str]  # of a run, by name
PER_LAUNCH = fields_with(Role.PER_LAUNCH)
VARIED = fields_with(Role.WORK)  # what may differ inside one study
EXCHANGE = fields_with(Role.EXCHANGE)  # one process alone is the baseline of every arm of these
_OF_THE_WORK = {*VARIED, *fields_with(Role.METHOD)}  # what two compared runs have alike
_SAMPLES = {"batch_per_rank": "samples_per_rank", "global_batch": "samples_per_step"}
_OF_THE_TRAINING = RunConfig.model_fields.keys() - {*fields_with(Role.CELL)}
# a sleep takes time, settings cut the exchange into other parts: neither changes a number
_OF_THE_TRAINING -= {"inject_ms", "settings"}
_ASKED = RunConfig.model_fields.keys() - {*PER_LAUNCH}
_OF_A_RANK = ("hostname", "cpu", "threads", "cpus_on_node")
_RENAMED = {"hostname": "hostnames", "threads": "threads of a rank"}
_OWN_VARIABLES = tuple(prefix for row in CATALOGUE.values() for prefix in row.env_prefixes)
EMULATE = "emulate"
TAKEN, NO_TURNS = "taken", "none"  # of `turns`: worlds at once, or launched one by one
TUNED = "tuned."  # knobs of one framework: they agree inside a point, and cannot between two
_CODE = "code_sha256"
_MALLOC = "malloc"  # as the C library held memory
_ENV = "env."  # recorded where it changes speed; what is not there is unset, a fact too
_USER_CODE = "user_code."  # by module: the user's own model or data set, and what it imports
OWN_CODE = "backend_code."  # by file, of a user's backend: alike in all runs of its cells
# those that a process alone obeys too; what carries gradients means nothing to it
_COMPUTES = tuple(
    _ENV + prefix
    for prefix in (
        *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_", "PYTHON"),
        *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TCMALLOC_", "HUGETLB_"),
    )
)
OF_A_SIDE = (TUNED, OWN_CODE)  # may differ between the sides of a comparison
BUCKETS = ("bucket_cap_mib", "exchange_bytes")  # follow from other fields of an arm
# follows from the number of ranks, so it may differ between a point and its one-rank baseline
COUNTED = (*_SAMPLES, *BUCKETS)
# on more nodes there are more ways to take; two cells of one point must have taken the same
_WIRES = ("wire", "versions.nccl transport")
OF_THE_POINT = ("hostnames", "affinity", "turns", *_WIRES, _ENV, *COUNTED, TUNED)
PER_JOB = ("hostnames", "affinity")  # a scheduler gives each job nodes and cores of its choice
BIT_IDENTICAL_WORLDS = (1, 2)  # from three ranks on, the order of summation shows in the last bits

# Gradients travel over TCP where it moved this share of their bytes, all ranks and steps together.
# A ring sends and receives each twice; where many ranks share a node, few of them leave it. What a
# framework tells its ranks besides is far less: 0.1 % of the bytes of a perceptron were seen.
_CARRIES = 0.01
_SHARE = 0.01  # of what TCP moved: less of it is not the gradients'
_DIGITS = 12  # of a file's digest: enough to tell files apart
NO_LAUNCH = -1  # runs started by hand name no launch and together make one


class LaunchId(NamedTuple):
    """Key by which runs are paired: a launch (one pass over all points), and its job or session."""

    number: int
    allocation: str = ""  # a job, or a session; '' of logs that name none: hosts are facts too

    @property
    def name(self) -> str:
        name = "no launch recorded" if self.number == NO_LAUNCH else f"launch {self.number}"
        return f"{name} ({self.allocation})" if self.allocation else name


def facts(
    config: RunConfig,
    host: Mapping[str, Any],
    end: Mapping[str, Any],
    workload: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, str]:
    """Return one run's facts, name -> text: the work asked for, and where and with what it ran.

    With settings='matched' or overlap='off', the sizes of the exchanges are facts too. Facts of the
    host and network that a log lacks are left out; `differences` says how a missing fact counts.
    """
    work = config.model_dump(mode="json", include=_OF_THE_WORK)
    work |= {name: getattr(config, derived) for name, derived in _SAMPLES.items()}
    if config.backend == "single":
        del work["settings"]  # which are a framework's
    if config.emulate is not None:  # by what the file says, wherever it lies
        work[EMULATE] = f"{config.emulate.name} {workload['timeline_sha256'][:_DIGITS]}"
    fixed = config.settings == "matched" or config.overlap == "off"
    if fixed and config.backend != "single":
        work["bucket_cap_mib"] = config.bucket_cap_mib
        work |= {"exchange_bytes": end.get("exchange_bytes")} if config.world_size > 1 else {}
    if config.backend != "single":
        work |= {TUNED + k: getattr(config, k) for k in fields_with(Role.KNOB)}
    if (wire := _wire(config, end, workload)) is not None:
        work["wire"] = wire
    for file, sha256 in {**host.get("user_code", {}), **end.get("user_code", {})}.items():
        name = file.partition("/")[0].removesuffix(".py")
        if not name.startswith(USERS):
            work[_USER_CODE + file] = sha256[:_DIGITS]
        elif name == USERS + config.backend:  # a backend's code is a fact of its runs alone
            work[OWN_CODE + file] = sha256[:_DIGITS]
    ranks = host.get("ranks", ())
    host_facts: dict[str, object] = {"platform": host.get("platform")}
    host_facts["turns"] = TAKEN if "turns" in host else NO_TURNS
    for name in _OF_A_RANK:
        if values := sorted({str(rank[name]) for rank in ranks if name in rank}):
            host_facts[_RENAMED.get(name, name)] = ", ".join(values)
    if affinity := [rank["affinity"] for rank in ranks if "affinity" in rank]:
        host_facts["affinity"] = affinity
    versions = host.get("versions", {}).items()
    host_facts |= {f"versions.{k}": v for k, v in versions if k not in BUNDLED}
    host_facts |= {name: host.get(name) for name in (_CODE, _MALLOC)}
    env = {**host.get("env", {}), **host.get("backend_env", {})}.items()
    host_facts |= {_ENV + k: v for k, v in env if not k.startswith(_OWN_VARIABLES)}
    if any(of_places := [rank.get("env", {}) for rank in ranks]):
        host_facts[_ENV + "of single ranks"] = json.dumps(of_places)
    known = {k: str(v) for k, v in host_facts.items() if v is not None}
    return {k: str(v) for k, v in work.items()} | known


def _wire(config: RunConfig, end: Mapping[str, Any], workload: Mapping[str, Any]) -> str | None:
    """Say what carried gradients: 'TCP over eth0' or 'no TCP'; None without exchange or record."""
    counted: Counter[str] = Counter()
    for of_rank in end.get("tcp_bytes", ()):
        counted.update(of_rank)
    exchanged = config.steps * config.world_size * workload.get("gradient_bytes", 0)
    if "tcp_bytes" not in end or not exchanged or config.world_size == 1 or config.ranks_part:
        return None
    if counted.total() < _CARRIES * exchanged:
        return "no TCP"
    carried = sorted(name for name, n in counted.items() if n >= _SHARE * counted.total())
    return f"TCP over {', '.join(carried)}"


def differences(runs: Iterable[Facts], ignore: Collection[str] = ()) -> list[str]:
    """List the facts on which runs do not agree, each as 'name: value, other value'.

    `ignore` holds names of facts, and prefixes that end in '.'. Runs that lack a fact are not
    compared in it. But a fact of code, malloc or environment counts as 'unset' where it is lacking.
    """
    runs = list(runs)
    kinds = tuple(name for name in ignore if name.endswith("."))
    differing = []
    for field in dict.fromkeys(field for one in runs for field in one):
        if field in ignore or field.startswith(kinds):
            continue
        may_be_unset = (_CODE, _MALLOC, _ENV, _USER_CODE, OWN_CODE)
        unset = "unset" if field.startswith(may_be_unset) else None
        values = {value for one in runs if (value := one.get(field, unset)) is not None}
        if len(values) > 1:
            differing.append(f"{field}: {', '.join(sorted(values))}")
    return differing


def compute_env(runs: Iterable[Facts]) -> list[str]:
    """List differences in environment variables that affect compute, such as OMP_NUM_THREADS."""
    return differences({k: v for k, v in one.items() if k.startswith(_COMPUTES)} for one in runs)


def work_of(facts: Facts) -> Facts:
    """Return the facts that come from the config, without seed and others that vary by launch."""
    return {k: v for k, v in facts.items() if k in _ASKED or k.startswith(TUNED)}


def varied_of(facts: Facts) -> Facts:
    """Return facts that may differ between a study's arms: what is computed, backends' options."""
    return {k: v for k, v in facts.items() if k in VARIED or k.startswith(TUNED)}


def is_emulated(facts: Facts) -> bool:
    """Return whether the run's compute was emulated, by sleeping."""
    return facts.get(EMULATE, usual(EMULATE)) != usual(EMULATE)


def usual(field: str) -> str:
    """Return a config field's default as the text that a fact would have."""
    return str(RunConfig.model_fields[field].default)


@dataclass(frozen=True)
class DigestCheck:
    """Result at one world size: which groups of equal trainings ended with unequal parameters."""

    world_size: int
    groups: int
    runs: int
    mismatches: tuple[str, ...]  # the groups that differ


def compare_digests(runs: pd.DataFrame) -> Iterator[DigestCheck]:
    """Compare equal CPU trainings in each launch: yield a check for 1 rank and one for 2."""
    agree = runs["facts"].map(lambda one: one.get("device") == "cpu")  # others add in any order
    digest_runs = runs[agree & (runs["parameters_sha256"] != "")]
    for world_size in BIT_IDENTICAL_WORLDS:
        runs_of_size = digest_runs[digest_runs["world_size"] == world_size]
        keys = ["launch", "allocation", runs_of_size["facts"].map(_training)]
        grouped: Any = runs_of_size.groupby(keys, sort=False)
        groups = [
            (LaunchId(*key[:2]), rows)
            for key, rows in grouped
            if len(rows[["cell", "arm"]].drop_duplicates()) > 1
        ]
        wrong = tuple(
            f"{launch.name}: {', '.join(sorted(rows['cell'] + ' (' + rows['log'] + ')'))}"
            for launch, rows in groups
            if rows["parameters_sha256"].nunique() > 1
        )
        yield DigestCheck(world_size, len(groups), sum(len(rows) for _, rows in groups), wrong)


def _training(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return the facts that decide a training's numbers, as sorted (name, value) pairs."""
    return tuple(
        sorted(x for x in facts.items() if x[0] in _OF_THE_TRAINING or x[0].startswith(_USER_CODE))
    )
