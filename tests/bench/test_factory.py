"""Code of the user's own that fails before a run: one line, then the traceback of that code."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import factory
from bench.config import UsageError
from bench.record import read_run
from tests.bench.ranks import bench

pytestmark = pytest.mark.ranks
SHORT = ["--dataset", "digits", "--batch-per-rank", "4"]
FAILED, CALLED = "importing my_own failed", "called with one argument, failed"


def module(folder: Path, text: str) -> dict[str, str]:
    (folder / "my_own.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("text", "line", "last"),
    [
        ("raise LookupError('planted')\n", f"{FAILED} (LookupError: pl", "LookupError: planted"),
        (
            "def make(n):\n    return helper(n)\n",
            f"{CALLED} (NameError: ",
            "'helper' is not defined",
        ),
        ("def make(n, m):\n    pass\n", "failed (TypeError: make() missing 1 required", None),
    ],
)
def test_one_line_then_the_users_traceback(
    text: str, line: str, last: str | None, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    field = "model" if "(n" in text else "dataset"  # both go through one door
    argv = [*SHORT, f"--{field}", "my_own:make", "--log-path", str(log)]
    done = bench(1, *argv, extra=module(tmp_path, text))
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    first = lines.index(next(said for said in lines if said.startswith("error: ")))
    assert lines[first].startswith(f"error: {field}='my_own:make'")
    assert line in lines[first]
    if last is None:
        assert lines[first + 1 :] == [], "none of the user's lines ran"
    else:
        assert any("my_own.py" in said for said in lines[first + 1 :])
        assert last in lines[-1]
    assert "/bench/factory.py" not in done.stderr, "the way to the user's code is not the user's"
    assert line in str(read_run(log).problem)


def test_on_two_ranks_as_well(tmp_path: Path) -> None:
    model = "tests.bench.tiny:breaks"
    done = bench(2, *SHORT, "--backend", "ddp", "--world-size", "2", "--model", model)
    assert done.returncode == 2
    # of whichever rank was first to say it
    assert f"model='{model}': the factory, {CALLED} (LookupError: " in done.stderr
    assert "raise LookupError(" in done.stderr


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_whose_text_fails_is_named_by_its_type() -> None:
    assert factory.in_words(Speechless()) == "Speechless"
    assert factory.in_words(ValueError("one\ntwo")) == "ValueError: one"


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
