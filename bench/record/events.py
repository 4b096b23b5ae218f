"""Structure of a run log's events: required fields, checked strictly; more are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
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
    pid: NotRequired[Count]
    affinity: NotRequired[list[Count]]
    threads: NotRequired[Count]
    versions: NotRequired[Texts]
    cpu: NotRequired[Text]
    cpus_on_node: NotRequired[Count | None]
    env: NotRequired[dict[Text, Value | None]]  # where it differs from rank 0's
    load_1min: NotRequired[Finite]
    steal_jiffies: NotRequired[Count | None]  # of the node, and so are busy and idle
    busy_jiffies: NotRequired[Count | None]
    idle_jiffies: NotRequired[Count | None]
    own_jiffies: NotRequired[Count]
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


class Start(TypedDict):
    """What a run is, before anything is measured."""

    event: Literal["start"]
    schema: Annotated[int, Field(ge=1, lt=MOST_INTEGER)]
    config: dict[str, Any]  # checked as a RunConfig
    host: Host
    workload: dict[Text, Text | bool | Integer | Finite | None]


class StepsEvent(TypedDict):
    """Seconds of every step of a phase, [rank][step]."""

    event: Literal["steps"]
    phase: Literal["warmup", "lead_in", "window"]
    index: Count
    seconds: list[list[Duration]]


class BreakdownEvent(TypedDict):
    """Parts of every observed step in seconds, each [rank][step]; they follow one another.

    `begin` is on a clock that all ranks of a host share on the CPU, else on one of the rank's own.
    """

    event: Literal["breakdown"]
    phase: Literal["warmup", "lead_in", "window"]
    index: Count
    begin: list[list[Wait]]
    input: list[list[Wait]]
    forward: list[list[Wait]]
    backward: list[list[Wait]]
    exposed: list[list[Wait]]
    optimiser: list[list[Wait]]


class Exchanges(TypedDict):
    """The exchanges that a framework noted itself: written until version 1.0."""

    event: Literal["exchanges"]


# of a step, in the order in which they follow one another from its beginning on
PARTS = ("input", "forward", "backward", "exposed", "optimiser")


class Window(TypedDict):
    """One timed window: seconds of the slowest rank; lists are by rank."""

    event: Literal["window"]
    index: Count
    steps: Count
    seconds: Duration
    input_seconds: list[Wait]
    busy_share: NotRequired[list[Share | None]]


class Epoch(TypedDict):
    """One judged epoch: seconds of the slowest rank without the judging, mean loss over ranks."""

    event: Literal["epoch"]
    training: Count
    index: Count
    steps: Count
    seconds: Duration
    loss: Finite | Literal["nan", "inf", "-inf"]
    correct: Count
    held_out: Annotated[int, Field(ge=1, lt=MOST_INTEGER)]
    parameters_equal: bool
    own_correct: NotRequired[list[Count]]  # of each rank by its own parameters, if they differ


class Error(TypedDict):
    """Why one rank failed."""

    event: Literal["error"]
    rank: Count
    message: str
    type: NotRequired[Text]


class ParityOfStep(TypedDict):
    """One step's exchanged gradients against the mean of the ranks' own; largest difference."""

    step: Count
    elements: Count
    relative_difference: Finite | Literal["inf"]
    allowed: Finite | Literal["inf"]
    holds: bool | None  # None: not proven
    not_proven: NotRequired[list[Text]]  # tensors of which no rank repeats its own gradients


class End(TypedDict):
    """How the run itself ended: status, checks, and what it counted in all."""

    event: Literal["end"]
    status: str
    checks: NotRequired[dict[Text, bool | None]]  # None: not proven, of parity alone
    samples: NotRequired[Count]
    signal: NotRequired[Text]
    reason: NotRequired[Text]
    parameters_sha256: NotRequired[Sha256]
    user_code: NotRequired[dict[Text, Sha256]]  # of modules imported after the start
    exchange_bytes: NotRequired[list[Count]]
    torch_settings_changed: NotRequired[list[Text]]  # while it was measured
    threads: NotRequired[list[Count]]  # by rank, as these
    load_1min: NotRequired[list[Finite]]
    steal_jiffies: NotRequired[list[Count | None]]
    busy_jiffies: NotRequired[list[Count | None]]
    idle_jiffies: NotRequired[list[Count | None]]
    own_jiffies: NotRequired[list[Count]]
    parity: NotRequired[list[ParityOfStep]]
    tcp_bytes: NotRequired[list[dict[Text, Count]]]
    peak_memory_bytes: NotRequired[list[Count]]
    peak_device_memory_bytes: NotRequired[list[Count | None]]
    flops_per_image: NotRequired[Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)] | None]
    sha256: NotRequired[Sha256]


class Exit(TypedDict):
    """How the launcher saw the run end, kept apart: a run may crash after complete data.

    `said` are lines that run and launcher printed, none if all went well; `oom_kills` processes
    that the launching machine's kernel killed for memory meanwhile; `session` stands for a
    scheduler's job where there was none.
    """

    event: Literal["exit"]
    code: Integer
    timed_out: NotRequired[bool]
    interrupted: NotRequired[bool]
    limit_s: NotRequired[Integer | Finite]
    wall_s: NotRequired[Integer | Finite]
    said: NotRequired[list[str]]
    oom_kills: NotRequired[Integer]
    session: NotRequired[Text]
    partner: NotRequired[Text]
    apart: NotRequired[Text]
    sha256: NotRequired[Sha256]


_AnyEvent = Annotated[
    Start | StepsEvent | BreakdownEvent | Exchanges | Window | Epoch | Error | End | Exit,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Any] = TypeAdapter(_AnyEvent, config=ConfigDict(extra="allow", strict=True))


class NoEvent(ValueError):
    """A line that is no JSON: torn by a kill, or by a full disk."""


class Damaged(ValueError):
    """A line of JSON that does not hold what its event promises."""


def parse(line: bytes) -> dict[str, Any]:
    """Parse one line as an event with at least the fields above. Raises NoEvent or Damaged."""
    try:
        event: dict[str, Any] = _EVENT.validate_json(line)
        return event
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
    if first_error["type"] == "json_invalid":
        raise NoEvent(str(first_error["ctx"]["error"]))
    location, value = ".".join(map(str, first_error["loc"])) or "event", repr(first_error["input"])
    shown = "" if first_error["type"] == "missing" else f"={value[:60]}{' ...' * (len(value) > 60)}"
    raise Damaged(f"{location}{shown}: {first_error['msg']}")
