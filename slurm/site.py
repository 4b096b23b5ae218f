"""Site: how a machine starts the ranks of a run, and what its scheduler must be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bench.config import Transport
from bench.study.definition import StrictTable
from slurm import tables
from slurm.tables import WORD, OneLine, Word

Variables = dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], OneLine]
_Rule = tuple[str, str]  # the key to change, the message


class Site(StrictTable):
    """One machine or cluster, with the same launch line for every cell: a fair comparison."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="the file's without .toml")
    title: OneLine = Field(min_length=1, description="what the machine is, in a few words")
    status: Literal["active", "retired"] = Field("active", description="whether it takes jobs")
    scheduler: Literal["none", "slurm"] = Field("none", description="who hands out nodes")
    launch: Literal["mpirun", "srun", "ibrun"] = Field(description="the launcher of all cells")
    launch_args: tuple[str, ...] = Field((), description="further arguments of srun or ibrun")
    mpirun_args: tuple[str, ...] = Field((), description="arguments of mpirun before -n RANKS")
    hostfile: OneLine = Field(
        "", description="mpirun's, where ranks run on other machines than this"
    )
    mpi: Word = Field("", description="srun --mpi, of `srun --mpi=list`; default: the site's own")
    transport: Transport = Field("none", description="where a study names none: nccl, mpi, gloo")
    slurm_min_version: OneLine = Field("", description="oldest Slurm for all this, for people")
    verified_on: date | None = Field(None, description="the day a study was last run there")
    doc_date: OneLine = Field("", description="date or version of the documentation used")
    sources: tuple[OneLine, ...] = Field((), description="that documentation")
    notes: tuple[OneLine, ...] = Field((), description="printed into every job script")
    access: tables.Access = Field(tables.Access(), description="where jobs go and who pays")
    directives: tables.Directives = Field(tables.Directives(), description="what sbatch refuses")
    node: tables.NodeHardware = Field(tables.NodeHardware(), description="one node")
    gpu: tables.Gpu = Field(tables.Gpu(), description="how GPUs are asked for")
    cpu: tables.CpuLayout = Field(tables.CpuLayout(), description="what a rank gets of the CPUs")
    network: tables.Network = Field(tables.Network(), description="one wire for both frameworks")
    setup: tables.Setup = Field(tables.Setup(), description="before Python starts")
    env: Variables = Field({}, description="environment variables exported for every run")
    limits: tables.Limits = Field(tables.Limits(), description="what the queues allow")
    paths: tables.Paths = Field(tables.Paths(), description="where things are")
    policy: tables.Policy = Field(tables.Policy(), description="how a job treats its allocation")

    @property
    def ranks_per_node(self) -> int:
        """Ranks that fill a node: one per GPU unless the site says otherwise."""
        return self.cpu.ranks_per_node or self.node.gpus or 1

    @property
    def provenance(self) -> str:
        """How far these facts can be trusted, in a line."""
        if self.verified_on:
            return f"last run there on {self.verified_on}"
        documented = f"from documentation ({self.doc_date or 'no date'}), not run there"
        return documented if self.sources else "not run yet"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rules in (_launch_rules, _count_rules, _request_rules):
            for _, message in rules(self):
                raise ValueError(message)
        return self


def _launch_rules(s: Site) -> Iterator[_Rule]:
    slurm, mpirun, launch = s.scheduler == "slurm", s.launch == "mpirun", f"launch={s.launch!r}"
    if mpirun == slurm:
        starts = "takes a hostfile, no scheduler" if mpirun else "starts steps of Slurm jobs"
        use = f"use scheduler = {'none' if mpirun else 'slurm'!r} or another launch"
        yield "launch", f"{launch} {starts}; {use}"
    for key, owner in (("mpirun_args", "mpirun"), ("hostfile", "mpirun"), ("mpi", "srun")):
        if getattr(s, key) and s.launch != owner:
            yield key, f"{key} is {owner}'s and has no effect with {launch}; leave it out"
    if mpirun and s.launch_args:
        yield "launch_args", f"launch_args are for srun and ibrun; with {launch} write mpirun_args"
    if slurm and not (s.setup.venv or s.setup.container or s.setup.modules or s.setup.prologue):
        without = "setup.venv='' leaves a job without Python"
        yield "setup.venv", f"{without}; name a venv, modules or a container"


def _count_rules(s: Site) -> Iterator[_Rule]:
    slurm, gpus, cores = s.scheduler == "slurm", s.node.gpus, s.node.cores
    ranks, per_rank, threads = s.ranks_per_node, s.cpu.per_rank, s.cpu.threads
    if bool(gpus) != (s.node.vendor != "none"):
        problem = f"node.gpus={gpus} does not go with vendor={s.node.vendor!r}"
        yield "node.gpus", f"{problem}; use 'cuda' or 'rocm' with GPUs, else 'none'"
    if s.transport == "nccl" and not gpus:
        yield "transport", "transport='nccl' joins GPUs, and node.gpus is 0; use 'mpi' or 'gloo'"
    if 0 < gpus < ranks:
        problem = f"cpu.ranks_per_node={ranks}, but a node has {gpus} GPUs, one for each rank"
        yield "cpu.ranks_per_node", f"{problem}; use at most {gpus}"
    if cores is None:
        if slurm:
            missing = "node.cores is missing: a job's counts follow from it"
            yield "node", f"{missing}; see `scontrol show node`"
        return
    cpus = cores * s.node.threads_per_core
    if ranks * per_rank > cpus:
        problem = f"cpu.per_rank={per_rank} times {ranks} ranks is more than the node's {cpus} CPUs"
        made = f"({cores} cores x {s.node.threads_per_core})"
        yield "cpu.per_rank", f"{problem} {made}; use at most {cpus // ranks}"
    if slurm and (threads or 1) > per_rank:
        problem = f"cpu.threads={threads}, but a rank has {per_rank} CPUs"
        yield "cpu.threads", f"{problem}; use at most {per_rank}"


def _request_rules(s: Site) -> Iterator[_Rule]:
    kind, _, masks = s.cpu.bind.partition(":")
    count, ranks = len(masks.split(",")), s.ranks_per_node
    if kind in ("mask_cpu", "map_cpu") and count != ranks:
        problem = f"cpu.bind names {count} masks for {ranks} ranks on a node"
        yield "cpu.bind", f"{problem}; give each one"
    most, lead_s = s.limits.max_minutes, s.policy.signal_lead_s
    if most is not None and most * 60 <= 2 * lead_s:
        problem = f"policy.signal_lead_s={lead_s} leaves a job of {most} min no time to run"
        yield "policy.signal_lead_s", f"{problem}; use less"
    for index, option in enumerate(s.access.extra):
        if not re.fullmatch(rf'--[a-z][a-z-]*(={WORD}|="[^"\\]*")?', option):
            form = """'--name=value' or '--name="a value"'"""
            yield f"access.extra.{index}", f"access.extra: {option!r} is not of the form {form}"
        if why := tables.breaks_a_job(option):
            yield (
                f"access.extra.{index}",
                f"access.extra: {option!r} breaks a job: {why}; leave it out",
            )
