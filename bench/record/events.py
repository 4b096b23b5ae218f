"""Structure of a run log's events: required fields, checked strictly; more are allowed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

from bench.record.host import (
    MOST_INTEGER,
    Count,
    Duration,
    Finite,
    Host,
    Integer,
    Sha256,
    Share,
    Text,
    Wait,
)


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
    """Parts of every observed step in seconds, each [rank][step]."""

    event: Literal["breakdown"]
    phase: Literal["warmup", "lead_in", "window"]
    index: Count
    begin: list[list[Wait]]
    input: list[list[Wait]]
    forward: list[list[Wait]]
    backward: list[list[Wait]]
    exposed: list[list[Wait]]
    optimiser: list[list[Wait]]


class LoggedExchange(TypedDict):
    """One exchange as a framework noted it; `begin_s` is on the breakdown's clock."""

    name: str
    begin_s: Finite
    seconds: Wait
    bytes: Count


class Exchanges(TypedDict):
    """The exchanges of an observed run, [rank][exchange]."""

    event: Literal["exchanges"]
    ranks: list[list[LoggedExchange]]


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
    """One judged epoch: seconds of the slowest rank, without the judging."""

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
    first_loss: NotRequired[float | str | None]
    last_loss: NotRequired[float | str | None]
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
    cpu_mhz: NotRequired[list[Finite | None]]
    parity: NotRequired[list[ParityOfStep]]
    tcp_bytes: NotRequired[list[dict[Text, Count]]]
    peak_memory_bytes: NotRequired[list[Count]]
    peak_device_memory_bytes: NotRequired[list[Count | None]]
    flops_per_image: NotRequired[Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)] | None]
    sha256: NotRequired[Sha256]


class Exit(TypedDict):
    """How the launcher saw the run end."""

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
