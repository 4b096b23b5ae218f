"""Site: how a machine or cluster starts the ranks of a run, and what its scheduler must be asked
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bench.backends.catalogue import CATALOGUE, frameworks
from bench.config import Transport
from bench.study.definition import Broken, Float, Table
from slurm.tables import (
    WORD,
    Access,
    Cpu,
    Directives,
    Gpu,
    Layout,
    Limits,
    Line,
    Network,
    Node,
    Paths,
    Policy,
    Setup,
    Word,
)

EnvName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


class Site(Table):
    """One machine or cluster. Every cell of a study starts under the same line: a launcher of its
    own would be a difference.
    """

    name: str = Field(
        pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="the file's name without .toml"
    )
    title: Line = Field(min_length=1, description="what the machine is, in a few words")
    status: Literal["active", "retired"] = Field(
        "active", description="whether it still takes jobs"
    )
    scheduler: Literal["none", "slurm"] = Field(
        "none", description="who hands out nodes; 'none': the script runs where it is started"
    )
    launch: Literal["mpirun", "srun", "ibrun"] = Field(description="the launcher of all cells")
    launch_args: tuple[str, ...] = Field((), description="further arguments of srun or ibrun")
    mpirun_args: tuple[str, ...] = Field((), description="arguments of mpirun before -n RANKS")
    hostfile: Line = Field(
        "", description="mpirun's hostfile, where ranks run on other machines than this one"
    )
    mpi: Word = Field(
        "", description="srun --mpi, of `srun --mpi=list`; default: the site's own default"
    )
    transport: Transport = Field(
        "none",
        description="what a study's frameworks travel on if it does not say: nccl, mpi, gloo",
    )
    slurm_min_version: Line = Field(
        "", description="oldest Slurm that the options below need, for people"
    )
    verified_on: date | None = Field(
        None, description="the day a study was last run there; left out: never"
    )
    doc_date: Line = Field(
        "", description="date or version of the documentation the facts are from"
    )
    sources: tuple[Line, ...] = Field((), description="that documentation")
    notes: tuple[Line, ...] = Field(
        (), description="what a reader of a job script must know; printed into it"
    )
    access: Access = Field(default_factory=Access, description="where jobs go and who pays")
    directives: Directives = Field(default_factory=Directives, description="what sbatch refuses")
    noise: Float | None = Field(
        None,
        gt=0,
        le=1,
        description="paired sd to price with before a pilot, 0.02 is 2 %; default: that of shared "
        "machines",
    )
    node: Node = Field(default_factory=Node, description="one node")
    gpu: Gpu = Field(default_factory=Gpu, description="how GPUs are asked for")
    cpu: Cpu = Field(default_factory=Cpu, description="what a rank gets of the CPUs")
    network: Network = Field(default_factory=Network, description="one wire for both frameworks")
    setup: Setup = Field(default_factory=Setup, description="before Python starts")
    env: dict[EnvName, Line] = Field(
        default_factory=dict, description="environment variables exported for every run"
    )
    env_per_backend: dict[str, dict[EnvName, Line]] = Field(
        default_factory=dict,
        description="the same for one backend's runs alone; the report then says so at every ratio",
    )
    limits: Limits = Field(default_factory=Limits, description="what the queues allow")
    paths: Paths = Field(default_factory=Paths, description="where things are")
    policy: Policy = Field(default_factory=Policy, description="how a job treats its allocation")

    @property
    def ranks_per_node(self) -> int:
        """Ranks that fill a node: one per GPU unless the site says otherwise."""
        return self.cpu.ranks_per_node or self.node.gpus or 1

    def laid_out(self, layout: Layout) -> Site:
        """The same site with another layout of jobs."""
        return self.model_copy(update={"policy": self.policy.model_copy(update={"layout": layout})})

    @property
    def provenance(self) -> str:
        """How far these facts can be trusted, in a line."""
        if self.verified_on:
            return f"last run there on {self.verified_on}"
        return (
            f"from documentation ({self.doc_date or 'no date'}), not run there"
            if self.sources
            else "not run yet"
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rule in (_check_launch, _check_counts, _check_bind, _check_requests, _check_env):
            rule(self)
        return self


def _check_launch(s: Site) -> None:
    slurm = s.scheduler == "slurm"
    if (s.launch == "mpirun") == slurm:
        rule = (
            "starts steps of Slurm jobs"
            if s.launch != "mpirun"
            else "takes a hostfile, no scheduler"
        )
        raise Broken(
            "launch",
            f"launch={s.launch!r} {rule}; use scheduler = {'none' if slurm else 'slurm'!r} or "
            f"another launch",
        )
    for key, owner in (("mpirun_args", "mpirun"), ("hostfile", "mpirun"), ("mpi", "srun")):
        if getattr(s, key) and s.launch != owner:
            raise Broken(
                key, f"{key} is {owner}'s and has no effect with launch={s.launch!r}; leave it out"
            )
    if s.launch_args and s.launch == "mpirun":
        raise Broken(
            "launch_args",
            "launch_args are for srun and ibrun; with launch='mpirun' write mpirun_args",
        )
    if s.policy.no_kill and s.launch != "srun":
        raise Broken(
            "policy.no_kill",
            f"policy.no_kill finds lost nodes with srun, and launch is {s.launch!r}; leave it out",
        )
    if (
        slurm
        and not s.setup.venv
        and not s.setup.container
        and not s.setup.modules
        and not s.setup.prologue
    ):
        raise Broken(
            "setup.venv",
            "setup.venv='' leaves a job without Python; name a venv, modules, a prologue or a "
            "container",
        )


def _check_counts(s: Site) -> None:
    n = s.node
    if bool(n.gpus) != (n.vendor != "none"):
        raise Broken(
            "node.gpus",
            f"node.gpus={n.gpus} does not go with vendor={n.vendor!r}; use 'cuda' or 'rocm' with "
            f"GPUs, else 'none'",
        )
    if s.transport == "nccl" and not n.gpus:
        raise Broken(
            "transport", "transport='nccl' joins GPUs, and node.gpus is 0; use 'mpi' or 'gloo'"
        )
    if n.gpus and s.ranks_per_node > n.gpus:
        raise Broken(
            "cpu.ranks_per_node",
            f"cpu.ranks_per_node={s.ranks_per_node}, but a node has {n.gpus} GPUs, one for each "
            f"rank; use at most {n.gpus}",
        )
    if n.cores is None:
        if s.scheduler == "slurm":
            raise Broken(
                "node",
                "node.cores is missing: the counts of a job follow from it; see `scontrol show "
                "node`",
            )
        return
    cpus = n.cores * n.threads_per_core
    if s.ranks_per_node * s.cpu.per_rank > cpus:
        raise Broken(
            "cpu.per_rank",
            f"cpu.per_rank={s.cpu.per_rank} times {s.ranks_per_node} ranks is more than the "
            f"node's {cpus} CPUs "
            f"({n.cores} cores x {n.threads_per_core}); use at most {cpus // s.ranks_per_node}",
        )
    if (s.cpu.threads or 1) > s.cpu.per_rank and s.scheduler == "slurm":
        raise Broken(
            "cpu.threads",
            f"cpu.threads={s.cpu.threads}, but a rank has {s.cpu.per_rank} CPUs; use at most "
            f"{s.cpu.per_rank}",
        )


def _check_bind(s: Site) -> None:
    kind, _, masks = s.cpu.bind.partition(":")
    if kind in ("mask_cpu", "map_cpu") and (given := len(masks.split(","))) != s.ranks_per_node:
        raise Broken(
            "cpu.bind",
            f"cpu.bind names {given} masks for {s.ranks_per_node} ranks on a node; give one for "
            f"each",
        )


def _check_requests(s: Site) -> None:
    if s.limits.max_minutes and s.limits.max_minutes * 60 <= 2 * s.policy.signal_lead_s:
        raise Broken(
            "policy.signal_lead_s",
            f"policy.signal_lead_s={s.policy.signal_lead_s} leaves a job of "
            f"{s.limits.max_minutes} min no time to run; use less",
        )
    for key, name in _asked_for(s):
        if name in s.directives.forbidden:
            raise Broken(
                key,
                f"{key.rstrip('.0123456789')} asks for --{name}, which directives.forbidden rules "
                f"out; drop one of the two",
            )
    for index, option in enumerate(s.access.extra):
        if not re.fullmatch(rf'--[a-z][a-z-]*(={WORD}|="[^"\\]*")?', option):
            raise Broken(
                f"access.extra.{index}",
                f"access.extra: {option!r} is not of the form '--name=value' or '--name=\"a "
                f"value\"'",
            )


def _asked_for(s: Site) -> Iterator[tuple[str, str]]:
    """Every option of sbatch that a key of the file makes, with that key."""
    for name in ("account", "partition", "qos", "constraint", "reservation", "clusters"):
        yield from [(f"access.{name}", name)] if getattr(s.access, name) else []
    for index, option in enumerate(s.access.extra):
        yield f"access.extra.{index}", option.removeprefix("--").partition("=")[0]
    yield from [("cpu.hint", "hint")] if s.cpu.hint else []
    yield from [("gpu.request", s.gpu.request)] if s.node.gpus else []
    yield from [("policy.exclusive", "exclusive")] if s.policy.exclusive else []
    yield ("policy.requeue", "requeue" if s.policy.requeue else "no-requeue")
    yield from [("policy.no_kill", "no-kill")] if s.policy.no_kill else []


def _check_env(s: Site) -> None:
    for backend, variables in s.env_per_backend.items():
        if backend not in frameworks():
            raise Broken(
                f"env_per_backend.{backend}",
                f"env_per_backend.{backend}: a backend is one of {', '.join(frameworks())}",
            )
        facts = CATALOGUE[backend]
        for name in variables:
            key = f"env_per_backend.{backend}.{name}"
            if name in s.env:
                raise Broken(
                    key,
                    f"{key}: {name} is also in env, which is for all backends; write it in one of "
                    f"the two",
                )
            if name.startswith(facts.env_prefixes):
                knobs = ", ".join(facts.knobs.get("tuned", ()))
                raise Broken(key, f"{key}: {facts.short_label}'s settings are the study's: {knobs}")
