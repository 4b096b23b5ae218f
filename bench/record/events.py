"""Structure of a run log's events. Only the fields listed here are checked; more may be there."""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONDecodeError
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

MOST_INTEGER = 2**63
Integer = Annotated[int, Field(gt=-MOST_INTEGER, lt=MOST_INTEGER)]
Count = Annotated[int, Field(ge=0, lt=MOST_INTEGER)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# Sums and quotients stay finite: no clock tells less than a nanosecond, no run lasts 30 years.
Duration = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Rank(TypedDict, total=False):
    """What one rank recorded of itself."""

    rank: Required[Count]
    hostname: Required[str]
    boot_id: str | None  # of the kernel, which nodes of one machine share
    pid: Count


def machine_of(rank: Mapping[str, Any]) -> str:
    """Return an id of a rank's machine: its boot_id if logged, else its hostname."""
    return str(rank.get("boot_id") or rank["hostname"])


class Host(TypedDict, total=False):
    """Provenance of a run; `ranks` is absent if the launcher started a wrong number of ranks."""

    ranks: list[Rank]
    job: dict[str, str]  # the scheduler's variables
    turns: dict[str, Any]  # launch, turn and worlds: a place among those started together


class Start(TypedDict):
    """A run's configuration, provenance and workload, written before anything is measured."""

    event: Literal["start"]
    schema: Annotated[int, Field(ge=1, lt=MOST_INTEGER)]
    config: dict[str, Any]  # checked as a RunConfig
    host: Host
    workload: dict[str, str | bool | Integer | Finite | None]


class StepsEvent(TypedDict):
    """Seconds of every step of the warm-up, of a lead-in or of a window, shape [rank][step]."""

    event: Literal["steps"]
    phase: Literal["warmup", "lead_in", "window"]
    index: Count
    seconds: list[list[Duration]]


class BreakdownEvent(TypedDict):
    """Seconds of the parts of observed steps, by [rank][step]; the parts follow one another.

    `begin` is when the step starts: by the host's clock on CPUs, by the rank's own clock on GPUs.
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
    """A framework's own record of its exchanges, which only versions until 1.0 wrote."""

    event: Literal["exchanges"]


# of a step, in the order in which they follow one another from its beginning on
PARTS = ("input", "forward", "backward", "exposed", "optimiser")


class Window(TypedDict):
    """One timed window; `seconds` is the slowest rank's, and lists hold one value for each rank."""

    event: Literal["window"]
    index: Count
    steps: Count
    seconds: Duration
    input_seconds: list[Wait]
    busy_share: NotRequired[list[Share | None]]


class Epoch(TypedDict):
    """One epoch: slowest rank's `seconds`, mean `loss`, and `correct` among `held_out` images."""

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
    type: NotRequired[str]


class End(TypedDict, total=False):
    """A run's own record of its end: status, checks, counts. Lists are by rank, except `parity`."""

    event: Required[Literal["end"]]
    status: Required[str]
    checks: dict[str, bool | None]  # None: not proven, of parity alone
    samples: Count
    signal: str
    reason: str
    parity: list[dict[str, Any]]  # of a step: not_proven are tensors that could not be compared


class Exit(TypedDict, total=False):
    """How the driver (slurm/driver) saw the run end: a run may crash after its own `end` event.

    `said` has lines that run and launcher printed; it is empty if all went well. `oom_kills` counts
    processes that the driver's kernel killed for lack of memory during the run. Outside Slurm, runs
    of one execution of a study share a `session`. On `partner` and `apart` see bench.record.
    """

    event: Required[Literal["exit"]]
    code: Required[Integer]
    timed_out: bool
    interrupted: bool
    limit_s: Integer | Finite
    wall_s: Integer | Finite
    said: list[str]
    oom_kills: Integer
    session: str
    partner: str
    apart: str


_AnyEvent = Annotated[
    Start | StepsEvent | BreakdownEvent | Exchanges | Window | Epoch | Error | End | Exit,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Any] = TypeAdapter(
    _AnyEvent, config=ConfigDict(extra="allow", strict=True, str_max_length=2**17)
)


class Damaged(ValueError):
    """A line that is no event, or has a field missing or of a wrong type."""


def parse(line: bytes) -> dict[str, Any]:
    """Parse one line as one of this module's events; fields beyond those listed are kept.

    Raises JSONDecodeError if the line is no JSON, as after a kill; Damaged if it is no event.
    """
    try:
        event: dict[str, Any] = _EVENT.validate_json(line)
        return event
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        raise JSONDecodeError(str(first["ctx"]["error"]), "", 0)
    location, value = ".".join(map(str, first["loc"])) or "event", repr(first["input"])
    shown = "" if first["type"] == "missing" else f"={value[:60]}{' ...' * (len(value) > 60)}"
    raise Damaged(f"{location}{shown}: {first['msg']}")
