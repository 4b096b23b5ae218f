"""A new study file: valid as written, every key explained, and ready to run on one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.study.definition import Study
from bench.study.files import read_study
from tests.slurm.calls import Calls


def test_a_new_study_is_valid_and_explains_every_key(
    call: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("study", "new", "mine")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "mine.toml written: a small study of this machine"
    assert out.splitlines()[1].endswith(" -m slurm run mine.toml")
    study, text = read_study(Path("mine.toml")), Path("mine.toml").read_text()
    assert (study.name, study.world_sizes, len(study.pairs)) == ("mine", (1, 2), 1)
    for name in Study.model_fields:
        assert re.search(rf"^(# )?({name} = |\[{name}[.\]])", text, re.MULTILINE), name
    assert call("render", "mine.toml")[1].count("\nrun b") == 30
    assert call.refuse("study", "new", "mine").startswith("mine.toml exists and is never overwr")
    assert call.refuse("study", "new", "My Study").startswith("'My Study' also names a file")
