"""Two arms of a study that differ in one field: told apart, or refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomlkit
from pydantic import ValidationError

from bench.config import Role, fields_with
from bench.record import CHECKS
from bench.record.events import PARTS
from bench.study.definition import Study
from bench.study.frames import load
from bench.study.plan import plan
from bench.study.points import by_point
from plots.analyse.study import analyse
from tests.plots import logs

PAIR = ("ddp/mpi", "horovod/mpi")
PLANNED = sorted(fields_with(Role.PLANNED))


def study_of(name: str, values: tuple[Any, Any], **more: Any) -> Study:
    """Make a study whose two arms differ in that field alone."""
    usual = {"cells": ("single", *PAIR), "run": {"image_size": 16}, "world_sizes": (2,)}
    plain = {"name": "test", "question": "Told apart?", "scaling": ("weak",), "launches": 1}
    arms = {"arms": {"a": {name: values[0]}, "b": {name: values[1]}}}
    return Study(**{**plain, "weak": {"batch_per_rank": 16}, **usual, **arms, **more})


def keep(folder: Path, study: Study) -> None:
    """Write the study's file, as its folder holds it."""
    text = tomlkit.dumps(study.model_dump(mode="json", exclude_unset=True))
    (folder / "study.toml").write_text(text)


@pytest.mark.parametrize("name", PLANNED)
def test_no_arm_sets_what_the_plan_sets(name: str) -> None:
    with pytest.raises(ValidationError):
        study_of(name, (1, 2))


@pytest.mark.parametrize(
    ("name", "values", "more"),
    [
        ("precision", ("float32", "bf16"), {}),
        ("device", ("cpu", "cuda"), {"cells": ("single",)}),
        ("observe", ("nothing", "breakdown"), {}),
        ("overlap", ("on", "off"), {}),
        ("warmup_steps", (4, 8), {}),
        ("bucket_mib", (0.125, 0.25), {"cells": ("ddp/mpi",), "run": {"settings": "tuned"}}),
        ("bucket_mib", (0.125, 0.25), {"run": {"settings": "matched"}}),
    ],
)
def test_arms_are_told_apart(
    name: str, values: tuple[Any, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    """None is averaged with the other as repeats of one point, and none is thrown away."""
    study = study_of(name, values, **more)
    (runs,) = plan(study, 1, tmp_path / "runs")
    for run in runs:
        proved = dict.fromkeys((*CHECKS, "gradients_averaged", "parameters_differ"), True)
        parts = {p: [0.01] * run.config.world_size for p in (*PARTS, "begin")}
        observed: Any = {} if run.config.observe == "nothing" else {"parts": parts}
        logs.write(run.log, run.config, 0.1, end={"checks": proved}, **observed)
    keep(tmp_path, study)
    loaded = load(tmp_path)
    assert loaded.unusable == ()
    frames = (loaded.runs, loaded.observed)
    assert sum(map(len, frames)) == len(runs)
    for frame in frames:
        assert [len(rows) for _, rows in by_point(frame)] == [1] * len(frame)
    analysis = analyse(loaded)
    assert analysis.gaps == []
    assert analysis.varying == [], "what tells arms apart is no doubt"
    distributed = [p for p in analysis.table.launches if p.cell != "single"]
    if "single" in study.cells:
        assert {s.point for s in analysis.efficiency if s.kind == "common"} == {*distributed}
    if name != "observe" and set(study.cells) >= set(PAIR):
        assert len(analysis.comparisons) == 2


def test_a_log_that_is_not_of_the_arm_it_names_gives_no_number(tmp_path: Path) -> None:
    """The table was changed after the run, or the log is of another study of that name."""
    keep(tmp_path, study_of("bucket_mib", (0.125, 0.25), cells=("single", "handwritten/mpi")))
    for log, arm, mib in (("right", "a", 0.125), ("changed", "a", 2.0), ("foreign", "huge", 1.0)):
        run = logs.config(f"handwritten/mpi@{arm}", 2, bucket_mib=mib)
        logs.write(tmp_path / f"{log}.jsonl", run, 0.1)
    loaded = load(tmp_path)
    assert loaded.runs["log"].tolist() == ["right.jsonl"]
    assert {x.log: x.reason for x in loaded.unusable} == {
        "changed.jsonl": "its bucket_mib=2.0, and [arms.a] of the study says 0.125",
        "foreign.jsonl": "its arm='huge' is none of the study's",
    }
