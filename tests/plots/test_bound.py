"""The exchange alone as a bound: known seconds give known efficiencies, on the page and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")

BYTES = 100_000_000


def measured(
    folder: Path, cell: str, seconds_per_byte: float, cpu: str = "Test CPU @ 2 GHz"
) -> None:
    """Write all-reduces of two ranks that take no latency, and `seconds_per_byte`."""
    start = {
        "config": {"world_size": 2},
        "workload": {"cell": cell},
        "host": {"ranks": [{"cpu": cpu, "hostname": "node1"}]},
    }
    events = [{"event": "start", **start}]
    for size in (2**10, 2**20, 2**28):
        seconds = [[size * seconds_per_byte] * 3] * 2
        events.append(
            {"event": "collective", "kind": "all_reduce", "bytes": size, "seconds": seconds}
        )
    events.append({"event": "end", "status": "ok"})
    (folder / "collectives").mkdir(exist_ok=True)
    path = folder / "collectives" / f"{cell.replace('/', '-')}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    logs.study(tmp_path, sd=0.0)
    for path in (tmp_path / "runs").glob("*.jsonl"):
        logs.edit(path, '"workload": {}', f'"workload": {{"gradient_bytes": {BYTES}}}')
    return tmp_path


def bounds(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    assert main(["report", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    return {(b["curve"], b["cell"]): b for b in summary["bounds"]}


def test_a_rank_of_strong_scaling_has_its_share_of_the_compute(study: Path) -> None:
    measured(study, "ddp/mpi", 0.5e-9)  # 0.05 s
    strong = bounds(study)["strong", "ddp/mpi"]
    rows = json.loads((study / "summary.json").read_text())["throughput"]
    alone = {(t["cell"], t["batch_per_rank"]): t["step_seconds"]["value"] for t in rows}
    half = alone["single", 32] / 2
    assert strong["exchange_seconds"] == pytest.approx(0.05, rel=1e-6)
    assert strong["visible_efficiency"] == pytest.approx(half / (half + 0.05))


def test_no_bound_of_another_processor_or_beyond_what_was_measured(study: Path) -> None:
    measured(study, "ddp/mpi", 1e-9, cpu="Another CPU")
    assert bounds(study) == {}
    summary = json.loads((study / "summary.json").read_text())
    reasons = {x["reason"] for x in summary["not_compared"] if "all-reduces alone" in x["what"]}
    assert reasons == {"cpu: Another CPU, Test CPU @ 2 GHz"}


def test_two_logs_of_one_cell_are_refused(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(study, "ddp/mpi", 1e-9)
    there = study / "collectives" / "ddp-mpi.jsonl"
    there.with_name("again.jsonl").write_bytes(there.read_bytes())
    assert main(["report", str(study)]) == 2
    assert "2 logs of 1 cells and numbers of ranks; leave one of each" in capsys.readouterr().err
