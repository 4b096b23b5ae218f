"""The run log: what is written comes back, and only a log that proves completeness has no
problem.
"""

from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import RunConfig, UsageError
from bench.record import CHECKS, SCHEMA, RunLog, append_event, parse_run, read_run
from bench.record.events import PARTS
from tests.plots.logs import resealed

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONFIG = RunConfig(
    backend="ddp", world_size=2, batch_per_rank=8, warmup_steps=3, windows=2, steps_per_window=3
)
PASSED = dict.fromkeys(CHECKS, True)
RANKS = [{"rank": 0, "hostname": "n1", "pid": 7}, {"rank": 1, "hostname": "n2", "pid": 7}]

Entries = list[tuple[str, dict[str, Any]]]


def config(**fields: Any) -> dict[str, Any]:
    return {"config": {**CONFIG.model_dump(mode="json"), **fields}}


def events() -> Entries:
    """Make a complete run: windows of 0.75 and 1.25 s, 2 x 3 steps of 16 images, rank 1 slower."""
    host = {"ranks": RANKS}
    first, second = [[0.1, 0.2, 0.4], [0.25, 0.25, 0.25]], [[0.1, 0.2, 0.4], [0.25, 0.5, 0.5]]
    return [
        ("start", {"schema": SCHEMA, **config(), "host": host, "workload": {"x": 1}}),
        ("steps", {"phase": "warmup", "index": 0, "seconds": [[9.0] * 3, [8.0] * 3]}),
        ("steps", {"phase": "window", "index": 0, "seconds": first}),
        ("window", {"index": 0, "steps": 3, "seconds": 0.75, "input_seconds": [0.0, 0.75]}),
        ("steps", {"phase": "window", "index": 1, "seconds": second}),
        ("window", {"index": 1, "steps": 3, "seconds": 1.25, "input_seconds": [0.0, 0.5]}),
        ("end", {"status": "ok", "checks": PASSED, "samples": 9 * 16}),
    ]


def write(path: Path, entries: Entries) -> Path:
    log = RunLog(path)
    for event, fields in entries:
        log.write(event, **fields)
    return path


def changed(index: int, **fields: Any) -> Entries:
    entries = events()
    entries[index] = (entries[index][0], {**entries[index][1], **fields})
    return entries


def without(index: int) -> Entries:
    return [entry for i, entry in enumerate(events()) if i != index]


def with_more(start: dict[str, Any], end: dict[str, Any], more: Entries) -> Entries:
    """Make the log of a run that was asked for something else, with its further events."""
    first, *rest, last = events()
    return [(first[0], first[1] | start), *rest, *more, (last[0], last[1] | end)]


def test_a_complete_log_comes_back(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "sub" / "run.jsonl", events()))
    assert (run.problem, run.state, run.config) == (None, "ok", CONFIG)
    assert run.images_per_s == 16 * 6 / (0.75 + 1.25)
    assert run.window_seconds == [0.75, 1.25]
    assert run.step_seconds() == [[0.1, 0.2, 0.4] * 2, [0.25, 0.25, 0.25, 0.25, 0.5, 0.5]]
    assert run.step_seconds("warmup") == [[9.0] * 3, [8.0] * 3]
    assert run.hosts == ("n1", "n2")


UNPROVEN = {**PASSED, "parity": None}
STEP = {"step": 2, "elements": 8, "relative_difference": "inf", "allowed": 1e-3, "holds": None}
NAMED = [{**STEP, "not_proven": ["b", "a"]}]
SPLIT: dict[str, Any] = {p: [[0.0] * 3] * 2 for p in ("begin", *PARTS)}
SEEN = [("breakdown", {"phase": "window", "index": i, **SPLIT}) for i in range(2)]
HALF = ("breakdown", {**SEEN[1][1], "exposed": [[0.0] * 3]})
LED_IN = [("steps", {"phase": "lead_in", "index": i, "seconds": [[0.5]] * 2}) for i in range(2)]
LED, LED_SAMPLES = config(lead_in_steps=1), {"samples": 11 * 16}
BOOM = ("error", {"rank": 1, "message": "boom"})
STOPPED = ("end", {"status": "interrupted", "signal": "SIGINT"})
FAILED = "failed checks: "
LONG = {"ranks": [{"rank": 0, "hostname": "x" * 1_000_000}]}


@pytest.mark.parametrize(
    ("entries", "state", "words"),
    [
        (events()[:-1], "running", "no end event"),
        ([*events()[:-1], STOPPED], "interrupted", "stopped by SIGINT"),
        ([*events()[:3], BOOM, ("end", {"status": "interrupted"})], "failed", "rank 1: boom"),
        (changed(6, status="failed: "), "failed", "no reason given"),
        # what the start says
        (without(0), "failed", "no usable start event"),
        (changed(0, schema=SCHEMA + 1), "failed", f"schema {SCHEMA + 1}, and this version reads"),
        (changed(0, **config(batch_per_rank=None)), "failed", "give exactly one of global_batch"),
        (changed(0, **config(precison="bf16")), "failed", "unknown key 'precison'; did you mean"),
        (changed(0, **config(augment=False)), "failed", "config.augment=False is of version 1.0.0"),
        (changed(0, host={"ranks": RANKS[:1]}), "wrong world", "of ranks 0, asked for 0 to 1"),
        (changed(0, host={"ranks": [RANKS[0]] * 2}), "wrong world", "of ranks 0, 0, asked for"),
        (changed(0, **config(rendezvous_dir="/shared", download=False)), "ok", "None"),
        (changed(0, **config(launch=10**30)), "failed", "config.launch=1"),
        (changed(0, **config(nesterov=1)), "failed", "config.nesterov=1: should be a valid"),
        (changed(0, schema=True), "failed", "start.schema=True"),
        (changed(0, host=LONG), "failed", "start.host.ranks.0.hostname='xxx"),
        # what was measured
        (changed(3, seconds="1.5"), "failed", "window.seconds='1.5'"),
        (changed(3, seconds=1e308), "failed", "window.seconds=1e+308"),
        (changed(3, input_seconds=[-0.1, 0.1]), "failed", "window.input_seconds.0=-0.1"),
        ([*events()[:3], ("pair", {}), *events()[3:]], "failed", "damaged log: line 4"),
        (without(3), "failed", "1 windows of 2"),
        (changed(3, steps=2), "failed", "has not 3 steps"),
        (changed(3, seconds=0.0), "failed", "damaged log: line 4: window.seconds=0.0: "),
        (changed(3, seconds=0.81), "failed", "0.81 s, and the steps of its slowest rank 0.75 s"),
        (changed(3, seconds=0.69), "failed", "0.69 s, and the steps of its slowest rank 0.75 s"),
        (changed(3, seconds=0.76), "ok", "None"),
        (changed(3, input_seconds=[0.1]), "failed", "input_seconds of some rank are missing"),
        ([*events()[:4], *events()[2:]], "failed", "3 windows of 2"),
        (without(4), "failed", "steps of some window are missing"),
        (changed(4, seconds=[[0.1, 0.2, 0.4]]), "failed", "steps of some rank"),
        # what the end proves
        (changed(6, checks={"parity": 1}), "failed", "end.checks.parity=1"),
        (changed(6, samples=160), "failed", "160 samples, where 9 steps of 16 are 144"),
        (changed(6, checks={**PASSED, "loss_finite": False}), "failed", f"{FAILED}loss_finite"),
        (changed(6, checks={"loss_finite": True}), "failed", f"{FAILED}samples_per_step, torch_"),
        (changed(6, checks=UNPROVEN, parity=NAMED), "ok", "None"),
        (changed(6, checks=UNPROVEN, parity=[STEP]), "failed", f"{FAILED}parity"),
        (changed(6, checks={**PASSED, "parity": False}, parity=NAMED), "failed", FAILED),
        (changed(6, checks={**PASSED, "loss_finite": None}), "failed", f"{FAILED}loss_finite"),
        # what was asked for decides what a log must show
        (with_more(config(exchange="off"), {}, []), "failed", f"{FAILED}parameters_differ"),
        (
            with_more(config(exchange="off"), {"checks": PASSED | {"parameters_differ": True}}, []),
            "ok",
            "None",
        ),
        (with_more(config(observe="breakdown"), {}, SEEN), "ok", "None"),
        (
            with_more(config(observe="breakdown"), {}, SEEN[:1]),
            "failed",
            "breakdown of some window",
        ),
        (with_more(config(observe="breakdown"), {}, [SEEN[0], HALF]), "failed", "of some rank are"),
        (with_more({}, {}, SEEN), "failed", "breakdown of some window are missing, or there twice"),
        (with_more(LED, LED_SAMPLES, LED_IN), "ok", "None"),
        (
            with_more(LED, LED_SAMPLES, LED_IN[:1]),
            "failed",
            "the steps of some lead_in are missing",
        ),
        (with_more(config(epochs=2, dataset="digits"), {}, []), "failed", "0 trainings of 1"),
    ],
)
def test_a_log_says_what_it_proves_and_what_it_lacks(
    tmp_path: Path, entries: Entries, state: str, words: str
) -> None:
    run = read_run(write(tmp_path / "run.jsonl", entries))
    assert run.state == state
    assert words in str(run.problem)
    assert len(str(run.problem)) <= 1000
    assert run.parity_not_proven in ([], ["a", "b"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write(tmp_path_factory.mktemp("log") / "run.jsonl", events())
    append_event(path, "exit", code=0, wall_s=4, said=['a "quote"', "é"])
    return path.read_bytes()


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_a_log_that_was_damaged_or_edited_is_refused(whole: bytes, data: st.DataObject) -> None:
    """Change or drop bytes or lines anywhere: no such log is ok, and each says why in a line."""
    assert parse_run(Path("x"), whole).problem is None
    lines = whole.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(whole) - 2))
    n = data.draw(st.integers(0, len(lines) - 2))  # the exit may be missing
    forms = [
        whole[:at] + (b"1" if whole[at : at + 1] != b"1" else b"2") + whole[at + 1 :],
        whole[:at] + whole[at + 1 :],
        whole[:at] + b"\xff" + whole[at:],
        b"".join([*lines[:n], *lines[n + 1 :]]),
        b"".join([*lines[: n + 1], *lines[n:]]),
        b"".join([*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]]),
    ]
    damaged = data.draw(st.sampled_from(forms))
    run = parse_run(Path("x"), damaged)
    assert run.state != "ok"
    assert run.problem
    assert "\n" not in run.problem


def test_a_log_that_failed_keeps_its_cause_when_it_was_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [*events()[:3], BOOM, ("end", {"status": "failed: x"})])
    run = parse_run(path, path.read_bytes().replace(b'"pid": 7', b'"pid": 8'))
    assert (run.state, run.problem) == ("failed", "rank 1: boom")


def test_what_is_not_finite_is_strict_json(tmp_path: Path) -> None:
    infinite = [float("inf"), {"a": -float("inf")}]
    losses = {"first_loss": float("nan"), "last_loss": infinite}
    path = write(tmp_path / "run.jsonl", changed(6, status="failed: loss_finite", **losses))
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["first_loss"], last["last_loss"]) == ("nan", ["inf", {"a": "-inf"}])


OLD = [(FIXTURES / f"run-schema-{schema}.jsonl").read_bytes() for schema in range(6, SCHEMA)]


def test_logs_of_older_schemas_are_ok_but_not_with_two_ends() -> None:
    runs = [parse_run(Path("x"), text) for text in OLD]
    assert {(run.state, run.problem) for run in runs} == {("ok", None)}
    config_16, config_17 = (run.config for run in runs[-2:])
    assert config_16 is not None
    assert config_17 is not None
    assert config_16.arm == "slow-fast", "its arm and its variant"
    assert config_17.launch == 3, "which was its block"
    twice = resealed(OLD[0] + OLD[0].splitlines()[-2] + b"\n")
    assert parse_run(Path("x"), twice).problem == "damaged log: 2 end events"


def test_a_torn_line_is_not_an_event_and_swallows_nothing_after_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", events()[:5])
    with path.open("a") as file:
        file.write('{"event": "window", "ind')
    append_event(path, "exit", code=137, timed_out=False)
    run = read_run(path)
    assert (len(run.windows), run.exit["code"]) == (1, 137)
    assert run.problem == "exit code 137: no end event"


def test_nothing_follows_the_end_and_a_run_may_keep_no_log(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.jsonl")
    log.write("end", status="ok")
    log.write("end", status="interrupted")
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 1
    RunLog(None).write("end", status="ok")


def test_an_end_that_the_disk_did_not_take_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may say so only when it is asked to keep what it has taken."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "run.jsonl"
    log = RunLog(path)
    for event, fields in events()[:-1]:
        log.write(event, **fields)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=str(path)):
        log.write("end", **events()[-1][1])


def test_a_line_that_is_written_in_part_is_an_error_with_its_path(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    log = RunLog(path := tmp_path / "run.jsonl")
    log.write("start", **events()[0][1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"):
            log.write("end", status="ok")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write("end", status="failed: x")  # on a line of its own, below the torn one
    assert read_run(path).end["status"] == "failed: x"


def test_what_is_in_the_way_of_a_log_is_said_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path, words in {
        Path(): "exists and is never overwritten; choose another name",
        tmp_path / "file": "exists and is never overwritten",
        Path("/proc/x/y"): "cannot be written: ",
    }.items():
        with pytest.raises(UsageError, match=words):
            RunLog(path)
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(UsageError, match="No such file"):
        read_run(tmp_path / "nowhere.jsonl")
