"""Site files, which say how a machine starts ranks and what its scheduler is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bench.config import Transport, UsageError, near
from bench.study.definition import Bool, Int, StrictTable
from bench.study.files import read

_HERE = Path(__file__).parent

# A control character would end a comment or a directive of a job script, or be lost in it.
OneLine = Annotated[str, Field(pattern=r"^[^\p{Cc}\u2028\u2029]*$", max_length=4000)]
# Stands in an option of sbatch or srun as it is: a blank, '#', a quote or a backslash would end it.
WORD = r"[A-Za-z0-9_@%+=:,./&|!*()\[\]~^{}-]*"
Word = Annotated[str, Field(pattern=f"^{WORD}$", max_length=4000)]
Positive = Annotated[Int, Field(ge=1, le=2**20)]
Ways = Literal["gpus-per-node", "gres", "gpus-per-task", "none"]
Variables = dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], OneLine]
# options of sbatch that `extra` must leave alone: submit, the study or another key sets them
_OURS = """array chdir cpus-per-gpu cpus-per-task dependency error exclusive help job-name nodes
no-requeue ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output
oversubscribe parsable quiet requeue signal test-only time time-min usage verbose version wait wrap
"""
# keys that have left: files of users may still hold them, and no job depends on them
_LEFT = """status doc_date sources interconnect node_local directives max_submitted
account_required"""


class Access(StrictTable):
    account: Word = Field("", description="sbatch --account; the command line's --account wins")
    partition: Word = Field("", description="sbatch --partition")
    qos: Word = Field("", description="sbatch --qos")
    constraint: Word = Field("", description="sbatch --constraint, as in 'gpu&hbm80g'")
    reservation: Word = Field("", description="sbatch --reservation; or on the command line")
    clusters: Word = Field("", description="sbatch --clusters")
    extra: tuple[OneLine, ...] = Field((), description="more options, as in '--licenses=scratch'")


class NodeHardware(StrictTable):
    cores: Positive | None = Field(None, description="physical cores for jobs; left out: unknown")
    threads_per_core: Int = Field(1, ge=1, le=1024, description="CPUs of a core as Slurm counts")
    gpus: Int = Field(0, ge=0, le=1024, description="as Slurm counts them: an MI250X is two")
    gpu: OneLine = Field("", description="what the GPUs are, for people")
    vendor: Literal["none", "cuda", "rocm"] = Field("none", description="whose GPUs")


class Gpu(StrictTable):
    request: Ways = Field("gpus-per-node", description="option; 'none': nodes come with them")
    type: Word = Field("", description="the kind to ask for, as in 'a100', where there are several")
    bind: Word = Field("", description="srun --gpu-bind; default: a rank sees all GPUs of its node")


class CpuLayout(StrictTable):
    ranks_per_node: Positive | None = Field(None, description="default: one per GPU")
    per_rank: Positive = Field(1, description="--cpus-per-task of sbatch and srun")
    threads: Int | None = Field(None, ge=1, le=4096, description="where the study does not say")
    bind: Word = Field("", description="srun --cpu-bind: 'cores', or 'mask_cpu:...' for each rank")
    hint: Word = Field("", description="sbatch --hint, as in 'nomultithread'")


class Network(StrictTable):
    ifname: Word = Field("", description="interfaces for NCCL, with commas; Gloo takes the first")


class Setup(StrictTable):
    purge: Bool = Field(False, description="module purge first")
    modules: tuple[OneLine, ...] = Field((), description="modules to load, in order")
    prologue: tuple[OneLine, ...] = Field((), description="lines of bash, after the modules")
    venv: OneLine = Field(".venv", description="from the repository root; '': python from PATH")
    container: tuple[OneLine, ...] = Field(
        (), description="words before python, in a container; DRIVER=...: the host's Python 3.11"
    )


class Limits(StrictTable):
    max_nodes: Positive = Field(1, description="nodes a job may have")
    max_minutes: Int | None = Field(None, ge=1, le=366 * 1440, description="of a job")


class Paths(StrictTable):
    data: OneLine = Field("data", description="data sets, for studies that name no folder")


class Policy(StrictTable):
    exclusive: Bool = Field(True, description="ask for whole nodes: a neighbour is noise")
    one_at_a_time: Bool = Field(False, description="no two jobs of a study side by side")
    requeue: Bool = Field(False, description="start again after a preemption or a dead node")
    signal_lead_s: Int = Field(120, ge=30, le=86_400, description="a job's warning before its end")


class Site(StrictTable):
    """One machine or cluster, which starts every framework with the same launcher and arguments."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="the file's without .toml")
    title: OneLine = Field(min_length=1, description="what the machine is, in a few words")
    scheduler: Literal["none", "slurm"] = Field("none", description="who hands out nodes")
    launch: Literal["mpirun", "srun", "ibrun"] = Field(description="the launcher of all cells")
    launch_args: tuple[str, ...] = Field((), description="further arguments of srun or ibrun")
    mpirun_args: tuple[str, ...] = Field((), description="arguments of mpirun before -n RANKS")
    hostfile: OneLine = Field("", description="mpirun's, where ranks run on other machines")
    mpi: Word = Field("", description="srun --mpi, of `srun --mpi=list`; default: the site's own")
    transport: Transport = Field("none", description="where a study names none: nccl, mpi, gloo")
    slurm_min_version: OneLine = Field("", description="oldest Slurm for all this, for people")
    verified_on: date | None = Field(None, description="the day a study was last run there")
    notes: tuple[OneLine, ...] = Field((), description="printed into every job script")
    access: Access = Field(Access(), description="where jobs go and who pays")
    node: NodeHardware = Field(NodeHardware(), description="one node")
    gpu: Gpu = Field(Gpu(), description="how GPUs are asked for")
    cpu: CpuLayout = Field(CpuLayout(), description="what a rank gets of the CPUs")
    network: Network = Field(Network(), description="one wire for both frameworks")
    setup: Setup = Field(Setup(), description="before Python starts")
    env: Variables = Field({}, description="environment variables exported for every run")
    limits: Limits = Field(Limits(), description="what the queues allow")
    paths: Paths = Field(Paths(), description="where things are")
    policy: Policy = Field(Policy(), description="how a job treats its allocation")

    @property
    def ranks_per_node(self) -> int:
        """The ranks that fill a node: cpu.ranks_per_node, else one per GPU, else one."""
        return self.cpu.ranks_per_node or self.node.gpus or 1

    @property
    def provenance(self) -> str:
        """The day of the last study there, as 'verified on 2026-01-31', or 'not verified'."""
        return f"verified on {self.verified_on}" if self.verified_on else "not verified"

    @model_validator(mode="before")
    @classmethod
    def _read_past(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return `values` without keys that only earlier versions knew; keep table `env` whole."""
        kept = {key: value for key, value in values.items() if key not in _LEFT.split()}
        for key, table in kept.items():
            if isinstance(table, dict) and key != "env":
                kept[key] = {name: x for name, x in table.items() if name not in _LEFT.split()}
        return kept

    @model_validator(mode="after")
    def _check(self) -> Self:
        for message in _broken_rules(self):
            raise ValueError(message)
        return self


def _broken_rules(s: Site) -> Iterator[str]:
    """Yield a message for each rule about several keys that the site breaks."""
    slurm, mpirun, launch = s.scheduler == "slurm", s.launch == "mpirun", f"launch={s.launch!r}"
    gpus, ranks, per_rank = s.node.gpus, s.ranks_per_node, s.cpu.per_rank
    if mpirun == slurm:
        starts = "takes a hostfile, no scheduler" if mpirun else "starts steps of Slurm jobs"
        use = f"use scheduler = {'none' if mpirun else 'slurm'!r} or another launch"
        yield f"{launch} {starts}; {use}"
    owners = {"mpirun_args": "mpirun", "hostfile": "mpirun", "mpi": "srun"}
    for key, launchers in {**owners, "launch_args": "srun ibrun"}.items():
        if getattr(s, key) and s.launch not in launchers.split():
            yield f"{key} has no effect with {launch}; leave it out"
    if s.transport == "nccl" and not gpus:
        yield "transport='nccl' joins GPUs, and node.gpus is 0; use 'mpi' or 'gloo'"
    if 0 < gpus < ranks:
        problem = f"cpu.ranks_per_node={ranks}, but a node has {gpus} GPUs, one for each rank"
        yield f"{problem}; use at most {gpus}"
    cpus = (s.node.cores or 0) * s.node.threads_per_core
    if 0 < cpus < ranks * per_rank:
        problem = f"cpu.per_rank={per_rank} times {ranks} ranks is more than the node's {cpus} CPUs"
        yield f"{problem}; use at most {cpus // ranks}"
    if slurm and (s.cpu.threads or 1) > per_rank:
        problem = f"cpu.threads={s.cpu.threads}, but a rank has {per_rank} CPUs"
        yield f"{problem}; use at most {per_rank}"
    form = """'--name=value' or '--name="a value"'"""
    for option in s.access.extra:
        if not (match := re.fullmatch(rf'--([a-z][a-z-]*)(={WORD}|="[^"\\]*")?', option)):
            yield f"access.extra: {option!r} is not of the form {form}"
        # sbatch takes names cut short as well
        elif any(name.startswith(match[1]) for name in _OURS.split()):
            problem = f"access.extra: {option!r} breaks a job"
            yield f"{problem}: submit, the study or another key sets it; leave it out"


def find_study(text: str) -> Path:
    """Return a study's file; `text` is its path, folder or shipped name. Raises UsageError."""
    path = Path(text)
    if path.suffix == ".toml" or path.is_file():
        return path
    names = _names("studies")
    if text in names:
        return _HERE / "studies" / f"{text}.toml"
    if (path / "study.toml").is_file():  # of a study's folder
        return path / "study.toml"
    rule = f"neither a shipped study ({', '.join(names)}), nor the path of a .toml file"
    raise UsageError(f"{text!r} is {rule} or of a study's folder{near(text, names)}")


def read_site(name: str) -> Site:
    """Read a site by a shipped site's name or a .toml file's path. Raises UsageError."""
    names = _names("sites")
    if name in names:
        return read(_HERE / "sites" / f"{name}.toml", Site)
    path = Path(name)
    if path.suffix != ".toml":
        raise UsageError(f"{name!r} is not a known site ({', '.join(names)}){near(name, names)}")
    site = read(path, Site)
    if site.name != path.stem:
        raise UsageError(f"{path}: name={site.name!r} must be the file's: {path.stem!r}")
    return site


def _names(folder: str) -> list[str]:
    return sorted(p.stem for p in (_HERE / folder).glob("*.toml"))
