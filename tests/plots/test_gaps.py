"""Gaps: the report says which planned points, launches and pairs are not there."""

from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.frames import load
from plots.analyse.study import Analysis, analyse
from plots.report.findings import checks
from tests.plots import logs

PLAN = """\
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak", "strong"]
world_sizes = [1, 2]
[weak]
batch_per_rank = 16
[strong]
global_batch = 32
"""


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


def test_a_baseline_is_planned_in_six_launches(tmp_path: Path) -> None:
    logs.study(tmp_path, launches=8)
    logs.study_toml(tmp_path, launches=8, more=PLAN)
    for lost, baseline in (("[67]-*-single-*", []), ("5-*-single-*", [(5,)] * 2)):
        for path in (tmp_path / "runs").glob(lost):
            path.unlink()
        assert [gap.missing for gap in analyse(load(tmp_path)).gaps] == baseline


def test_a_study_with_a_mistake_is_refused(tmp_path: Path) -> None:
    logs.write(tmp_path / "single.jsonl", logs.config("single"), 0.1)
    logs.study_toml(tmp_path, more="lanches = 3\n")
    with pytest.raises(UsageError, match=r"study\.toml: unknown key 'lanches'; did you mean"):
        load(tmp_path)


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
