"""The run log: what is written comes back, and only a log that proves completeness has no problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, UsageError
from bench.record import SCHEMA, RunLog, append_event, read_run

CONFIG = RunConfig(backend="ddp", world_size=2, batch_per_rank=8, windows=2, steps_per_window=3)
CHECKS = {"samples_per_step": True, "loss_finite": True, "parameters_equal": True}


def events() -> list[tuple[str, dict[str, Any]]]:
    """A complete run: window seconds 0.75 and 1.25 for 2 x 3 steps of 16 images."""
    ranks = [[0.1, 0.2, 0.4], [0.25, 0.25, 0.25]]
    return [
        (
            "start",
            {"schema": SCHEMA, "config": CONFIG.model_dump(mode="json"), "host": {"ranks": [{}, {}]}, "workload": {"x": 1}},
        ),
        ("steps", {"phase": "warmup", "index": 0, "seconds": [[9.0], [8.0]]}),
        ("steps", {"phase": "window", "index": 0, "seconds": ranks}),
        ("window", {"index": 0, "steps": 3, "seconds": 0.75}),
        ("steps", {"phase": "window", "index": 1, "seconds": ranks}),
        ("window", {"index": 1, "steps": 3, "seconds": 1.25}),
        ("end", {"status": "ok", "checks": CHECKS}),
    ]


def write(path: Path, entries: list[tuple[str, dict[str, Any]]]) -> Path:
    log = RunLog(path)
    for event, fields in entries:
        log.write(event, **fields)
    return path


def changed(index: int, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
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
    assert run.step_seconds() == [[0.1, 0.2, 0.4, 0.1, 0.2, 0.4], [0.25] * 6]
    assert run.step_seconds("warmup") == [[9.0], [8.0]]


def test_numbers_are_stored_unrounded(tmp_path: Path) -> None:
    awkward = 0.1 + 0.2
    path = write(tmp_path / "run.jsonl", [("window", {"index": 0, "steps": 1, "seconds": awkward})])
    assert json.loads(path.read_text())["seconds"] == awkward


@pytest.mark.parametrize(
    ("entries", "state", "words"),
    [
        (events()[:-1], "running", "no end event"),
        (events()[1:], "failed", "no usable start event"),
        (changed(0, schema=SCHEMA + 1), "failed", "no usable start event"),
        ([e for i, e in enumerate(events()) if i != 3], "failed", "1 windows of 2"),
        (changed(3, steps=2), "failed", "has not 3 steps"),
        (changed(3, seconds=0.0), "failed", "no duration"),
        (changed(3, seconds=float("nan")), "failed", "no duration"),
        (changed(4, seconds=[[0.1, 0.2, 0.4]]), "failed", "steps of some rank"),
        ([e for i, e in enumerate(events()) if i != 4], "failed", "steps of some rank"),
        (changed(0, host={"ranks": [{}]}), "wrong world", "provenance of 1 ranks, asked for 2"),
        (changed(6, checks={**CHECKS, "loss_finite": False}), "failed", "failed checks: loss_finite"),
        (changed(6, checks={"loss_finite": True}), "failed", "failed checks: samples_per_step, parameters_equal"),
        ([*events()[:-1], ("end", {"status": "ok"})], "failed", "failed checks"),
        (changed(6, status="failed: rank 0: boom"), "failed", "boom"),
        ([*events()[:-1], ("end", {"status": "interrupted", "signal": "SIGINT"})], "interrupted", "stopped by SIGINT"),
        (
            [*events()[:3], ("error", {"rank": 1, "message": "boom"}), ("end", {"status": "interrupted"})],
            "failed",
            "rank 1: boom",
        ),
    ],
)
def test_an_incomplete_log_says_why(tmp_path: Path, entries: list[tuple[str, dict[str, Any]]], state: str, words: str) -> None:
    run = read_run(write(tmp_path / "run.jsonl", entries))
    assert words in str(run.problem)
    assert run.state == state


@pytest.mark.parametrize(
    ("upto", "exit_event", "state", "words"),
    [
        (4, {"code": 137, "timed_out": False}, "failed", "exit code 137: no end event"),
        (0, {"code": 143, "timed_out": False, "interrupted": True}, "interrupted", "stopped"),
        (4, {"code": 124, "timed_out": True, "limit_s": 60}, "timed out", "timed out after 60 s"),
        (7, {"code": 139, "timed_out": False}, "ok", "None"),  # a crash after complete data is a fact beside it
    ],
)
def test_the_launchers_view_is_kept_apart(tmp_path: Path, upto: int, exit_event: dict[str, Any], state: str, words: str) -> None:
    path = write(tmp_path / "run.jsonl", events()[:upto])
    append_event(path, "exit", **exit_event)
    run = read_run(path)
    assert run.state == state
    assert words in str(run.problem)
    assert run.exit["code"] == exit_event["code"]


@pytest.mark.parametrize(
    ("interrupted", "state", "problem"),
    [
        (True, "interrupted", "stopped by SIGTERM"),
        (False, "failed", "exit code 139: stopped by SIGTERM because another rank died"),
    ],
)
def test_a_rank_stopped_because_another_died_is_not_interrupted(
    tmp_path: Path, interrupted: bool, state: str, problem: str
) -> None:
    path = write(tmp_path / "run.jsonl", [*events()[:4], ("end", {"status": "interrupted", "signal": "SIGTERM"})])
    append_event(path, "exit", code=139, timed_out=False, interrupted=interrupted)
    run = read_run(path)
    assert run.state == state
    assert run.problem == problem


def test_a_torn_line_is_not_an_event_and_swallows_nothing_after_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", events()[:5])
    with path.open("a") as file:
        file.write('{"event": "window", "ind')
    append_event(path, "exit", code=137, timed_out=False)
    run = read_run(path)
    assert len(run.windows) == 1
    assert run.exit["code"] == 137


def test_an_existing_log_is_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", events())
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists and is never overwritten"):
        RunLog(path)
    assert path.read_bytes() == before


def test_an_unwritable_folder_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        RunLog(tmp_path / "file" / "run.jsonl")


def test_nothing_follows_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = RunLog(path)
    log.write("end", status="ok")
    log.write("end", status="interrupted")
    assert len(path.read_text().splitlines()) == 1


def test_without_a_path_nothing_is_kept() -> None:
    RunLog(None).write("end", status="ok")


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_run(Path("nowhere.jsonl"))


def test_what_is_in_the_way_of_a_log_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    for path, words in {
        Path(): "is a folder, not the name of a file; choose another name",
        tmp_path: "is a folder",
        tmp_path / "file": "exists and is never overwritten",
        tmp_path / "file" / "below": "a file is where its folder should be",
        tmp_path / "link": "is a link to ",
        Path("/dev/null"): "is a device or a pipe",
        Path("/dev/full"): "is a device or a pipe",
    }.items():
        with pytest.raises(UsageError) as error:
            RunLog(path)
        assert f"log_path={str(path)!r} " in str(error.value)
        assert words in str(error.value)
    assert (tmp_path / "file").read_text() == "kept"
