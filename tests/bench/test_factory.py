"""Code of the user's own that fails before a run: one line, then the traceback of that code."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import factory
from bench.config import UsageError
from bench.record import read_run
from tests.bench.ranks import bench


@pytest.mark.ranks
def test_one_line_then_the_users_traceback(tmp_path: Path) -> None:
    (tmp_path / "my_own.py").write_text("raise LookupError('planted')\n")
    log = tmp_path / "run.jsonl"
    argv = ["--batch-per-rank", "4", "--dataset", "my_own:make", "--log-path", str(log)]
    done = bench(1, *argv, extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    first = lines.index(next(said for said in lines if said.startswith("error: ")))
    line = "dataset='my_own:make': importing my_own failed (LookupError: planted)"
    assert lines[first].startswith(f"error: {line}")
    assert any("my_own.py" in said for said in lines[first + 1 :])
    assert lines[-1] == "LookupError: planted"
    assert "/bench/factory.py" not in done.stderr, "the way to the user's code is not the user's"
    assert line in str(read_run(log).problem)


@pytest.mark.parametrize(
    ("text", "why", "last"),
    [
        ("def make(n):\n    return helper(n)\n", "NameError: ", "name 'helper' is not defined"),
        ("def make(n, m):\n    pass\n", "TypeError: make() missing 1 required", ""),
    ],
)
def test_a_factory_that_fails_has_a_traceback_where_the_users_lines_ran(
    text: str, why: str, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"made_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(factory.OwnCodeError) as caught:
        factory.make("model", f"{name}:make", 10)
    assert f"called with one argument, failed ({why}" in str(caught.value)
    assert caught.value.trace.endswith(last)
    assert bool(caught.value.trace) == bool(last)


def test_a_module_that_lacks_another_is_not_called_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_there.py").write_text("import half\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(factory.OwnCodeError, match="importing half_there failed"):
        factory.make("model", "half_there:make", 10)
    with pytest.raises(UsageError, match="No module named 'half_here'") as caught:
        factory.make("model", "half_here:make", 10)
    assert not isinstance(caught.value, factory.OwnCodeError)
