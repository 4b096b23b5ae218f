"""A log without a result gives its name free, and nothing of it is lost; any other log keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import RunLog, set_aside
from tests.bench.test_record import Entries, changed, config, events, write


def ended(path: Path, entries: Entries, **of_the_config: object) -> Path:
    """Write a log whose writer, which held a lock on it, is gone."""
    if entries:
        (name, start), *rest = entries
        entries = [(name, start | config(**of_the_config)), *rest]
    draft = write(path.with_suffix(".draft"), entries)
    path.write_bytes(draft.read_bytes())
    draft.unlink()
    return path


NO_MODEL = [*events()[:2], ("end", {"status": "failed: no such model"})]
CUT = "was ended before its end"


@pytest.mark.parametrize(
    ("entries", "why"),
    [(events()[:-1], CUT), ([], CUT), (NO_MODEL, "measured nothing (no such model)")],
)
def test_a_log_without_a_result_is_renamed(tmp_path: Path, entries: Entries, why: str) -> None:
    log, first, second = (tmp_path / f"run{n}.jsonl" for n in ("", ".attempt-1", ".attempt-2"))
    content = ended(log, entries).read_bytes()
    assert set_aside(log) == f"{log} is of a run that {why}; it is now {first}"
    assert set_aside(log) is None, "nothing is there"
    ended(log, [])
    assert set_aside(log) == f"{log} is of a run that {CUT}; it is now {second}"
    assert first.read_bytes() == content


def test_any_other_file_keeps_its_name(tmp_path: Path) -> None:
    """A result, a measurement that failed, an edited log, one of a study's driver, and no log."""
    ended(tmp_path / "result.jsonl", events())
    ended(tmp_path / "measured.jsonl", changed(6, status="failed: loss_finite"))
    edited = ended(tmp_path / "edited.jsonl", NO_MODEL)
    edited.write_text(edited.read_text().replace("no such", "no good"))
    ended(tmp_path / "planned.jsonl", events()[:-1], study="weak", launch=0)
    (tmp_path / "notes.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    before = sorted(tmp_path.iterdir())
    assert [set_aside(path) for path in before] == [None] * 6
    assert sorted(tmp_path.iterdir()) == before


def test_a_log_that_is_still_written_is_not_touched(tmp_path: Path) -> None:
    writer = RunLog(log := tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="its run may still be at work; choose another name"):
        set_aside(log)
    writer.write("end", status="ok")
