"""The exchange alone: the figure of its times, and the bound that known seconds give a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.study.collectives import read
from plots.__main__ import main
from plots.report.figures import collectives
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")

CPU = "Test CPU @ 2 GHz"
SIZES = (2**10, 2**16, 2**22, 2**28)


def log(folder: Path, cell: str, seconds: float = 1.0, **end: Any) -> Path:
    """Write a log of two ranks with 10 us and 1 GB/s, of which rank 1 is the slower by a half."""
    rank = {"cpu": CPU, "hostname": "node1"}
    start = {"config": {"world_size": 2}, "workload": {"cell": cell}, "host": {"ranks": [rank]}}
    events: list[dict[str, Any]] = [{"event": "start", **start}]
    for size in SIZES:
        fast = seconds * (10e-6 + size / 1e9)
        each = {"kind": "all_reduce", "bytes": size, "seconds": [[fast] * 3, [1.5 * fast] * 3]}
        events.append({"event": "collective", **each})
    events.append({"event": "end", "status": "ok", **end})
    folder.mkdir(exist_ok=True)
    path = folder / f"{cell.replace('/', '-')}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def bounds(folder: Path, sweep: str, gradient_bytes: int = 10**8) -> Any:
    """Report on a study with this sweep; return its bounds by curve, and why others are missing."""
    logs.study(folder, sd=0.0)
    path = log(folder / "collectives", "ddp/mpi")
    path.write_text(path.read_text().replace(CPU, sweep))
    for run in (folder / "runs").glob("*.jsonl"):
        logs.edit(run, '"workload": {}', f'"workload": {{"gradient_bytes": {gradient_bytes}}}')
    assert main(["report", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    reasons = [x["reason"] for x in summary["not_compared"] if "all-reduces alone" in x["what"]]
    return {bound["curve"]: bound for bound in summary["bounds"]}, {*reasons}, summary


def test_a_rank_of_strong_scaling_has_its_share_of_the_compute(tmp_path: Path) -> None:
    by_curve, _, summary = bounds(tmp_path, CPU)
    strong, seconds = by_curve["strong"], 15e-6 + 0.15
    rows = summary["throughput"]
    alone = {(t["cell"], t["batch_per_rank"]): t["step_seconds"]["value"] for t in rows}
    half = alone["single", 32] / 2
    assert strong["exchange_seconds"] == pytest.approx(seconds, rel=1e-3), "15 us + 1.5 ns a byte"
    assert strong["visible_efficiency"] == pytest.approx(half / (half + seconds), rel=1e-3)
    assert strong["hidden_efficiency"] == pytest.approx(half / seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("cpu", "gradient_bytes", "reason"),
    [
        ("Another CPU", 10**8, f"cpu: Another CPU, {CPU}"),
        (CPU, 10**9, "no all-reduce of 1,000,000,000 bytes lies on a fitted line"),
    ],
)
def test_no_bound_of_another_processor_or_beyond_what_was_measured(
    tmp_path: Path, cpu: str, gradient_bytes: int, reason: str
) -> None:
    assert bounds(tmp_path, cpu, gradient_bytes)[:2] == ({}, {reason})


def test_cells_and_bus_bandwidths(tmp_path: Path) -> None:
    paths = [log(tmp_path, cell) for cell in ("ddp/mpi", "horovod/gloo", "ours/tcp")]
    figure = collectives.draw([read(path) for path in paths])
    times, rates = figure.axes
    assert times.get_title(loc="left") == "time, slowest rank"
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["PyTorch DDP over MPI", "Horovod over Gloo", "ours/tcp"]
    bus = [size / (15e-6 + 1.5 * size / 1e9) for size in SIZES]
    assert rates.get_lines()[0].get_ydata() == pytest.approx(bus), "of the slowest rank"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path / "good", "ddp/mpi")
    log(tmp_path / "bad", "ddp/gloo", status="failed: 1 result")
    log(tmp_path / "zero", "ddp/gloo", seconds=0.0)
    log(tmp_path / "odd", "ddp/gloo").write_text('{"event": "start"}')
    (tmp_path / "empty").mkdir()
    out = tmp_path / "collectives.svg"
    assert main(["figure", "collectives", str(tmp_path / "good"), "-o", str(out)]) == 0
    assert out.exists()
    for name in ("bad", "zero", "odd", "empty"):
        assert main(["figure", "collectives", str(tmp_path / name), "-o", str(out)]) == 2
    failed, zero, odd, none = capsys.readouterr().err.splitlines()
    assert failed.endswith("has not ended well (failed: 1 result); measure again")
    assert zero.endswith("holds no times; measure again")
    assert odd.endswith("is no log of bench collectives; name one")
    assert none.startswith(f"error: {tmp_path / 'empty'} holds no log of")
