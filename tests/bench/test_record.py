"""The run log: what is written comes back, and only a log that proves completeness has no
problem.
"""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, UsageError
from bench.record import READABLE, SCHEMA, RunLog, append_event, parse_run, proof, read_run
from bench.record.events import PARTS
from tests.plots.logs import resealed

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONFIG = RunConfig(
    backend="ddp", world_size=2, batch_per_rank=8, warmup_steps=3, windows=2, steps_per_window=3
)
CHECKS = dict.fromkeys(
    (
        *("samples_per_step", "torch_settings_kept"),
        *("loss_finite", "parameters_equal", "loss_bounded", "parity"),
    ),
    True,
)
RANKS = [{"rank": 0, "hostname": "n1", "pid": 7}, {"rank": 1, "hostname": "n2", "pid": 7}]


Entries = list[tuple[str, dict[str, Any]]]


def events() -> Entries:
    """Make a complete run: windows of 0.75 and 1.25 s, 2 x 3 steps of 16 images, rank 1 slower."""
    config = CONFIG.model_dump(mode="json")
    host = {"ranks": RANKS}
    first, second = [[0.1, 0.2, 0.4], [0.25, 0.25, 0.25]], [[0.1, 0.2, 0.4], [0.25, 0.5, 0.5]]
    return [
        ("start", {"schema": SCHEMA, "config": config, "host": host, "workload": {"x": 1}}),
        ("steps", {"phase": "warmup", "index": 0, "seconds": [[9.0] * 3, [8.0] * 3]}),
        ("steps", {"phase": "window", "index": 0, "seconds": first}),
        ("window", {"index": 0, "steps": 3, "seconds": 0.75, "input_seconds": [0.0, 0.75]}),
        ("steps", {"phase": "window", "index": 1, "seconds": second}),
        ("window", {"index": 1, "steps": 3, "seconds": 1.25, "input_seconds": [0.0, 0.5]}),
        ("end", {"status": "ok", "checks": CHECKS, "samples": 9 * 16}),
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


def test_a_complete_log_comes_back(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "sub" / "run.jsonl", events()))
    assert run.problem is None
    assert run.state == "ok"
    assert run.config == CONFIG
    assert run.images_per_s == 16 * 6 / (0.75 + 1.25)
    assert run.window_seconds == [0.75, 1.25]
    assert run.step_seconds() == [[0.1, 0.2, 0.4] * 2, [0.25, 0.25, 0.25, 0.25, 0.5, 0.5]]
    assert run.step_seconds("warmup") == [[9.0] * 3, [8.0] * 3]
    assert run.hosts == ("n1", "n2")


STEP = {"step": 2, "elements": 8, "relative_difference": "inf", "allowed": 1e-3, "holds": None}


@pytest.mark.parametrize(
    ("parity", "names", "usable"),
    [
        ([{**STEP, "not_proven": ["b", "a"]}], ["a", "b"], True),
        ([{**STEP, "not_proven": []}], [], False),
        ([], [], False),
    ],
)
def test_a_parity_that_is_not_proven_needs_the_names_of_its_tensors(
    parity: list[dict[str, Any]], names: list[str], usable: bool, tmp_path: Path
) -> None:
    unproven = changed(-1, checks={**CHECKS, "parity": None}, parity=parity)
    run = read_run(write(tmp_path / "run.jsonl", unproven))
    assert run.parity_not_proven == names
    assert run.problem == (None if usable else "failed checks: parity")
    false = changed(-1, checks={**CHECKS, "parity": False}, parity=parity)
    assert read_run(write(tmp_path / "b.jsonl", false)).problem == "failed checks: parity"


SLOWEST = "s, and the steps of its slowest rank 0.75 s"
NO_BATCH = {**CONFIG.model_dump(mode="json"), "batch_per_rank": None}
READS = f"this version reads {READABLE[0]} to {SCHEMA}"
UNKNOWN = f"no usable start event: schema {SCHEMA + 1}, and {READS}"
TOO_FEW = "failed checks: samples_per_step, torch_settings_kept, parameters_equal, loss_bounded, "
TOO_FEW += "parity"
BOOM = ("error", {"rank": 1, "message": "boom"})


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (events()[1:], "no usable start event"),
        (changed(0, schema=SCHEMA + 1), UNKNOWN),
        (changed(0, config=NO_BATCH), "give exactly one of global_batch"),
        ([e for i, e in enumerate(events()) if i != 3], "1 windows of 2"),
        (changed(3, steps=2), "has not 3 steps"),
        (changed(3, seconds=0.0), "damaged log: line 4: window.seconds=0.0: "),
        (changed(3, seconds=1.0), f"window 0 lasted 1.0 {SLOWEST}"),
        (changed(3, seconds=0.7), f"window 0 lasted 0.7 {SLOWEST}"),
        (changed(3, input_seconds=[0, 0.76]), "window 0 lasted 0.75 s, and a rank waited longer"),
        ([*events()[:4], events()[2], *events()[4:]], "missing, or there twice"),
        (changed(6, samples=160), "160 samples, where 9 steps of 16 are 144"),
        (changed(4, seconds=[[0.1, 0.2, 0.4]]), "steps of some rank"),
        ([e for i, e in enumerate(events()) if i != 4], "steps of some window"),
        (changed(6, checks={**CHECKS, "loss_finite": False}), "failed checks: loss_finite"),
        (changed(6, checks={"loss_finite": True}), TOO_FEW),
        (changed(6, status="failed: "), "no reason given"),
        ([*events()[:3], BOOM, ("end", {"status": "interrupted"})], "rank 1: boom"),
    ],
)
def test_an_incomplete_log_says_why(tmp_path: Path, entries: Entries, words: str) -> None:
    run = read_run(write(tmp_path / "run.jsonl", entries))
    assert words in str(run.problem)
    assert run.state == "failed"


OFF = {"config": {**CONFIG.model_dump(mode="json"), "exchange": "off"}}
OBSERVED = {"config": {**CONFIG.model_dump(mode="json"), "observe": "breakdown"}}
DIFFER = {"checks": {**CHECKS, "parameters_differ": True}}
SPLIT: dict[str, Any] = {p: [[0.0] * 3] * 2 for p in ("begin", *PARTS)}
SEEN = [("breakdown", {"phase": "window", "index": i, **SPLIT}) for i in range(2)]
LED = {"config": {**CONFIG.model_dump(mode="json"), "lead_in_steps": 1}}
LED_IN = [("steps", {"phase": "lead_in", "index": i, "seconds": [[0.5]] * 2}) for i in range(2)]
TRAINED = {"samples": RunConfig.model_validate(LED["config"]).steps * CONFIG.samples_per_step}
HALF = ("breakdown", {**SEEN[1][1], "exposed": [[0.0] * 3]})


@pytest.mark.parametrize(
    ("start", "end", "more", "problem"),
    [
        (OFF, {}, [], "failed checks: parameters_differ"),
        (OFF, DIFFER, [], None),
        (OBSERVED, {}, SEEN, None),
        (OBSERVED, {}, SEEN[:1], "the breakdown of some window is missing, or there twice"),
        (OBSERVED, {}, [SEEN[0], HALF], "the breakdown of some rank is missing"),
        ({}, {}, SEEN, "the breakdown of some window is missing, or there twice"),
        (LED, TRAINED, LED_IN, None),
        (LED, TRAINED, LED_IN[:1], "the lead-in of some window is missing, or there twice"),
        ({}, {}, LED_IN, "the lead-in of some window is missing, or there twice"),
    ],
)
def test_what_was_asked_for_decides_what_a_log_must_show(
    tmp_path: Path, start: dict[str, Any], end: dict[str, Any], more: Entries, problem: str | None
) -> None:
    first, *rest, last = events()
    entries = [(first[0], first[1] | start), *rest, *more, (last[0], last[1] | end)]
    assert read_run(write(tmp_path / "run.jsonl", entries)).problem == problem


STOPPED = ("end", {"status": "interrupted", "signal": "SIGINT"})


@pytest.mark.parametrize(
    ("entries", "state", "words"),
    [
        (events()[:-1], "running", "no end event"),
        (
            changed(0, host={"ranks": [RANKS[0], RANKS[0]]}),
            "wrong world",
            "provenance of ranks 0, 0, asked for 0 to 1",
        ),
        (changed(0, host={"ranks": RANKS[:1]}), "wrong world", "of 1 ranks, asked for 2"),
        ([*events()[:-1], STOPPED], "interrupted", "stopped by SIGINT"),
    ],
)
def test_what_did_not_fail_has_a_state_of_its_own(
    tmp_path: Path, entries: Entries, state: str, words: str
) -> None:
    run = read_run(write(tmp_path / "run.jsonl", entries))
    assert words in str(run.problem)
    assert run.state == state


def test_a_torn_line_is_not_an_event_and_swallows_nothing_after_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", events()[:5])
    with path.open("a") as file:
        file.write('{"event": "window", "ind')
    append_event(path, "exit", code=137, timed_out=False)
    run = read_run(path)
    assert len(run.windows) == 1
    assert run.exit["code"] == 137
    assert not [line for line in path.read_text().splitlines() if not line]


def test_nothing_follows_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = RunLog(path)
    log.write("end", status="ok")
    log.write("end", status="interrupted")
    assert len(path.read_text().splitlines()) == 1


def complete(path: Path) -> Path:
    append_event(write(path, events()), "exit", code=0, wall_s=4, said=['a "quote"', "é"])
    return path


def test_any_other_byte_makes_a_log_unusable(tmp_path: Path) -> None:
    """Every third byte, as a digit or a letter it was not: no such log is ok."""
    text = complete(tmp_path / "run.jsonl").read_bytes()
    assert parse_run(Path("x"), text).problem is None
    problems = set()
    for at in range(0, len(text) - 1, 3):
        other = b"1" if text[at : at + 1] != b"1" else b"2"
        run = parse_run(Path("x"), text[:at] + other + text[at + 1 :])
        assert run.state != "ok", at
        assert run.problem, at
        problems.add(run.problem)
    changed = "the log was changed after it was written: the digest in its"
    assert {f"{changed} {event} does not fit" for event in ("end", "exit")} <= problems


def test_a_log_that_failed_keeps_its_cause_when_it_was_changed(tmp_path: Path) -> None:
    end = ("end", {"status": "failed: x"})
    path = write(tmp_path / "run.jsonl", [*events()[:3], BOOM, end])
    run = parse_run(path, path.read_bytes().replace(b'"pid": 7', b'"pid": 8'))
    assert (run.state, run.problem) == ("failed", "rank 1: boom")


def test_what_is_not_finite_is_strict_json_and_says_why_the_run_failed(tmp_path: Path) -> None:
    infinite = [float("inf"), {"a": -float("inf")}]
    losses = {"first_loss": float("nan"), "last_loss": infinite}
    path = write(tmp_path / "run.jsonl", changed(6, status="failed: loss_finite", **losses))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    last = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()][-1]
    assert (last["first_loss"], last["last_loss"]) == ("nan", ["inf", {"a": "-inf"}])
    run = parse_run(path, path.read_bytes().replace(b'["inf", {"a": "-inf"}]', b'"inf"'))
    assert run.problem == "loss_finite"


OLD = [(FIXTURES / f"run-schema-{schema}.jsonl").read_bytes() for schema in READABLE[:-1]]


@pytest.mark.parametrize("text", OLD)
def test_real_logs_of_older_schemas_are_ok(text: bytes) -> None:
    run = parse_run(Path("x"), text)
    assert (run.state, run.problem) == ("ok", None)


def test_an_arm_and_a_variant_of_older_schemas_are_one_arm() -> None:
    run = parse_run(Path("x"), OLD[-2])
    assert run.config is not None
    assert run.config.arm == "slow-fast"
    last = parse_run(Path("x"), OLD[-1]).config
    assert last is not None
    assert last.launch == 3  # which was its block


def in_event(text: bytes, name: str, **fields: Any) -> bytes:
    """Give the first event of that name other fields, and digests that fit."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f'{{"event": "{name}"'.encode()))
    event = json.loads(lines[at])
    event = {k: v(event[k]) if callable(v) else v for k, v in {**event, **fields}.items()}
    lines[at] = json.dumps(event).encode()
    return resealed(b"\n".join(lines) + b"\n")


def rank_0(**facts: object) -> Any:
    return lambda host: {**host, "ranks": [{**host["ranks"][0], **facts}, *host["ranks"][1:]]}


def config_with(**fields: object) -> Any:
    return lambda config: {**config, **fields}


@pytest.mark.parametrize(
    ("event", "fields", "words"),
    [
        ("window", {"seconds": "1.5"}, "window.seconds='1.5'"),
        ("window", {"seconds": 1e308}, "window.seconds=1e+308"),
        ("window", {"seconds": 1e-320}, "window.seconds=1e-320"),
        ("window", {"input_seconds": [-0.1, 0.1]}, "window.input_seconds.0=-0.1"),
        ("start", {"schema": True}, "start.schema=True"),
        ("start", {"host": rank_0(hostname=["n1"])}, "start.host.ranks.0.hostname=['n1']"),
        ("start", {"host": rank_0(cpu="x" * 1_000_000)}, "start.host.ranks.0.cpu='xxx"),
        ("start", {"config": config_with(block=10**30)}, "config.launch is beyond any real one"),
        ("start", {"config": config_with(augment=1)}, "config.augment=1, which a log has as True"),
        ("end", {"checks": {"samples_per_step": 1}}, "end.checks.samples_per_step=1"),
        ("end", {"status": None}, "end.status=None: Input should be a valid string"),
        ("exit", {"said": [1]}, "exit.said.0=1"),
    ],
)
def test_a_value_of_the_wrong_type_makes_an_old_log_unusable(
    event: str, fields: dict[str, Any], words: str
) -> None:
    run = parse_run(Path("x"), in_event(OLD[0], event, **fields))
    assert run.state == "failed"
    assert words in str(run.problem)
    assert len(str(run.problem)) <= 1000
    assert "\n" not in str(run.problem)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text + b'{"event": "pair"}\n', "damaged log: line"),
        (lambda text: text + text.splitlines()[-2] + b"\n", "2 end events"),
        (lambda text: text.splitlines()[0] + b"\n" + text, "2 start events"),
    ],
)
def test_an_old_log_that_contradicts_itself_is_unusable(
    change: Callable[[bytes], bytes], words: str
) -> None:
    run = parse_run(Path("x"), resealed(change(OLD[0])))
    assert run.state == "failed"
    assert words in str(run.problem)


def test_a_window_is_as_long_as_its_steps_but_for_a_moment_at_its_edges() -> None:
    """A GPU's own clock may differ from the host's by a percent. On the CPU the clock is one, so
    the steps are never longer than their window.
    """
    assert missing(CONFIG, 0.754) is None
    assert missing(CONFIG, 0.81) == f"window 0 lasted 0.81 {SLOWEST}"
    assert missing(CONFIG, 0.7499) is not None
    gpu = CONFIG.model_copy(update={"device": "cuda", "transport": "nccl"})
    assert missing(gpu, 0.754) is None
    assert missing(gpu, 0.745) is None
    assert missing(gpu, 0.81) is not None


def missing(config: RunConfig, seconds: float) -> str | None:
    return proof.missing(config, SCHEMA, as_events(changed(3, seconds=seconds)))


def as_events(entries: Entries) -> list[dict[str, Any]]:
    return [{"event": name, **fields} for name, fields in entries]


@pytest.mark.parametrize(("check", "since"), [("torch_settings_kept", 9)])
def test_older_logs_need_not_show_what_was_not_checked(check: str, since: int) -> None:
    entries = changed(6, checks={k: v for k, v in CHECKS.items() if k != check})
    assert proof.missing(CONFIG, since - 1, as_events(entries)) is None
    assert proof.missing(CONFIG, since, as_events(entries)) == f"failed checks: {check}"


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


@pytest.mark.parametrize("room", [0, 40])
def test_a_line_that_is_written_in_part_is_an_error_with_its_path(
    tmp_path: Path, room: int
) -> None:
    """A limit on the size of files stands for the disk."""
    log = RunLog(path := tmp_path / "run.jsonl")
    log.write("start", **events()[0][1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"):
            log.write("end", status="ok")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write("end", status="failed: x")  # on a line of its own, below the torn one
    assert read_run(path).end["status"] == "failed: x"


def test_what_is_no_log_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="no regular file"):  # and it is not waited for
        read_run(tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="No such file"):
        read_run(tmp_path / "nowhere.jsonl")
    RunLog(None).write("end", status="ok")


def test_what_is_in_the_way_of_a_log_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    for path, words in {
        Path(): "is a folder, not the name of a file; choose another name",
        tmp_path / "file": "exists and is never overwritten",
        tmp_path / "file" / "below": "a file is where its folder should be",
        tmp_path / "link": "is a link to ",
        Path("/dev/full"): "is a device or a pipe",
    }.items():
        with pytest.raises(UsageError) as error:
            RunLog(path)
        assert f"log_path={str(path)!r} " in str(error.value)
        assert words in str(error.value)
    assert (tmp_path / "file").read_text() == "kept"


def test_fields_that_left_say_nothing_of_a_measurement_or_damage_the_log() -> None:
    """A log written on a cluster names where its ranks met; a variant is a name."""
    where = {"rendezvous_dir": "/shared", "rendezvous_timeout_s": 120.0, "download": False}
    for fields, state in (where, "ok"), ({"variant": 3}, "failed"), ({"variant": ["a"]}, "failed"):
        changed = in_event(OLD[-2], "start", config=lambda config, f=fields: {**config, **f})
        assert parse_run(Path("x"), changed).state == state
