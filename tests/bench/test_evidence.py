"""What frameworks say of their own exchanges: Horovod's timeline read, and both in real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.backends.hvd_timeline import evidence, parse
from bench.record import read_run
from tests.bench import ranks
from tests.bench.test_instrument import TRACE


def tensor(pid: int, name: str, begin: float, shape: str, *inner: tuple[str, float, float]) -> Any:
    """A tensor's exchange as Horovod writes it: its parts, begun and ended inside of it."""
    yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
    yield {"ph": "B", "name": "ALLREDUCE", "ts": begin, "pid": pid}
    for part, start, end in inner:
        yield {"ph": "B", "name": part, "ts": start, "pid": pid}
        yield {"ph": "E", "ts": end, "pid": pid}
    last = max(end for _, _, end in inner)
    yield {"ph": "E", "ts": last, "pid": pid, "args": {"dtype": "float32", "shape": shape}}


TIMELINE = [
    {},
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1}},
    *tensor(1, "allreduce.bench.clock", 900, "[1]", ("MPI_ALLREDUCE", 950, 1000)),
    # two gradients in one exchange
    *tensor(
        2, "allreduce.fc.weight", 2000, "[10, 5]",
        ("MEMCPY_IN_FUSION_BUFFER", 2000, 2100), ("MPI_ALLREDUCE", 2101, 3100),
    ),
    *tensor(
        3, "allreduce.fc.bias", 2000, "[10]",
        ("MEMCPY_IN_FUSION_BUFFER", 2001, 2100), ("MPI_ALLREDUCE", 2102, 3100),
    ),
    *tensor(4, "allreduce.conv1.weight", 4000, "[3]", ("MPI_ALLREDUCE", 4000, 5000)),
]  # fmt: skip


def test_exchanges_of_a_timeline_on_our_clock() -> None:
    found = evidence(TIMELINE, clock_s=50.0, steps=2)
    assert [(x.name, x.bytes) for x in found.exchanges] == [
        ("all-reduce of 2 gradients", 240),
        ("all-reduce of 1 gradients", 12),
    ]
    first, second = found.exchanges
    assert first.begin_s == pytest.approx(50.0 + 1101e-6)
    assert first.seconds == pytest.approx(999e-6)
    assert second.begin_s == pytest.approx(50.003)
    assert found.seconds["MPI_ALLREDUCE"] == pytest.approx((999e-6 + 1000e-6) / 2), "a step's mean"
    assert found.seconds["MEMCPY_IN_FUSION_BUFFER"] == pytest.approx(50e-6), "joined, not summed"


def test_without_the_mark_of_our_clock_nothing_is_said() -> None:
    assert evidence(TIMELINE[8:], clock_s=50.0, steps=2).exchanges == ()


@pytest.mark.parametrize("torn", ["", ",", ',\n{"ph": "B", "na'])
def test_a_timeline_without_an_end_is_read(torn: str) -> None:
    text = "[\n" + ",\n".join(map(json.dumps, TIMELINE)) + torn
    assert parse(text) == TIMELINE[1:]
    assert parse("") == []


@pytest.mark.parametrize(
    "cell",
    ["ddp/mpi", "horovod/mpi"],
)
def test_a_run_logs_what_its_framework_says(cell: str, tmp_path: Path) -> None:
    backend, transport = cell.split("/")
    log, trace = tmp_path / "run.jsonl", tmp_path / "trace.json"
    words = ["--backend", backend, "--transport", transport, "--world-size", "2"]
    words += ["--model", "tests.bench.tiny:normalised", "--dataset", "digits", "--image-size", "32"]
    words += ["--batch-per-rank", "8", "--warmup-steps", "3", "--windows", "2"]
    words += ["--steps-per-window", "3", "--observe", "framework"]
    done = ranks.bench(2, *words, "--log-path", str(log), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    run = read_run(log)
    assert run.state == "ok"
    said = run.end["evidence"][0]
    assert all(seconds > 0 for seconds in said.values())
    wanted = {"ddp": "backward_comm", "horovod": f"{transport.upper()}_ALLREDUCE"}[backend]
    assert wanted in said
    (exchanges,) = (event["ranks"] for event in run.events if event["event"] == "exchanges")
    steps = [e for e in run.events if e["event"] == "breakdown"]
    begin, end = steps[0]["begin"][0][0], steps[-1]["begin"][0][-1]
    inside = [x for x in exchanges[0] if begin < x["begin_s"] < end]
    assert len(inside) >= 8, "one a step or more, on the clock of the steps"
    # eight whole steps; the two clocks are matched well enough to lose one at the edges at most
    assert sum(x["bytes"] for x in inside) >= 7 * 8520, "all gradients of every step"
    TRACE.validate_json(trace.read_bytes())
    drawn = [e for e in json.loads(trace.read_text()) if e.get("tid") == 1 and e["ph"] == "X"]
    assert {e["pid"] for e in drawn} == ({0, 1} if backend == "ddp" else {0})
    assert {"name", "ts", "dur", "args"} <= drawn[0].keys()
