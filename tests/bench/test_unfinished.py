"""A log without a result gives its name free, and nothing of it is lost; any other log keeps it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import RunLog, read_run
from bench.record.unfinished import set_aside
from tests.bench import ranks
from tests.bench.test_record import Entries, changed, events, write


def ended(path: Path, entries: Entries) -> Path:
    """Write a log whose writer, which held a lock on it, is gone."""
    draft = write(path.with_suffix(".draft"), entries)
    path.write_bytes(draft.read_bytes())
    draft.unlink()
    return path


def of_this_host(entries: Entries) -> Entries:
    (start, fields), *rest = entries
    alone = [{**fields["host"]["ranks"][0], "hostname": socket.gethostname()}]
    return [(start, {**fields, "host": {"ranks": alone}}), *rest]


def failed(entries: Entries) -> Entries:
    return [*entries, ("end", {"status": "failed: no such model"})]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (of_this_host(events()[:-1]), "is of a run that was ended before its end"),
        (of_this_host(events()[:1]), "is of a run that was ended before its end"),
        ([], "is of a run that was ended before its end"),
        (failed(events()[:2]), "is of a run that measured nothing (no such model)"),
    ],
)
def test_a_log_without_a_result_is_renamed(tmp_path: Path, entries: Entries, why: str) -> None:
    log, first, second = (tmp_path / f"run{n}.jsonl" for n in ("", ".attempt-1", ".attempt-2"))
    content = ended(log, entries).read_bytes()
    assert set_aside(log) == f"{log} {why}; it is now {first}"
    assert first.read_bytes() == content
    assert set_aside(log) is None, "nothing is there"
    ended(log, [])
    assert set_aside(log) == f"{log} is of a run that was ended before its end; it is now {second}"
    assert first.read_bytes() == content


def test_a_result_and_what_is_no_log_keep_their_names(tmp_path: Path) -> None:
    result = ended(tmp_path / "result.jsonl", events())
    measured = ended(tmp_path / "measured.jsonl", changed(6, status="failed: loss_finite"))
    touched = ended(tmp_path / "touched.jsonl", failed(events()[:2]))
    touched.write_text(touched.read_text().replace("no such", "no good"))
    planned = of_this_host(events()[:-1])
    planned[0][1]["config"] = {**planned[0][1]["config"], "study": "weak", "launch": 0}
    ended(tmp_path / "planned.jsonl", planned)
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"mine": 1}\n')
    for log in (result, measured, touched, tmp_path / "planned.jsonl", notes):
        before = log.read_bytes()
        assert set_aside(log) is None
        assert log.read_bytes() == before
        with pytest.raises(UsageError, match="exists and is never overwritten"):
            RunLog(log)
    (tmp_path / "folder.jsonl").mkdir()
    assert set_aside(tmp_path / "folder.jsonl") is None


def test_a_log_that_may_still_be_written_is_not_touched(tmp_path: Path) -> None:
    """By a writer that holds its lock, or by one on another host, which no lock may reach."""
    log, other = tmp_path / "run.jsonl", ended(tmp_path / "other.jsonl", events()[:3])
    writer = RunLog(log)
    with pytest.raises(UsageError, match="its run may still be at work; choose another name"):
        set_aside(log)
    with pytest.raises(UsageError, match="its run on n1, n2 may still be at work"):
        set_aside(other)
    assert log.exists()
    assert other.exists()
    writer.write("end", status="ok")


def test_a_failed_start_leaves_its_name_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('no good')")
    log, extra = tmp_path / "run.jsonl", {"PYTHONPATH": str(tmp_path)}
    start = [sys.executable, "-m", "bench", "--batch-per-rank", "4", "--log-path", str(log)]
    kept = ended(log, failed(events()[:2])).read_bytes()
    again = ranks.run(start, extra)
    assert again.returncode == 1
    note = f"note: {log} is of a run that measured nothing ("
    assert again.stderr.splitlines()[0].startswith(note)
    assert (tmp_path / "run.attempt-1.jsonl").read_bytes() == kept
    assert read_run(log).state == "failed"
