"""The report and its command: numbers agree with summary.json, reasons are said, without torch."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.record import append_event
from bench.study.files import salvage_study
from plots.__main__ import main
from tests.plots import logs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With blemishes: a failed run, a superseded attempt, a crash after complete data."""
    folder = logs.study(tmp_path_factory.mktemp("results") / "test", blocks=6)
    logs.study_toml(folder, blocks=6)
    runs, run = folder / "runs", logs.config("single", block=6)
    logs.write(runs / "x.jsonl", run, 0.1, end={"status": "failed: loss | is nan"})
    logs.write(runs / "x.attempt-1.jsonl", run, 0.1, windows=1)
    crashed = runs / "0-weak-single-1.jsonl"
    append_event(crashed, "exit", code=139, timed_out=False, limit_s=60.0)
    report(folder)
    return folder


def summary(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def page(folder: Path) -> str:
    return logs.page(folder)


def report(folder: Path) -> str:
    """Make it, and give the page."""
    assert main(["report", str(folder)]) == 0
    return page(folder)


def test_the_answer_comes_first(study: Path) -> None:
    text = page(study)
    head = "# test: Horovod against PyTorch DDP\n\n> Which is faster?\n\n**DDP is "
    assert text.startswith(head)
    plain = text.removeprefix(head).splitlines()[0]
    of = " % faster than Horovod on 2 ranks over MPI on this machine ("
    assert re.fullmatch(rf"[\d.]+{re.escape(of)}.* %\); on another day expect .* %\.\*\*", plain)
    answer = text.split("## Answer\n\n")[1]
    assert answer.startswith("- **Horovod against DDP:** DDP faster at all 3 points (by ")
    for c in summary(study)["comparisons"]:
        where = f"{c['samples_per_rank']} images per rank"
        size = re.compile(rf"\*\*(Primary: )?{c['world_size']} rank")
        lines = [x for x in text.splitlines() if size.search(x) and where in x]
        assert c["verdict_text"] in lines[0]
        low, high = c["interval"]
        assert f"= {c['ratio']:.3f} [{low:.3f}, {high:.3f}]; 6 launches, margin 2 %." in lines[0]
    assert "Launches planned: 6, at most 20; launches with usable runs: 6." in text


def test_numbers_agree_with_the_summary(study: Path) -> None:
    text, values = page(study), summary(study)
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
    printed = logs.rows(text, "Step times")
    for row, s in zip(printed, values["step_times"], strict=True):
        e = s["median_seconds"]
        low, high = (f"{1e3 * e[end]:.1f}" for end in ("low95", "high95"))
        assert row["median ms"] == f"{1e3 * e['value']:.1f} [{low}, {high}]"


def test_the_summary_is_not_rounded_and_follows_from_the_runs(study: Path) -> None:
    values = summary(study)

    def log_rates(cell: str) -> list[float]:
        point = {"cell": cell, "world_size": 1, "samples_per_rank": 16}
        found = [r for r in values["runs"] if point.items() <= r.items()]
        return [math.log(r["images_per_s"]) for r in sorted(found, key=lambda r: r["block"])]

    pairs = zip(log_rates("ddp/mpi"), log_rates("horovod/mpi"), strict=True)
    ratio = math.exp(sum(b - a for a, b in pairs) / 6)
    (c,) = [c for c in values["comparisons"] if (c["world_size"], c["samples_per_rank"]) == (1, 16)]
    assert c["ratio"] == pytest.approx(ratio, rel=1e-12)
    assert c["ratio"] != round(c["ratio"], 6)


def test_one_verdict_is_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What others take away is gone everywhere: p = 0.045 of one of three that is not primary."""
    unresolved = [0.1, -0.1] * 3
    planted = {(1, 16): [0.1, 0.02, 0.09, -0.02, 0.08, 0.03], (1, 32): unresolved}
    for (world_size, batch), d in (planted | {(2, 16): unresolved}).items():
        for block, log_ratio in enumerate(d):
            for cell, factor in (("ddp/mpi", math.exp(log_ratio)), ("horovod/mpi", 1.0)):
                name = f"{block}-{cell[0]}-{world_size}-{batch}.jsonl"
                run = logs.config(cell, world_size, batch, block)
                logs.write(tmp_path / "runs" / name, run, 0.1 * factor)
    logs.study_toml(tmp_path)
    report(tmp_path)
    point = {"samples_per_rank": 16, "world_size": 1}
    (c,) = [c for c in summary(tmp_path)["comparisons"] if point.items() <= c.items()]
    assert (c["t_p"] < 0.05, c["verdict"]) == (True, "Not settled")
    low, high = (100 * (end - 1) for end in c["interval"])
    said = f"Not settled: {100 * (c['ratio'] - 1):.1f} % [{low:.1f}, {high:.1f}]"
    assert c["verdict_text"] == said
    assert said in page(tmp_path)
    assert "Not settled at all 3 points" in capsys.readouterr().out
    figure = (tmp_path / "figures" / "ratio.svg").read_text()
    assert "Not settled" in figure
    assert "Horovod faster" not in page(tmp_path) + figure


def test_nothing_is_dropped_silently(study: Path) -> None:
    text, values = page(study), summary(study)
    assert "60 usable runs in 6 blocks; 1 unusable log; 1 superseded attempt, kept" in text
    assert r"| `x.jsonl` | failed | exit code 0: loss \| is nan |" in text
    assert "| `x.attempt-1.jsonl` | interrupted | killed together with its job |" in text
    assert "1 usable run ended with an exit code other than 0" in text
    assert [u["log"] for u in values["unusable"]] == ["x.jsonl"]
    assert len(values["runs"]) == 60


def test_the_primary_comparison_comes_first_and_is_named(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study / "runs", tmp_path / "runs")
    primary = 'primary = { curve = "weak", world_size = 1, batch_per_rank = 16 }\n'
    (tmp_path / "study.toml").write_text((study / "study.toml").read_text() + primary)
    text = report(tmp_path)
    second = text.split("## Answer\n")[1].splitlines()[2]
    assert second.startswith("- **Primary: 1 rank, 16 images per rank, mpi (")
    marked = [
        row["verdict"].startswith("primary: ") for row in logs.rows(text, "Horovod against DDP")
    ]
    assert marked == [True, False, False]
    assert "**Primary: 2 ranks, " in page(study), "unnamed: of the most ranks"
    assert [c["primary"] for c in summary(tmp_path)["comparisons"]] == [True, False, False]


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants")
    (folder / "runs").mkdir()
    for compiled in (False, True):
        for cell in ("single", "ddp/mpi", "horovod/mpi"):
            for world_size in (1,) if cell == "single" else (1, 2):
                run = logs.config(cell, world_size, compile=compiled)
                path = folder / "runs" / f"{cell.replace('/', '-')}-{world_size}-{compiled}.jsonl"
                logs.write(path, run, 0.1 * world_size, input_seconds=[0.125] * world_size)
    report(folder)
    return folder


def test_what_a_variant_gains_stands_in_a_table_of_its_own(variants: Path, study: Path) -> None:
    printed = logs.rows(page(variants), "Variants")
    said = [(row["variant"], row["over"], row["images/s, ratio [95 %]"]) for row in printed]
    assert said == [("compile=True", "compile=False", "1.000 (n=1, no interval)")] * 5
    assert {g["ratio"]["value"] for g in summary(variants)["gains"]} == {1.0}
    assert "## Variants" not in page(study)


def test_a_second_report_changes_no_byte(study: Path, tmp_path: Path) -> None:
    assert main(["report", str(study), "--out", str(tmp_path / "again")]) == 0
    for path in (tmp_path / "again").rglob("*.*"):
        first = study / path.relative_to(tmp_path / "again")
        assert path.read_bytes() == first.read_bytes(), path.name


def test_one_run_by_hand_still_reports(tmp_path: Path) -> None:
    """A real log, alone, without block, study file or a launcher's exit event."""
    real = (ROOT / "tests" / "fixtures" / "run-schema-10.jsonl").read_text()
    kept = [line for line in real.splitlines() if '"exit"' not in line]
    (tmp_path / "run.jsonl").write_text("\n".join(kept))
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "mlp" in page(tmp_path)
    assert summary(tmp_path)["runs"][0]["exit_code"] is None
    assert "weak-throughput" not in summary(tmp_path)["figures"]  # one point is no curve


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["report", "/nowhere"], "/nowhere: no such folder; give a study's folder"),
        (["report"], "STUDY is missing; see python -m plots report --help"),
        (["reprot", "x"], "did you mean 'report'"),
        (["report", "x", "--ot", "y"], "--out"),
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


WITHOUT_TORCH = """
import importlib, importlib.abc, pkgutil, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('torch', 'torchvision', 'horovod', 'mpi4py', 'sklearn'):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import plots
for module in pkgutil.walk_packages(plots.__path__, 'plots.'):
    importlib.import_module(module.name)
from plots.__main__ import main
code = main(sys.argv[1:])
try:
    import torch
except ModuleNotFoundError:
    print('blocked')
sys.exit(code)
"""


def python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-c", code, *argv)
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_report_is_made_where_torch_is_not_installed(study: Path, tmp_path: Path) -> None:
    done = python(WITHOUT_TORCH, "report", str(study), "--out", str(tmp_path))
    slow = "run logs read"  # what a busy machine is told of its progress
    said = [line for line in done.stderr.splitlines() if not line.endswith(slow)]
    assert (done.returncode, said) == (0, [])
    assert done.stdout.endswith("blocked\n")
    for name in ("report.md", "report.html"):
        assert (tmp_path / name).read_text() == (study / name).read_text()


def test_a_study_that_was_changed_after_its_runs_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.study_toml(tmp_path)
    sha256 = salvage_study(tmp_path / "study.toml", "")[0].sha256
    logs.study(tmp_path, blocks=2, study_sha256=sha256)
    hand = logs.config("single", study="test", block=None)  # carries none, and is not counted
    logs.write(tmp_path / "runs" / "hand.jsonl", hand, 0.1)
    assert main(["report", str(tmp_path)]) == 0
    page = logs.page(tmp_path)
    assert "Margin fixed in the study: 2 %. Launches" in page
    assert "study file" not in page + capsys.readouterr().out
    logs.study_toml(tmp_path, margin=0.2)
    assert main(["report", str(tmp_path)]) == 0
    page = logs.page(tmp_path)
    differs = "The study file differs from the one that 20 of 21 runs carry: what is fixed before"
    assert "Margin of the changed study: 20 %." in page
    assert f"- *study changed*: {differs}" in page
    assert "In doubt: study changed" in capsys.readouterr().out
    assert differs in str(json.loads((tmp_path / "summary.json").read_text())["checks"])
