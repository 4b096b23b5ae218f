"""Parts of a step, on a clock that stands still but where the step is told to take its time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NotRequired

import pytest
import torch
from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from bench.backends.protocol import Backend, Session
from bench.config import RunConfig, UsageError
from bench.instrument import trace
from bench.instrument.breakdown import Breakdown
from bench.record import SCHEMA, RunLog, read_run
from bench.record.events import PARTS
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.timing import Stopwatch


class _Named(TypedDict):
    """Metadata event of the trace event format: https://github.com/catapult-project/catapult."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    ph: Literal["M"]
    name: Literal["process_name", "thread_name"]
    pid: int
    tid: NotRequired[int]
    args: dict[str, str]


class _Span(TypedDict):
    """Complete event of that format; times in microseconds."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    ph: Literal["X"]
    name: str
    pid: int
    tid: int
    ts: Annotated[float, Field(ge=0)]
    dur: Annotated[float, Field(ge=0)]
    args: NotRequired[dict[str, Any]]


TRACE = TypeAdapter(list[Annotated[_Named | _Span, Field(discriminator="ph")]])


class _Clock:
    now = 100.0

    def spend(self, seconds: float) -> None:
        self.now += seconds


class _Slow(torch.autograd.Function):
    """Takes 2 s forward and 3 s backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, clock: _Clock) -> torch.Tensor:
        ctx.clock = clock
        clock.spend(2)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.clock.spend(3)
        return gradient, None


class _Network(torch.nn.Module):
    """The gradient of `late` is there 3 s after that of `early`."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self.late, self.early = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
        self.clock = clock

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slowed = _Slow.apply(self.late(x), self.clock)  # type: ignore[no-untyped-call]
        logits: torch.Tensor = self.early(slowed)
        return logits


@pytest.mark.parametrize(("micro_batches", "forward", "backward"), [(1, 2, 3), (2, 4, 6)])
def test_the_parts_of_a_step_are_all_of_it(
    micro_batches: int, forward: float, backward: float
) -> None:
    clock = _Clock()
    network = _Network(clock)

    class Exchanging(Session):
        def synchronize_gradients(self) -> None:
            clock.spend(5)

        def step(self) -> None:
            clock.spend(7)

    def batches() -> Iterator[Any]:
        while True:
            clock.spend(11)
            yield torch.ones(4, 4), torch.zeros(4, dtype=torch.long)

    config = RunConfig(batch_per_rank=4, accumulate=micro_batches)
    observer = Breakdown(network, Stopwatch(lambda: clock.now), micro_batches)
    data = Input(config, batches(), torch.device("cpu"))
    backend: Any = SimpleNamespace(wrap=lambda *wrapped: Exchanging(*wrapped[:2]))
    loop = Loop(config, backend, network, data, observer)
    for steps in (2, 1):  # each window's own
        begun = clock.now
        for _ in range(steps):
            loop.step()
            clock.spend(13)  # between steps, of which it takes no notice
        whole = 11 + forward + backward + 5 + 7
        assert observer.take() == {
            "begin": [begun + step * (whole + 13) for step in range(steps)],
            "input": [11] * steps,
            "forward": [forward] * steps,
            "backward": [backward] * steps,
            "exposed": [5] * steps,
            "optimiser": [7] * steps,
        }


def test_nothing_is_hooked_where_nothing_is_observed() -> None:
    network = torch.nn.Linear(2, 2)
    Loop(RunConfig(batch_per_rank=4), Backend(), network, data=None)  # type: ignore[arg-type]
    assert not any(p._post_accumulate_grad_hooks for p in network.parameters())
    Breakdown(network, Stopwatch(), 1)
    assert all(p._post_accumulate_grad_hooks for p in network.parameters())


def test_a_trace_has_every_part_of_every_step_of_every_rank(tmp_path: Path) -> None:
    config = RunConfig(backend="ddp", world_size=2, batch_per_rank=1, observe="breakdown")
    log = RunLog(tmp_path / "run.jsonl")
    host = {"ranks": [{"rank": rank, "hostname": "n1"} for rank in range(2)]}
    fields = {"config": config.model_dump(mode="json"), "host": host, "workload": {}}
    log.write("start", schema=SCHEMA, **fields)
    lasts = {part: [[0.5 * (i + 1)] * 2] * 2 for i, part in enumerate(PARTS)}
    for index, begin in enumerate((10.0, 40.0)):
        begins = [[begin, begin + 8], [begin + 1, begin + 9]]
        log.write("breakdown", phase="window", index=index, begin=begins, **lasts)
    trace.reserve(tmp_path / "new" / "trace.json")
    trace.write(tmp_path / "new" / "trace.json", read_run(tmp_path / "run.jsonl"))
    with pytest.raises(UsageError, match="File exists; choose another name"):
        trace.reserve(tmp_path / "new" / "trace.json")
    found = json.loads((tmp_path / "new" / "trace.json").read_text())
    TRACE.validate_python(found)
    named = {
        (e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in found if e["ph"] == "M"
    }
    assert named["process_name", 1, None] == "rank 1 on n1"
    assert named["thread_name", 1, 1] == "exchanges"
    of_rank = [e for e in found if e["ph"] == "X" and e["pid"] == 1]
    assert [e["name"] for e in of_rank[:6]] == ["step 0", *PARTS]
    assert [(e["ts"], e["dur"]) for e in of_rank[:3]] == [(11e6, 7.5e6), (11e6, 5e5), (11.5e6, 1e6)]
    assert [e["ts"] for e in of_rank if e["name"] == "step 3"] == [49e6]
