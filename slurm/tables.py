"""The tables of a site file: what the scheduler, nodes and network of a cluster want and allow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bench.study.definition import Bool, Int, StrictTable

# A control character would end a comment or a directive of a job script, or be lost in it.
OneLine = Annotated[str, Field(pattern=r"^[^\p{Cc}\u2028\u2029]*$", max_length=4000)]
# Stands in an option of sbatch or srun as it is: a blank, '#', a quote or a backslash would end it.
WORD = r"[A-Za-z0-9_@%+=:,./&|!*()\[\]~^{}-]*"
Word = Annotated[str, Field(pattern=f"^{WORD}$", max_length=4000)]
Positive = Annotated[Int, Field(ge=1, le=2**20)]
Ways = Literal["gpus-per-node", "gres", "gpus-per-task", "none"]
# options of sbatch that a site's `extra` must leave alone, by the reason
OURS = {
    "a job is one launch, and an array would do its runs several times over": "array",
    "submit would wait for the end of every job": "wait",
    "it submits nothing": "test-only help usage version",
    "the job's script is the study's": "wrap",
    "submit reads sbatch's answer": "parsable quiet verbose",
    "the job's files are looked for where submit puts them": "output error open-mode chdir",
    "jobs are told apart by their names": "job-name",
    "submit says which jobs wait for which": "dependency",
    "nodes and ranks are the study's": "nodes ntasks ntasks-per-node ntasks-per-core "
    "ntasks-per-socket ntasks-per-gpu cpus-per-task cpus-per-gpu",
    "it is a key of [policy]": "exclusive oversubscribe requeue no-requeue signal",
    "--minutes and limits.max_minutes say it": "time time-min",
}


def breaks_a_job(option: str) -> str:
    """Explain why `extra` may not hold an option, whole or cut short for sbatch; '' if it may."""
    name = option.removeprefix("--").partition("=")[0]
    cut = ((why, known) for why, names in OURS.items() for known in names.split())
    return next((why for why, known in cut if known.startswith(name)), "")


class Access(StrictTable):
    account: Word = Field("", description="sbatch --account; the command line's --account wins")
    account_required: Bool = Field(False, description="refuse to render a job without an account")
    partition: Word = Field("", description="sbatch --partition")
    qos: Word = Field("", description="sbatch --qos")
    constraint: Word = Field("", description="sbatch --constraint, as in 'gpu&hbm80g'")
    reservation: Word = Field(
        "", description="sbatch --reservation; the command line's --reservation wins"
    )
    clusters: Word = Field("", description="sbatch --clusters")
    extra: tuple[OneLine, ...] = Field((), description="more options, as in '--licenses=scratch'")


class Directives(StrictTable):
    forbidden: tuple[Word, ...] = Field((), description="options, without dashes, as in 'gres'")


class NodeHardware(StrictTable):
    cores: Positive | None = Field(None, description="physical cores for jobs; left out: unknown")
    threads_per_core: Int = Field(1, ge=1, le=1024, description="CPUs of a core as Slurm counts")
    gpus: Int = Field(0, ge=0, le=1024, description="as Slurm counts them: an MI250X is two")
    gpu: OneLine = Field("", description="what the GPUs are, for people")
    vendor: Literal["none", "cuda", "rocm"] = Field("none", description="whose GPUs")
    interconnect: OneLine = Field("", description="what joins the nodes, for people")


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
        (),
        description="words that start a program in a container, before python; the driver runs on "
        "the host, with a Python 3.11 that has pydantic: DRIVER=...",
    )


class Limits(StrictTable):
    max_nodes: Positive = Field(1, description="nodes a job may have")
    max_minutes: Int | None = Field(None, ge=1, le=366 * 1440, description="of a job")
    max_submitted: Int | None = Field(None, ge=1, le=10**9, description="jobs a user may queue")


class Paths(StrictTable):
    data: OneLine = Field(
        "data", description="folder with the data sets, for studies that name none"
    )
    node_local: tuple[OneLine, ...] = Field(
        ("/tmp", "/var/tmp", "/dev/shm"),
        description="folders every node has of its own: nothing a job needs may lie below them",
    )


class Policy(StrictTable):
    exclusive: Bool = Field(True, description="ask for whole nodes: a neighbour is noise")
    one_at_a_time: Bool = Field(
        False, description="a study's jobs share wires or cores: no two run"
    )
    requeue: Bool = Field(False, description="start again after a preemption or a dead node")
    signal_lead_s: Int = Field(120, ge=30, le=86_400, description="a job's warning before its end")
