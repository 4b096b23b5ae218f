"""The report and its command: numbers agree with summary.json, reasons are said, without torch."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench.record import append_event
from bench.study.files import read_study
from plots.__main__ import main
from tests.plots import logs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a study with a failed run, a superseded attempt and a crash after complete data."""
    folder = logs.study(tmp_path_factory.mktemp("results") / "test", launches=6)
    logs.study_toml(folder, launches=6)
    runs, run = folder / "runs", logs.config("single", launch=6)
    logs.write(runs / "x.jsonl", run, 0.1, end={"status": "failed: loss | is nan"})
    logs.write(runs / "x.attempt-1.jsonl", run, 0.1, windows=1)
    crashed = runs / "0-weak-single-1.jsonl"
    append_event(crashed, "exit", code=139, timed_out=False, limit_s=60.0)
    report(folder)
    return folder


def summary(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def report(folder: Path) -> str:
    """Make it, and give the page."""
    assert main(["report", str(folder)]) == 0
    return logs.page(folder)


def test_numbers_agree_with_the_summary(study: Path) -> None:
    text, values = logs.page(study), summary(study)
    printed = logs.rows(text, "Throughput")
    assert len(printed) == len(values["throughput"]) == 10
    for row, t in zip(printed, values["throughput"], strict=True):
        e = t["images_per_s"]
        assert (row["curve"], row["cell"]) == (t["curve"], t["cell"])
        assert row["images/s [95 %]"] == f"{e['value']:.1f} [{e['low95']:.1f}, {e['high95']:.1f}]"
        assert row["n"] == str(e["n"]) == "6"
    printed = logs.rows(text, "Scaling")
    assert len(printed) == len(values["scaling"]) == 12
    for row, s in zip(printed, values["scaling"], strict=True):
        e = s["efficiency"]
        value, low, high = (f"{100 * e[end]:.1f}" for end in ("value", "low95", "high95"))
        assert row["efficiency [95 %]"] == f"{value} % [{low}, {high}]"
        assert row["baseline"] == s["baseline_kind"]


def test_one_verdict_is_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What others take away is gone everywhere: p = 0.045 of one of three that is not primary."""
    unresolved = [0.1, -0.1] * 3
    planted = {(1, 16): [0.1, 0.02, 0.09, -0.02, 0.08, 0.03], (1, 32): unresolved}
    for (world_size, batch), d in (planted | {(2, 16): unresolved}).items():
        for launch, log_ratio in enumerate(d):
            for cell, factor in (("ddp/mpi", math.exp(log_ratio)), ("horovod/mpi", 1.0)):
                name = f"{launch}-{cell[0]}-{world_size}-{batch}.jsonl"
                run = logs.config(cell, world_size, batch, launch)
                logs.write(tmp_path / "runs" / name, run, 0.1 * factor)
    logs.study_toml(tmp_path)
    text = report(tmp_path)
    point = {"batch_per_rank": 16, "world_size": 1}
    (c,) = [c for c in summary(tmp_path)["comparisons"] if point.items() <= c.items()]
    assert (c["t_p"] < 0.05, c["verdict"]) == (True, "Not settled")
    low, high = (100 * (end - 1) for end in c["interval"])
    said = f"Not settled: {100 * (c['ratio'] - 1):.1f} % [{low:.1f}, {high:.1f}]"
    assert c["verdict_text"] == said
    assert said in text
    assert "Not settled at 3 of 3 points" in capsys.readouterr().out
    figure = (tmp_path / "figures" / "ratio.svg").read_text()
    assert "Not settled" in figure
    assert "Horovod faster" not in text + figure


def test_nothing_is_dropped_silently(study: Path) -> None:
    text, values = logs.page(study), summary(study)
    assert "60 usable runs in 6 launches; 1 unusable log; 1 superseded attempt, kept" in text
    assert r"| x.jsonl | failed | exit code 0: loss \| is nan |" in text
    assert "| x.attempt-1.jsonl | interrupted | killed together with its job |" in text
    assert "1 usable run ended with an exit code other than 0" in text
    assert [u["log"] for u in values["unusable"]] == ["x.jsonl"]
    assert len(values["runs"]) == 60


def test_a_second_report_changes_no_byte(study: Path, tmp_path: Path) -> None:
    assert main(["report", str(study), "--out", str(tmp_path)]) == 0
    again, first = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*.*")}
        for top in (tmp_path, study)
    )
    assert again == {k: v for k, v in first.items() if k.parts[0] not in ("runs", "study.toml")}


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["report", "/nowhere"], "/nowhere: no such folder; give a study's folder"),
        (["report"], "STUDY is missing; see python -m plots report --help"),
        (["reprot", "x"], "did you mean 'report'"),
        ([], "no command is named; choose one of report, "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    argv: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert part in error


def test_a_study_that_was_changed_after_its_runs_is_named(tmp_path: Path) -> None:
    logs.study_toml(tmp_path)
    sha256 = read_study(tmp_path / "study.toml").sha256
    logs.study(tmp_path, launches=2, study_sha256=sha256)
    hand = logs.config("single", study="test", launch=None)  # carries none, and is not counted
    logs.write(tmp_path / "runs" / "hand.jsonl", hand, 0.1)
    report(tmp_path)
    assert "study changed" not in [check["name"] for check in summary(tmp_path)["checks"]]
    logs.study_toml(tmp_path, margin=0.2)
    report(tmp_path)
    why = {check["name"]: check["why"] for check in summary(tmp_path)["checks"]}
    differs = "The study file differs from the one that 20 of 21 runs carry: what is fixed before"
    assert why["study changed"].startswith(differs)


def test_another_study_shows_the_scaling_beside_a_verdict(tmp_path: Path) -> None:
    studies = (ROOT / "results" / name for name in ("local", "emulated"))
    local, emulated = map(str, studies)
    assert main(["report", local, "--scaling", emulated, "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["figures"] == ["ratio", "scaling"]
    assert (data["study"]["name"], data["scaling_study"]["study"]["name"]) == ("local", "emulated")
    assert {row["world_size"] for row in data["scaling_study"]["scaling"]} == {1, 2, 4, 8}
    text = (tmp_path / "report.md").read_text()
    assert "Emulated: Weak scaling, 8 ranks" in text
    assert "8 ranks" not in text.partition("Curves: ")[0]
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert [one for one in titles if "Scaling" in one] == [
        "## Scaling curves: Throughput (emulated)",
        "## Scaling curves: Scaling (emulated)",
    ]
    assert "Curves: Compute is emulated: each rank slept as long as resnet50-p100-32px" in text
    differ = "on 2 ranks (4 images per rank) DDP is ahead (Horovod / DDP = 0.944"
    assert f"Real and emulated differ: with real compute {differ}" in text
    assert "on 8 ranks (2048 images per rank) Horovod is ahead (Horovod / DDP = 1.044" in text
    assert main(["report", local, "--scaling", str(ROOT / "results/aa"), "--out", "x"]) == 2
