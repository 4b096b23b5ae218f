"""Two arms of a study that differ in one field, for every field of a run: told apart, or
refused before anything runs; never averaged as repeats of one point, and never thrown away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import tomlkit
from pydantic import ValidationError

from bench.config import Role, RunConfig, fields_with
from bench.record import CHECKS
from bench.record.events import PARTS
from bench.study.definition import Study
from bench.study.frames import load
from bench.study.plan import plan
from bench.study.points import by_point
from plots.analyse.study import analyse
from tests.plots import logs

PAIR = ("ddp/mpi", "horovod/mpi")
# what a field needs beside it, where the usual study would not take it
NEEDS: dict[str, dict[str, Any]] = {
    "device": {"cells": ("single",)},  # no transport carries both CPU and CUDA tensors
    "mode": {"cells": ("single", "ps/mpi")},
}
VALUES: dict[str, tuple[Any, Any]] = {
    "model": ("resnet18", "resnet50"),
    "observe": ("nothing", "breakdown"),
    "precision": ("float32", "bf16"),
    "nesterov": (False, True),
}
BUCKETS: list[dict[str, Any]] = [
    {"cells": ("single", "handwritten/mpi", "ps/mpi")},
    {"cells": ("ddp/mpi",), "run": {"settings": "tuned"}},
    {"cells": ("single", *PAIR), "run": {"settings": "matched"}},
]
# these need data on disk, a timeline or a training; bucket_mib has cases of its own
ELSEWHERE = {
    *("dataset", "data_dir", "sharding", "emulate"),
    *("epochs", "target", "trainings", "bucket_mib"),
}


def values(name: str) -> tuple[Any, Any]:
    """Choose two values of a field."""
    if name in VALUES:
        return VALUES[name]
    field = RunConfig.model_fields[name]
    kinds = (field.annotation, *get_args(field.annotation))
    if bool in kinds:
        return False, True
    if int in kinds or float in kinds:
        least = 4 if name == "warmup_steps" else 0.125 if float in kinds else 1
        step = 8 if name == "image_size" else least
        return (16, 24) if name == "image_size" else (least, least + step)
    literals = [choice for choice in kinds if isinstance(choice, str)]
    return (literals[0], literals[1]) if literals else ("/data/a", "/data/b")


def study_of(name: str, needs: dict[str, Any]) -> Study:
    """Make a study whose two arms differ in that field alone."""
    first, second = values(name)
    run = {"image_size": 16} | needs.get("run", {})
    run.pop(name, None)
    return Study(
        **{
            "name": "test",
            "question": "Told apart?",
            "cells": ("single", *PAIR),
            "scaling": ("weak",),
            "world_sizes": (2,),
            "launches": 1,
            "weak": {"batch_per_rank": 16},
            **needs,
            "run": run,
            "arms": {"a": {name: first}, "b": {name: second}},
        }
    )


def keep(folder: Path, study: Study) -> None:
    """Write the study's file, as its folder holds it."""
    text = tomlkit.dumps(study.model_dump(mode="json", exclude_unset=True))
    (folder / "study.toml").write_text(text)


def write(path: Path, run: RunConfig) -> None:
    """Write a log that proves all that is asked of such a run."""
    proved = dict.fromkeys((*CHECKS, "gradients_averaged", "parameters_differ"), True)
    parts = {p: [0.01] * run.world_size for p in (*PARTS, "begin")}
    observed: dict[str, Any] = {} if run.observe == "nothing" else {"parts": parts}
    logs.write(path, run, 0.1, end={"checks": proved}, **observed)


CASES = [(name, NEEDS.get(name, {})) for name in RunConfig.model_fields if name not in ELSEWHERE]
CASES += [("bucket_mib", needs) for needs in BUCKETS]


@pytest.mark.parametrize(("name", "needs"), CASES)
def test_arms_of_every_field_are_told_apart_or_refused(
    name: str, needs: dict[str, Any], tmp_path: Path
) -> None:
    planned_or_kept = {*fields_with(Role.PLANNED), *fields_with(Role.BOOKKEEPING)}
    if name in planned_or_kept:
        with pytest.raises(ValidationError):
            study_of(name, needs)
        return
    study = study_of(name, needs)
    (runs,) = plan(study, 1, tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    for run in runs:
        assert run.config.arm in ("a", "b")
        write(run.log, run.config)
    keep(tmp_path, study)
    loaded = load(tmp_path)
    assert loaded.unusable == ()
    frames = (loaded.runs, loaded.observed)
    assert sum(map(len, frames)) == len(runs)
    for frame in (loaded.runs, loaded.observed):
        assert [len(rows) for _, rows in by_point(frame)] == [1] * len(frame)
    if loaded.runs.empty:
        return
    analysis = analyse(loaded)
    assert analysis.gaps == []
    assert analysis.varying == [], "what tells arms apart is no doubt"
    distributed = [p for p in analysis.table.launches if p.cell != "single"]
    if "single" in study.cells:
        assert {s.point for s in analysis.efficiency if s.kind == "common"} == {*distributed}
    if name not in fields_with(Role.APART) and set(study.cells) >= set(PAIR):
        assert len(analysis.comparisons) == 2


def test_a_log_that_is_not_of_the_arm_it_names_gives_no_number(tmp_path: Path) -> None:
    """The table was changed after the run, or the log is of another study of that name."""
    keep(tmp_path, study_of("bucket_mib", BUCKETS[0]))
    named: dict[str, dict[str, Any]] = {
        "right": {"arm": "a", "bucket_mib": 0.125},
        "changed": {"arm": "a", "bucket_mib": 2.0},
        "foreign": {"arm": "huge", "bucket_mib": 100.0},
    }
    for log, fields in named.items():
        logs.write(
            tmp_path / f"{log}.jsonl",
            logs.config(f"handwritten/mpi@{fields.pop('arm')}", 2, **fields),
            0.1,
        )
    loaded = load(tmp_path)
    assert loaded.runs["log"].tolist() == ["right.jsonl"]
    assert {x.log: x.reason for x in loaded.unusable} == {
        "changed.jsonl": "its bucket_mib=2.0, and [arms.a] of the study says 0.125",
        "foreign.jsonl": "its arm='huge' is none of the study's",
    }
