"""The command line in this process: its real parser and commands, without the seconds that another
process takes.
"""

from __future__ import annotations

import sys

import pytest

from slurm.__main__ import main


class Calls:
    """`call("render", "local")` is `python -m slurm render local`: exit code, standard output,
    standard error.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *words: str) -> tuple[object, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["slurm", *words])
        code: object
        try:
            code = main()
        except SystemExit as left:
            code = left.code
        out, err = self._capsys.readouterr()
        return code, out, err

    def refuse(self, *words: str) -> str:
        """Run a command that must refuse, and return the one line in which it does."""
        code, out, err = self(*words)
        assert (code, out) == (2, ""), (code, out, err)
        (line,) = err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(capsys, monkeypatch)
