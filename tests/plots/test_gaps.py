"""Gaps: the report says which planned points and launches are not there, and which pairs of them."""

import json
from pathlib import Path

import pytest

from bench.study.files import read_study
from bench.study.frames import load
from bench.study.plan import config_of, points
from plots.__main__ import main
from plots.analyse.study import Analysis, analyse, planned_points
from plots.report.checks import checks
from slurm.fit import fit
from slurm.load import find_study, read_site
from tests.plots import logs
from tests.slurm.scripts import STUDIES

pytestmark = pytest.mark.usefixtures("undrawn")

PLAN = """\
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak", "strong"]
world_sizes = [1, 2]
[weak]
batch_per_rank = 16
[strong]
global_batch = 32
"""


@pytest.mark.parametrize("name", STUDIES)
def test_every_planned_point_of_a_shipped_study_is_another_one_to_a_report(name: str) -> None:
    """Two that were one would be there twice in each launch, and none of their runs would count."""
    path = find_study(name)
    study = fit(read_study(path), read_site("perlmutter"), (), path)
    each = points(study).items()
    counted = [curves for p, curves in each if config_of(study, p, curves).is_throughput]
    assert len(planned_points(study)) == sum(map(len, counted)) > 0


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    """Six launches, of which launch 5 lost Horovod at two ranks, where both curves meet."""
    logs.study(tmp_path)
    logs.study_toml(tmp_path, more=PLAN)
    for path in (tmp_path / "runs").glob("5-*-horovod-mpi-2.jsonl"):
        path.unlink()
    a = analyse(load(tmp_path))
    assert [
        (g.curve, g.point.cell, g.point.world_size, g.point.batch_per_rank, g.missing)
        for g in a.gaps
    ] == [("weak", "horovod/mpi", 2, 16, (5,)), ("strong", "horovod/mpi", 2, 16, (5,))]


def test_an_arm_of_which_nothing_is_there_is_a_gap(tmp_path: Path) -> None:
    logs.study(tmp_path, launches=2, cells={"single": 1.0, "ddp/mpi": 1.1}, overlap="on")
    arms = '[arms.plain]\n[arms.late]\noverlap = "off"\nprecision = "float32"\n'
    logs.study_toml(tmp_path, launches=2, more=PLAN.replace(', "horovod/mpi"', "") + arms)
    a = analyse(load(tmp_path))
    assert [
        (g.curve, g.point.cell, g.point.world_size, g.point.arm, g.missing) for g in a.gaps
    ] == [
        (curve, "ddp/mpi", world_size, "late", (0, 1))
        for curve, world_size in (("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2))
    ]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("launches = 100000000", "key 'question' is missing"),
        ('question = "?"\nmargin = 0.05\nbloks = 3', "did you mean 'launches'?"),
    ],
)
def test_a_report_says_where_the_study_is_no_valid_one(
    tmp_path: Path, said: str, wrong: str
) -> None:
    logs.write(tmp_path / "runs" / "single.jsonl", logs.config("single"), 0.1)
    (tmp_path / "study.toml").write_text(
        f'name = "test"\ncells = ["single", "ddp/mpi"]\nscaling = ["weak"]\n{said}\n'
    )
    assert main(["report", str(tmp_path)]) == 0
    (note,) = json.loads((tmp_path / "summary.json").read_text())["notes"]
    assert note.startswith("study.toml is no valid study (")
    assert wrong in note
    assert ("the margin of 5 % is the one that it names" in note) == ("0.05" in said)


def test_a_study_of_an_earlier_form_is_told_and_loses_no_run(tmp_path: Path) -> None:
    """Its plain runs had no arm, and are none of the arm that its file names."""
    for cell, inject_ms in (("ddp/mpi", 0.0), ("ddp/mpi@slow", 5.0)):
        run = logs.config(cell, 2, inject_ms=inject_ms)
        logs.write(tmp_path / "runs" / f"{run.arm}.jsonl", run, 0.1)
    cells = 'cells = ["ddp/mpi", "ddp/mpi@slow"]'
    logs.study_toml(tmp_path, more=f"{cells}\n[arms.slow]\ninject_ms = 5.0\n")
    loaded = load(tmp_path)
    assert loaded.unusable == ()
    assert sorted(loaded.runs["arm"]) == ["inject_ms=0.0", "slow, inject_ms=5.0"]
    assert "study.toml is no valid study (" in loaded.notes[0]


def test_pairs_that_nobody_planned_are_not_missing(tmp_path: Path) -> None:
    """Without `single` there is no common baseline, and none was wanted."""
    logs.study(tmp_path, launches=2, cells={"ddp/mpi": 1.0, "horovod/mpi": 1.1})
    logs.study_toml(tmp_path, launches=2, more=PLAN.replace('"single", ', ""))
    a = analyse(load(tmp_path))
    assert len(a.not_compared) == 8
    assert lacking(a) == []
    (tmp_path / "study.toml").unlink()
    assert lacking(analyse(load(tmp_path))) == []
    for path in (tmp_path / "runs").glob("*-horovod-mpi-2.jsonl"):
        path.unlink()
    logs.study_toml(tmp_path, launches=2, more=PLAN.replace('"single", ', ""))
    assert lacking(analyse(load(tmp_path))) == ["2 gaps", "1 pair not compared"]


def lacking(a: Analysis) -> list[str]:
    return [c.name for c in checks(a) if c.holds is False and ("gap" in c.name or "pair" in c.name)]
