"""Studies side by side: known changes are found, and what else differs is named."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import analyse
from plots.report import compare
from tests.plots import logs
from tests.plots.test_gaps import PLAN

ROOT = Path(__file__).parents[2]
CELLS = ("ddp/mpi", "horovod/mpi")


@pytest.fixture
def studies(tmp_path: Path) -> tuple[Path, Path]:
    found = []
    for name, seed in (("before", 1), ("after", 2)):
        folder = logs.study(tmp_path / name, seed=seed, sd=0.002)
        logs.study_toml(folder)
        found.append(folder)
    return found[0], found[1]


def check(
    capsys: pytest.CaptureFixture[str], *words: str, below: str = "0.5"
) -> tuple[int, dict[str, Any], str]:
    """Run a check; return its exit code, what its JSON says of it, and its lines on stderr."""
    code = main(["compare", *words, "--fail-below", below, "--json"])
    out, error = capsys.readouterr()
    said: dict[str, Any] = json.loads(out)["check"]
    assert said["exit_code"] == code
    return code, said, error


def states(said: dict[str, Any]) -> Counter[str]:
    return Counter(point["state"] for point in said["points"])


def test_a_known_slowdown_of_one_cell_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It outweighs a point that is missing, and the change of each point is its true one."""
    cells = {"single": 1.0, "ddp/mpi": 1.0, "horovod/mpi": 1.0}
    before = logs.study(tmp_path / "before", cells=cells, sd=0.002, seed=3)
    slower = cells | {"horovod/mpi": 1.8}
    after = logs.study(tmp_path / "after", cells=slower, sd=0.002, seed=3)
    for path in (after / "runs").glob("*single*"):
        path.unlink()
    code, said, error = check(capsys, str(before), str(after), below="0.8")
    assert (code, said["verdict"]) == (1, "slower")
    assert states(said) == {"slower": 3, "holds": 3, "not settled": 2}
    assert error.count("slower: horovod/mpi") == 3
    assert "not settled: single, 1 rank, 16 images per rank: not in the later study" in error
    for change in compare.changes(analyse(load(before)), analyse(load(after)), 0.8):
        if change.state != "not settled":
            assert change.ratio
            assert change.before
            assert change.after
            true = 1 / 1.8 if change.point.cell == "horovod/mpi" else 1.0
            assert change.ratio.value == pytest.approx(true, rel=0.01)
            assert change.ratio.value == pytest.approx(change.after.value / change.before.value)
            assert change.ratio.low
            assert change.ratio.high
            assert change.ratio.low < change.ratio.value < change.ratio.high
    code, said, _ = check(capsys, str(after), str(before))
    assert code == 0, "a point that the later study alone has takes nothing away"
    assert states(said) == {"holds": 6}


def test_what_else_differs_is_named_and_other_work_is_no_change(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"OMP_NUM_THREADS": "1"', '"OMP_NUM_THREADS": "1", "OMPI_MCA_btl": "x"')
        logs.edit(path, '"model": "resnet50"', '"model": "resnet18"')
    assert main(["compare", *map(str, studies)]) == 0
    said = capsys.readouterr().out
    assert "| env.OMPI_MCA_btl | - | x |" in said
    assert "No point is in both." in said
    code, found, error = check(capsys, *map(str, studies))
    assert (code, states(found)) == (3, {"not settled": 8})
    assert "ranks, 16 images per rank: other work: model: resnet18, resnet50" in error


def test_points_that_are_planned_or_failed_are_missing(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in studies:
        logs.study_toml(folder, more=PLAN)
        for path in (folder / "runs").glob("*horovod-mpi-2*"):
            path.unlink()
    code, said, error = check(capsys, *map(str, studies))
    assert (code, said["verdict"]) == (3, "not settled")
    assert states(said) == {"holds": 7, "not settled": 1}
    assert "not settled: horovod/mpi, 2 ranks, 16 images per rank: planned, and no" in error
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"status": "ok"', '"status": "failed: loss is nan"')
    code, said, error = check(capsys, *map(str, studies))
    assert (code, states(said)) == (3, {"not settled": 8})
    assert "none of 48 logs is usable" in error
    assert main(["compare", *map(str, studies)]) == 2, "without a check there is nothing to say"


def test_an_interval_around_the_limit_or_none_is_not_settled(
    studies: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, error = check(capsys, *map(str, studies), below="1")
    assert (code, states(said)) == (3, {"not settled": 8})
    assert "on both sides of 1" in error
    few = logs.study(tmp_path / "few", launches=2, seed=4)
    code, said, error = check(capsys, str(studies[0]), str(few))
    assert code == 3
    assert "no interval from fewer than 6 launches" in error


def bucketed(folder: Path, seconds: dict[float, float]) -> Path:
    """Write a study of two bucket sizes (no field of the work), and runs of those with seconds."""
    more = (
        'cells = ["ddp/mpi", "horovod/mpi"]\nscaling = ["weak"]\nworld_sizes = [2]\n'
        '[weak]\nbatch_per_rank = 16\n[run]\nsettings = "matched"\n'
        "[arms.small]\nbucket_mib = 1.0\n[arms.large]\nbucket_mib = 25.0\n"
    )
    logs.study_toml(folder, launches=6, more=more)
    noise = np.random.default_rng(len(folder.name))
    for launch, cell, (mib, true) in itertools.product(range(6), CELLS, seconds.items()):
        name = "small" if mib == 1.0 else "large"
        run = logs.config(f"{cell}@{name}", 2, 16, launch, settings="matched", bucket_mib=mib)
        path = folder / "runs" / f"{launch}-{cell.replace('/', '-')}-{name}.jsonl"
        logs.write(path, run, true * np.exp(noise.normal(0, 0.005)))
    return folder


def test_every_point_of_arms_of_any_field_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two points under one name would be one, and the gate would not see the other."""
    before = bucketed(tmp_path / "before", {1.0: 0.1, 25.0: 0.2})
    slower = bucketed(tmp_path / "slower", {1.0: 0.2, 25.0: 0.2})
    lacking = bucketed(tmp_path / "lacking", {25.0: 0.2})
    small = "ddp/mpi, 2 ranks, 16 images per rank, small"
    code, said, error = check(capsys, str(before), str(slower), below="0.9")
    assert (code, states(said)) == (1, {"slower": 2, "holds": 2})
    assert f"slower: {small}" in error
    code, said, error = check(capsys, str(before), str(lacking), below="0.9")
    assert (code, states(said)) == (3, {"not settled": 2, "holds": 2})
    assert f"not settled: {small}" in error
    again = bucketed(tmp_path / "again", {25.0: 0.2})
    code, said, error = check(capsys, str(lacking), str(again), below="0.9")
    assert (code, states(said)) == (3, {"not settled": 2, "holds": 2})
    assert f"not settled: {small}: planned" in error, "and in neither"


def test_the_same_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    local = str(ROOT / "results" / "local")
    assert main(["compare", local, local]) == 2
    assert "hold the same runs" in capsys.readouterr().err
    assert main(["compare", local, str(ROOT / "results" / "aa")]) == 0
    assert re.search(r"\| measured \| 20\d\d-\d\d-\d\d", capsys.readouterr().out)
