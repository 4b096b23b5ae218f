"""A few of the trials of spoiled logs, and that they notice a number which nobody checks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from plots.imports.extras import tf_cnn_benchmarks as tf_cnn
from plots.imports.points import Imported
from tests.plots.import_trials import CHECKED, imported, outcome, silently_other, spoil


@pytest.mark.parametrize(("name", "text", "checks"), CHECKED)
def test_no_spoiled_log_gives_another_number_in_silence(
    name: str, text: str, checks: dict[str, float], tmp_path: Path
) -> None:
    chance, path = random.Random(0), tmp_path / "log"
    clean = imported(name, text.encode(), path)
    assert set(checks) <= set(clean.points["quantity"])
    for _ in range(25):
        data = spoil(text.encode(), chance)
        end = outcome(name, data, path)
        assert isinstance(end, str) or not silently_other(clean, end, checks), data


def test_the_trials_notice_what_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, text, checks = CHECKED[2]
    clean = imported(name, text.encode(), tmp_path / "log")
    other = text.replace("998.00", "99.80").encode()
    assert outcome(name, other, tmp_path / "log") == "refused"
    monkeypatch.setattr(tf_cnn, "_OFF", float("inf"))
    end = outcome(name, other, tmp_path / "log")
    assert isinstance(end, Imported)
    assert silently_other(clean, end, checks) == "images_per_s"
