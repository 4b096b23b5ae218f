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

from plots.__main__ import main
from plots.analyse import across
from plots.analyse.runs import load
from plots.analyse.study import analyse
from tests.plots import logs
from tests.plots.test_gaps import PLAN

ROOT = Path(__file__).parents[2]
SLOW = {"single": 1.0, "ddp/mpi": 1.2, "horovod/mpi": 1.2}


@pytest.fixture
def studies(tmp_path: Path) -> tuple[Path, Path]:
    found = []
    for name, seed in (("before", 1), ("after", 2)):
        folder = logs.study(tmp_path / name, seed=seed, sd=0.002)
        logs.study_toml(folder)
        found.append(folder)
    return found[0], found[1]


def test_a_known_slowdown_of_one_cell_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name, horovod in (("before", 1.0), ("after", 1.8)):
        cells = {"single": 1.0, "ddp/mpi": 1.0, "horovod/mpi": horovod}
        folder = logs.study(tmp_path / name, cells=cells, sd=0.002, seed=3)
        logs.study_toml(folder)
        folders.append(str(folder))
    assert main(["compare", *folders, "--fail-below", "0.95"]) == 1
    out, error = capsys.readouterr()
    assert error.count("slower: horovod/mpi") == 3
    assert "slower: ddp/mpi" not in error
    assert "## Images/s of" in out
    assert main(["compare", *folders, "--fail-below", "0.3"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compare", *reversed(folders), "--fail-below", "0.8"]) == 0


def test_changes_are_of_each_point(studies: tuple[Path, Path]) -> None:
    before, after = (analyse(load(folder)) for folder in studies)
    found = list(across.changes(before, after, []))
    assert len(found) == len(before.table.blocks)
    for change in found:
        assert change.ratio.value == pytest.approx(change.after.value / change.before.value)
        assert change.ratio.low < change.ratio.value < change.ratio.high


@pytest.mark.parametrize("name", ["OMPI_MCA_btl", "ONEDNN_MAX_CPU_ISA"])
def test_another_environment_is_named(
    studies: tuple[Path, Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"OMP_NUM_THREADS": "1"', f'"OMP_NUM_THREADS": "1", "{name}": "x"')
    assert main(["compare", *map(str, studies)]) == 0
    text = capsys.readouterr().out
    assert f"| env.{name} | - | x |" in text


def test_other_work_is_no_change(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"model": "resnet50"', '"model": "resnet18"')
    assert main(["compare", *map(str, studies)]) == 0
    said = capsys.readouterr().out
    assert "No point is in both." in said
    assert "other work: model: resnet18, resnet50" in said
    assert main(["compare", *map(str, studies), "--fail-below", "0.5"]) == 3
    error = capsys.readouterr().err
    assert error.count("not comparable: ") == 8
    assert "ranks, 16 images per rank: other work: model: resnet18, resnet50" in error


def check(
    capsys: pytest.CaptureFixture[str], *words: str, below: str = "0.5"
) -> tuple[int, dict[str, Any], str]:
    """The exit code of a check, what its JSON says of it, and its lines on stderr."""
    code = main(["compare", *words, "--fail-below", below, "--json"])
    out, error = capsys.readouterr()
    said: dict[str, Any] = json.loads(out)["check"]
    assert said["exit_code"] == code
    return code, said, error


def states(said: dict[str, Any]) -> Counter[str]:
    return Counter(point["state"] for point in said["points"])


def test_points_that_vanished_cannot_hold(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the candidate's points: the others hold, and that is not enough."""
    for path in (studies[1] / "runs").iterdir():
        if "single" in path.name or "ddp" in path.name:
            path.unlink()
    code, said, error = check(capsys, *map(str, studies))
    assert code == 3
    assert said["verdict"] == "cannot tell"
    assert states(said) == {"holds": 3, "missing": 5}
    assert "missing: single, 1 rank, 16 images per rank: not in the later study" in error
    code, said, _ = check(capsys, *map(str, reversed(studies)))
    assert code == 0, "a point that the later study alone has takes nothing away"
    assert states(said) == {"holds": 3, "new": 5}


def test_a_planned_point_that_neither_has_is_missing(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in studies:
        logs.study_toml(folder, more=PLAN)
        for path in (folder / "runs").glob("*horovod-mpi-2*"):
            path.unlink()
    code, said, error = check(capsys, *map(str, studies))
    assert code == 3
    assert states(said) == {"holds": 7, "missing": 1}
    assert "missing: horovod/mpi, 2 ranks, 16 images per rank: planned, and no" in error


def test_a_study_in_which_every_run_failed_cannot_hold(
    studies: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (studies[1] / "runs").iterdir():
        logs.edit(path, '"status": "ok"', '"status": "failed: loss is nan"')
    code, said, error = check(capsys, *map(str, studies))
    assert code == 3
    assert states(said) == {"missing": 8}
    assert "none of 60 logs is usable" in error
    assert main(["compare", *map(str, studies)]) == 2, "without a check there is nothing to say"
    assert main(["compare", *map(str, reversed(studies)), "--fail-below", "0.5"]) == 2


def test_an_interval_around_the_limit_or_none_is_not_settled(
    studies: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, error = check(capsys, *map(str, studies), below="1")
    assert code == 3
    assert states(said) == {"not settled": 8}
    assert "on both sides of 1" in error
    few = logs.study(tmp_path / "few", blocks=2, seed=4)
    code, said, error = check(capsys, str(studies[0]), str(few))
    assert code == 3
    assert "no interval from fewer than 6 launches" in error


def test_what_is_surely_slower_outweighs_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logs.study(tmp_path / "before", sd=0.002, seed=1)
    after = logs.study(tmp_path / "after", cells={"single": 1.0, "ddp/mpi": 3.0}, sd=0.002, seed=2)
    code, said, _ = check(capsys, str(before), str(after))
    assert code == 1
    assert said["verdict"] == "slower"
    assert states(said) == {"slower": 3, "holds": 2, "missing": 3}


def bucketed(folder: Path, seconds: dict[str, float], seed: int) -> Path:
    """A study of two bucket sizes, which are no field of the work; runs of the variants named."""
    more = (
        'cells = ["ddp/mpi", "horovod/mpi"]\nscaling = ["weak"]\nworld_sizes = [2]\n'
        'settings = "matched"\n[weak]\nbatch_per_rank = 16\n'
        "[variants.small]\nbucket_mib = 1.0\n[variants.large]\nbucket_mib = 25.0\n"
    )
    logs.study_toml(folder, blocks=6, more=more)
    size, noise = {"small": 1.0, "large": 25.0}, np.random.default_rng(seed)
    for block, cell, variant in itertools.product(range(6), ("ddp/mpi", "horovod/mpi"), seconds):
        fields = {"settings": "matched", "variant": variant, "bucket_mib": size[variant]}
        run = logs.config(cell, 2, 16, block, **fields)
        path = folder / "runs" / f"{block}-{cell.replace('/', '-')}-{variant}.jsonl"
        logs.write(path, run, seconds[variant] * np.exp(noise.normal(0, 0.005)))
    return folder


def test_every_point_of_variants_of_any_field_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two points under one name would be one, and the gate would not see the other."""
    before = bucketed(tmp_path / "before", {"small": 0.1, "large": 0.2}, seed=1)
    slower = bucketed(tmp_path / "slower", {"small": 0.2, "large": 0.2}, seed=2)
    lacking = bucketed(tmp_path / "lacking", {"large": 0.2}, seed=3)
    assert main(["compare", str(before), str(slower), "--fail-below", "0.9"]) == 1
    small, large = (f"2 ranks, 16 images per rank, bucket_mib={n}" for n in (1.0, 25.0))
    error = capsys.readouterr().err
    assert error.count("slower: ") == 2
    assert f"slower: ddp/mpi, {small}" in error
    assert main(["compare", str(before), str(lacking), "--fail-below", "0.9"]) == 3
    out, error = capsys.readouterr()
    assert error.count("missing: ") == 2
    assert f"missing: ddp/mpi, {small}" in error
    assert large not in error
    ratios = logs.rows(out, "Each study's comparison")
    assert [row["variant"] for row in ratios] == ["bucket_mib=1.0", "bucket_mib=25.0"]
    # planned, and in neither
    again = bucketed(tmp_path / "again", {"large": 0.2}, seed=4)
    assert main(["compare", str(lacking), str(again), "--fail-below", "0.9"]) == 3
    assert f"missing: ddp/mpi, {small}: planned" in capsys.readouterr().err


def test_the_same_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    local = str(ROOT / "results" / "local")
    for more in ([], ["--fail-below", "0.9"]):
        assert main(["compare", local, local, *more]) == 2
        assert "hold the same runs" in capsys.readouterr().err
    assert main(["compare", local, str(ROOT / "results" / "aa")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\| measured \| 20\d\d-\d\d-\d\d", said)


def test_two_precisions_and_two_settings_of_one_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known ratios: twice as fast in bf16, 1.25 times as fast with matched settings."""
    for block in range(6):
        for i, (precision, settings, seconds) in enumerate((
            ("float32", "shipped", 0.2),
            ("bf16", "shipped", 0.1),
            ("float32", "matched", 0.16),
            ("bf16", "matched", 0.08),
        )):  # fmt: skip
            run = logs.config("ddp/mpi", 2, 16, block, precision=precision, settings=settings)
            logs.write(tmp_path / "runs" / f"{block}-{i}.jsonl", run, seconds)
    of = "ddp/mpi,precision="
    assert main(["compare", str(tmp_path), "--cells", f"{of}float32", f"{of}bf16"]) == 0
    rows = [x for x in capsys.readouterr().out.splitlines() if "precision=bf16 over float32" in x]
    assert len(rows) == 2
    assert all("| 2.000 [2.000, 2.000] |" in row for row in rows)
    of = "ddp/mpi,settings="
    assert main(["compare", str(tmp_path), "--cells", f"{of}shipped", f"{of}matched"]) == 0
    rows = [x for x in capsys.readouterr().out.splitlines() if "matched over shipped" in x]
    assert len(rows) == 2
    assert all("| 1.250 [1.250, 1.250] |" in row for row in rows)
    for words, said in (
        (("ddp/mpi", "ddp/mpi"), "name two that differ"),
        (
            ("ddp/mpi", f"{of}tuned"),
            "of ddp/mpi it has precision=bf16, precision=float32, settings=",
        ),
        (("ddp/mpi", "ddp/mpi,bf16"), "'bf16' is no FIELD=VALUE"),
    ):
        assert main(["compare", str(tmp_path), "--cells", *words]) == 2
        assert said in capsys.readouterr().err
