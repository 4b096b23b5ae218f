"""Tests of jobs keep their studies below /tmp, which real nodes do not share."""

from __future__ import annotations

import pytest

from slurm.submit import SHARED
from tests.slurm.calls import Calls


@pytest.fixture(autouse=True)
def everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, "/")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(capsys, monkeypatch)
