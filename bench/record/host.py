"""Structure of what a log's start says of the machine: provenance, one entry per rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

MOST_TEXT = 4096  # characters of a name: of a machine, a version or a file
MOST_INTEGER = 2**63

Text = Annotated[str, Field(max_length=MOST_TEXT)]
Value = Annotated[str, Field(max_length=2**17)]  # of a variable: the kernel takes no longer ones
Texts = dict[Text, Value]
Integer = Annotated[int, Field(gt=-MOST_INTEGER, lt=MOST_INTEGER)]
Count = Annotated[int, Field(ge=0, lt=MOST_INTEGER)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# Sums and quotients stay finite: no clock tells less than a nanosecond, no run lasts 30 years.
Duration = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Rank(TypedDict):
    """What one rank recorded of itself."""

    rank: Count
    hostname: Text
    boot_id: NotRequired[Text | None]  # of the kernel, which nodes of one machine share
    local_rank: NotRequired[Count]
    pid: NotRequired[Count]
    affinity: NotRequired[list[Count]]
    threads: NotRequired[Count]
    versions: NotRequired[Texts]
    cpu: NotRequired[Text]
    cpus_on_node: NotRequired[Count | None]
    memory_bytes: NotRequired[Count]
    env: NotRequired[dict[Text, Value | None]]  # where it differs from rank 0's
    load_1min: NotRequired[Finite]
    steal_jiffies: NotRequired[Count | None]  # of the node, and so are busy and idle
    busy_jiffies: NotRequired[Count | None]
    idle_jiffies: NotRequired[Count | None]
    own_jiffies: NotRequired[Count]
    cpu_mhz: NotRequired[Finite | None]
    gpu: NotRequired[Text]
    gpu_uuid: NotRequired[Text]
    nccl_library: NotRequired[Text]  # the file; its contents are in the host's versions
    gpu_settings: NotRequired[Texts]  # nvidia-smi's words for what its owner may change


def machine_of(rank: Mapping[str, Any]) -> str:
    """Name the machine of a rank's cores: nodes that share a kernel are one, as containers are."""
    return str(rank.get("boot_id") or rank["hostname"])


class Git(TypedDict):
    """State of the measuring code's checkout; None without git."""

    commit: NotRequired[Text | None]
    bench_tree: NotRequired[Text | None]
    bench_dirty: NotRequired[bool | None]


class TurnsOfALaunch(TypedDict):
    """A world's place among those that were started together."""

    launch: Text
    turn: Count
    worlds: Count


class Host(TypedDict):
    """Provenance of a run; a run that was refused for its world has no ranks."""

    ranks: NotRequired[list[Rank]]
    started: NotRequired[Text]
    git: NotRequired[Git]
    code_sha256: NotRequired[Sha256]
    user_code: NotRequired[dict[Text, Sha256]]  # by module
    platform: NotRequired[Text]
    versions: NotRequired[Texts]
    env: NotRequired[Texts]
    malloc: NotRequired[Text]
    backend_env: NotRequired[Texts]  # more of env; written until version 2.0
    job: NotRequired[dict[Text, Text]]
    turns: NotRequired[TurnsOfALaunch]
