"""Emulated runs are marked wherever they stand, and never meet others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bench.record.outcome import EMULATED
from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import analyse
from plots.report import figures
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")

A, B = "a" * 64, "b" * 64
CHECKS = dict.fromkeys(EMULATED, True)


def emulated(folder: Path, digest: str = A, file: str = "k80.json") -> Path:
    """Write a study as its runs would have, at two ranks with cores that are nearly full."""
    logs.study(folder, emulate=f"/timelines/{file}")
    for path in (folder / "runs").iterdir():
        said = json.dumps({"emulated": True, "timeline_sha256": digest})
        logs.edit(path, '"workload": {}', f'"workload": {said}')
        two = "-2.jsonl" in path.name
        busy = "[0.3, 0.93]" if two else "[0.25]"
        logs.edit(path, '"steps": 5, "seconds"', f'"busy_share": {busy}, "steps": 5, "seconds"')
        ends = path.read_text().split('"checks": ')[1].split("}")[0] + "}"
        logs.edit(path, ends, json.dumps(CHECKS))
    logs.study_toml(folder)
    return folder


def test_emulated_and_real_runs_are_two_lines_each_with_its_name(tmp_path: Path) -> None:
    folder = logs.study(tmp_path / "both")
    for path in (emulated(tmp_path / "e") / "runs").iterdir():
        logs.edit(path, '"arm": null', '"arm": "k80"')
        shutil.copy(path, folder / "runs" / f"e-{path.name}")
    a = analyse(load(folder))
    assert {c.arm for c in a.comparisons} == {"", "k80"}
    assert len(a.comparisons) == 6, "three pairs of each kind, and none across"
    assert not a.gains, "compute that slept gains nothing over compute"
    drawn = {name: figure.get_suptitle() for name, figure in figures.draw(a).items()}
    assert len(drawn) == 4
    assert {"ratio-real", "ratio-emulated"} < set(drawn)
    for name, title in drawn.items():
        emulated_runs = "k80" in name or name == "ratio-emulated"
        assert title.startswith("Emulated: ") == emulated_runs, (name, title)
    for row in a.efficiency:
        assert row.baseline.arm == row.point.arm


def test_other_contents_of_a_timeline_are_other_work(tmp_path: Path) -> None:
    """The path is the same, so that only the digest tells them apart."""
    folder = emulated(tmp_path / "one")
    for path in (emulated(tmp_path / "two", B) / "runs").glob("*horovod*"):
        (folder / "runs" / path.name).write_bytes(path.read_bytes())
    assert not analyse(load(folder)).comparisons


def test_a_log_that_names_no_timeline_is_not_used(tmp_path: Path) -> None:
    folder = emulated(tmp_path / "e")
    logs.edit(folder / "runs/0-weak-single-1.jsonl", '"timeline_sha256"', '"of_old"')
    (wrong,) = load(folder).unusable
    assert wrong.reason == "the digest of the timeline that was followed is missing"


# of a summary: what holds no number of the runs' speed
NO_NUMBERS = {"checks", "not_compared", "gaps", "equal_parameters", "unusable", "superseded"}


@pytest.mark.parametrize("slept", [True, False])
def test_every_table_says_of_each_row_whether_compute_slept(
    tmp_path: Path, slept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = emulated(tmp_path) if slept else logs.study(tmp_path)
    logs.study_toml(folder)
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("Emulated: DDP is ") == slept
    files = {path.name for path in folder.glob("*.csv")}
    assert files == {"runs.csv", "points.csv", "comparisons.csv"}
    for name in files:
        assert set(pd.read_csv(folder / name)["emulated"]) == {slept}, name
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["emulated"] == (["k80.json aaaaaaaaaaaa"] if slept else [])
    lists = [value for key, value in summary.items() if key not in NO_NUMBERS]
    found = [
        rows for rows in lists if isinstance(rows, list) and rows and isinstance(rows[0], dict)
    ]
    assert len(found) >= 6
    for rows in found:
        assert {row["emulated"] for row in rows} == {slept}, rows[0]
    shares = {row["busy_share"] and round(row["busy_share"], 9) for row in summary["throughput"]}
    assert shares == ({0.25, 0.93} if slept else {None})
    text = logs.page(folder)
    assert ("25.0 % at 1 rank, 93.0 % at 2 ranks: from 2 ranks on the" in text) == slept
    for heading in ("Throughput", "Scaling", "Step times", "Horovod against DDP"):
        assert (f"\n## {heading} (emulated)\n" in text) == slept
