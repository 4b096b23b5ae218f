"""The tables of a site file: what the scheduler, the nodes and the network of a cluster want and
allow.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bench.study.definition import Bool, Int, Table

# One line of text; a control character would end a comment or a directive of a job script, or be
# lost in it.
Line = Annotated[str, Field(pattern=r"^[^\p{Cc}\u2028\u2029]*$", max_length=4000)]
# What may stand in an option of sbatch or srun as it is: both end an option at a blank, '#', a
# quote or a backslash.
WORD = r"[A-Za-z0-9_@%+=:,./&|!*()\[\]~^{}-]*"
Word = Annotated[str, Field(pattern=f"^{WORD}$", max_length=4000)]
Layout = Literal["blocks", "single"]


class Access(Table):
    """Where jobs go and who pays."""

    account: Word = Field(
        "",
        description="project that is charged: sbatch --account; the command line's --account wins",
    )
    account_required: Bool = Field(False, description="refuse to render a job without an account")
    partition: Word = Field("", description="sbatch --partition")
    qos: Word = Field("", description="sbatch --qos")
    constraint: Word = Field("", description="sbatch --constraint, as in 'gpu&hbm80g'")
    reservation: Word = Field("", description="sbatch --reservation")
    clusters: Word = Field("", description="sbatch --clusters")
    extra: tuple[Line, ...] = Field(
        (), description="further options of sbatch, as in '--licenses=scratch'"
    )


class Directives(Table):
    """What the site's sbatch refuses."""

    forbidden: tuple[Word, ...] = Field(
        (), description="options that no job may carry, without dashes, as in 'gres'"
    )


class Node(Table):
    """One node as jobs may use it."""

    cores: Int | None = Field(
        None, ge=1, le=2**20, description="physical cores that jobs may use; left out: unknown"
    )
    threads_per_core: Int = Field(
        1, ge=1, le=1024, description="hardware threads of a core that Slurm counts as CPUs"
    )
    gpus: Int = Field(
        0,
        ge=0,
        le=1024,
        description="GPUs as Slurm counts them (on MI250X: 8 dies); 0: ranks compute on the CPU",
    )
    gpu: Line = Field("", description="what the GPUs are, for people")
    vendor: Literal["none", "cuda", "rocm"] = Field("none", description="whose GPUs")
    interconnect: Line = Field("", description="what joins the nodes, for people")


class Gpu(Table):
    """How a job asks for the node's GPUs and how ranks see them."""

    request: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] = Field(
        "gpus-per-node",
        description="option that asks for them; 'none' where a partition's nodes come with theirs",
    )
    bind: Word = Field(
        "",
        description="srun --gpu-bind; default: every rank sees all GPUs of its node, as NCCL "
        "wants it",
    )


class Cpu(Table):
    """What a rank gets of the node's CPUs."""

    ranks_per_node: Int | None = Field(
        None, ge=1, le=2**20, description="ranks on a node; default: one per GPU"
    )
    per_rank: Int = Field(
        1,
        ge=1,
        le=2**20,
        description="CPUs of a rank as Slurm counts them: --cpus-per-task of sbatch and srun",
    )
    threads: Int | None = Field(
        None, ge=1, le=4096, description="compute threads of a rank where the study does not say"
    )
    bind: Word = Field(
        "",
        description="srun --cpu-bind, as in 'cores' or 'mask_cpu:...', one mask per rank of a node",
    )
    hint: Word = Field("", description="sbatch --hint, as in 'nomultithread'")


class Network(Table):
    """One wire for both frameworks."""

    ifname: Word = Field(
        "",
        description="interface(s), comma-separated, for NCCL; Gloo takes the first; default: they "
        "choose",
    )


class Setup(Table):
    """What a job does before it can start Python."""

    purge: Bool = Field(False, description="module purge first")
    modules: tuple[Line, ...] = Field((), description="modules to load, in order")
    prologue: tuple[Line, ...] = Field((), description="lines of bash, after the modules")
    venv: Line = Field(
        ".venv",
        description="virtual environment, from the repository root; '' takes python from PATH",
    )
    container: tuple[Line, ...] = Field(
        (),
        description="words that start a program in a container, before python; the host then "
        "needs a Python 3.11 with pydantic for the driver: DRIVER=...",
    )


class Limits(Table):
    """What the site's queues allow."""

    max_nodes: Int = Field(1, ge=1, le=2**20, description="nodes a job may have")
    max_minutes: Int | None = Field(None, ge=1, le=366 * 1440, description="minutes a job may take")
    max_submitted: Int | None = Field(
        None, ge=1, le=10**9, description="jobs a user may have in the queue"
    )


class Paths(Table):
    """Where things are; a relative path starts at the repository root, which all nodes must see."""

    data: Line = Field("data", description="folder with the data sets, for studies that name none")
    node_local: tuple[Line, ...] = Field(
        ("/tmp", "/var/tmp", "/dev/shm"),
        description="folders of which every node has its own: nothing that a job needs may lie "
        "below them",
    )


class Policy(Table):
    """How a job treats its allocation."""

    layout: Layout = Field(
        "blocks",
        description="'blocks': a job for each node count of a block; 'single': one for all, where "
        "a queue takes one job",
    )
    exclusive: Bool = Field(True, description="ask for whole nodes: a neighbour is noise")
    requeue: Bool = Field(
        False, description="let Slurm start the job again after a preemption or a dead node"
    )
    no_kill: Bool = Field(
        False,
        description="let the job outlive a lost node: runs that need that node are left, others "
        "go on",
    )
    signal_lead_s: Int = Field(
        120,
        ge=30,
        le=86_400,
        description="seconds before the job's end at which it is told to stop",
    )
