"""Predictions beside the measured curves: in the report's table and in its figures."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from bench.study.plan import plan
from plots.__main__ import main
from tests.plots import logs
from tests.plots.predict.test_study import STATED
from tests.plots.test_variants import keep, study_of

HEAD = "name,curve,images,world_size,use,predicted_efficiency,low,high,doubt"


def write(folder: Path, *lines: str, name: str = "from-2.csv") -> None:
    (folder / "predictions").mkdir(exist_ok=True)
    (folder / "predictions" / name).write_text("\n".join((HEAD, *lines)) + "\n")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    logs.study(tmp_path, sd=0.0)
    return tmp_path


def summary(folder: Path) -> dict[str, object]:
    assert main(["report", str(folder)]) == 0
    loaded: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return loaded


def efficiency(folder: Path, cell: str, ranks: int) -> float:
    rows = summary(folder)["scaling"]
    assert isinstance(rows, list)
    row = next(
        r
        for r in rows
        if (r["curve"], r["baseline_kind"], r["cell"], r["world_size"])
        == ("weak", "common", cell, ranks)
    )
    value: float = row["efficiency"]["value"]
    return value


def test_a_prediction_is_held_against_the_run_and_drawn_beyond_it(study: Path) -> None:
    measured = efficiency(study, "ddp/mpi", 2)
    write(
        study,
        f"ddp/mpi,weak,16,2,fitted,{measured},{measured - 0.01},{measured + 0.01},",
        "ddp/mpi,weak,16,64,predicted,0.5,0.4,0.6,the cores of the one node would be full",
        "nobody/mpi,weak,16,64,predicted,0.5,0.4,0.6,",
    )
    told = summary(study)
    rows = told["predictions"]
    assert isinstance(rows, list)
    assert len(rows) == 2
    near, far = sorted(rows, key=lambda row: row["world_size"])
    assert (near["inside"], near["points_off"]) == (True, pytest.approx(0, abs=1e-9))
    assert (far["inside"], far["measured_efficiency"], far["low"]) == (None, None, 0.4)
    assert "no run of it is there at 16 images" in json.dumps(told["not_compared"])
    page = (study / "report.md").read_text()
    assert "Predicted from *fitted* rows" in page
    assert "cores of the one node" in page
    drawn = (study / "figures" / "weak-efficiency.svg").read_text()
    caption = "predicted from at most 2 ranks, with its band of 90 %, but where it is in doubt."
    assert f"Short dashes: {caption}" in drawn


def test_a_prediction_is_held_against_its_own_variant(tmp_path: Path) -> None:
    of_two_sizes = study_of("image_size", {})
    keep(tmp_path, of_two_sizes)
    (tmp_path / "runs").mkdir()
    for run in chain(*plan(of_two_sizes, 2, tmp_path / "runs")):
        slowdown = 1.0 if run.config.backend == "single" else run.config.image_size / 10
        logs.write(run.log, run.config, 0.1 * slowdown)
    (link := tmp_path / "link.toml").write_text(STATED)
    (tmp_path / "predictions").mkdir()
    words = ["--link", str(link), "--ranks", "8", "--format", "csv"]
    out = tmp_path / "predictions" / "from-2.csv"
    assert main(["predict", str(tmp_path), *words, "-o", str(out)]) == 0
    rows = summary(tmp_path)["predictions"]
    assert isinstance(rows, list)
    fitted = {(r["cell"], *r["variant"]): r for r in rows if r["use"] == "fitted"}
    cells = ("ddp/mpi", "horovod/mpi")
    assert {*fitted} == {(c, f"image_size={size}") for c in cells for size in (16, 24)}
    for (_, variant), row in fitted.items():
        slowdown = int(variant.removeprefix("image_size=")) / 10
        assert row["measured_efficiency"]["value"] == pytest.approx(1 / slowdown)
        assert row["points_off"] == pytest.approx(0, abs=0.5)
    assert len(rows) == 2 * len(fitted), "8 ranks of each"


def test_images_that_do_not_divide_are_in_neither_table_nor_figure(study: Path) -> None:
    write(
        study,
        "ddp/mpi,strong,32,2,fitted,0.9,0.8,1.0,",
        "ddp/mpi,strong,32,12,predicted,0.5,0.4,0.6,",
    )
    answer = summary(study)
    rows = answer["predictions"]
    assert isinstance(rows, list)
    assert [row["world_size"] for row in rows] == [2]
    reason = "32 images of a step do not divide among 12 ranks"
    assert reason in json.dumps(answer["not_compared"])


def test_a_table_without_a_fitted_row_is_drawn_too(study: Path) -> None:
    write(study, "ddp/mpi,weak,16,64,predicted,0.5,0.4,0.6,")
    assert summary(study)["predictions"]
    drawn = (study / "figures" / "weak-efficiency.svg").read_text()
    assert "Short dashes: predicted, with its band of 90 %." in drawn


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["ddp/mpi,weak,16,2,guessed,0.9,0.8,1.0,"], "is no table of predictions: use"),
        (["ddp/mpi,weak,16,2,fitted,many,0.8,1.0,"], "is no table of predictions"),
        (["ddp/mpi,weak,16,2,fitted,0.9,0.8,1.0,"] * 2, "predicted twice"),
    ],
)
def test_wrong_tables_are_refused(
    study: Path, lines: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(study, *lines)
    assert main(["report", str(study)]) == 2
    assert said in capsys.readouterr().err
