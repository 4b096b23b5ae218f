"""The exchange alone as a bound: known seconds give known efficiencies, on the page and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plots.__main__ import main
from plots.analyse.exchange import fit
from tests.plots import logs
from tests.plots.test_collectives import log

pytestmark = pytest.mark.usefixtures("undrawn")

CPU = "Test CPU @ 2 GHz"


def test_two_regimes_are_fitted_with_their_latency_and_bandwidth() -> None:
    small = [(2**k, 20e-6 + 2**k / 1e9) for k in range(10, 18, 2)]
    large = [(2**k, 400e-6 + 2**k / 4e9) for k in range(20, 28, 2)]
    (one, first), (two, second) = fit([*small, *large])
    assert (one, two) == ((2**10, 2**16), (2**20, 2**26))
    assert [*first, *second] == pytest.approx([20e-6, 1e-9, 400e-6, 0.25e-9])
    ((_, falling),) = fit([(1000, 3.0), (2000, 2.0), (3000, 1.0)])
    assert (1 < falling[0] < 2, falling[1]) == (True, 0), "neither part is negative"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Provide a study whose gradients an all-reduce exchanges in 15 us + 1.5 ns a byte."""
    logs.study(tmp_path, sd=0.0)
    sweep = log(tmp_path / "collectives", "ddp/mpi")
    sweep.write_text(sweep.read_text().replace("Test CPU", CPU))
    return tmp_path


def bounds(folder: Path, gradient_bytes: int = 10**8) -> dict[str, dict[str, float]]:
    """Report, and read the bounds by curve."""
    for path in (folder / "runs").glob("*.jsonl"):
        logs.edit(path, '"workload": {}', f'"workload": {{"gradient_bytes": {gradient_bytes}}}')
    assert main(["report", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    return {bound["curve"]: bound for bound in summary["bounds"]}


def test_a_rank_of_strong_scaling_has_its_share_of_the_compute(study: Path) -> None:
    strong, seconds = bounds(study)["strong"], 15e-6 + 0.15
    rows = json.loads((study / "summary.json").read_text())["throughput"]
    alone = {(t["cell"], t["batch_per_rank"]): t["step_seconds"]["value"] for t in rows}
    half = alone["single", 32] / 2
    assert strong["exchange_seconds"] == pytest.approx(seconds)
    assert strong["visible_efficiency"] == pytest.approx(half / (half + seconds))
    assert strong["hidden_efficiency"] == pytest.approx(half / seconds)


@pytest.mark.parametrize(
    ("cpu", "gradient_bytes", "reason"),
    [
        ("Another CPU", 10**8, f"cpu: Another CPU, {CPU}"),
        (CPU, 10**9, "no all-reduce of 1,000,000,000 bytes lies on a fitted line"),
    ],
)
def test_no_bound_of_another_processor_or_beyond_what_was_measured(
    study: Path, cpu: str, gradient_bytes: int, reason: str
) -> None:
    sweep = study / "collectives" / "ddp-mpi.jsonl"
    sweep.write_text(sweep.read_text().replace(CPU, cpu))
    assert bounds(study, gradient_bytes) == {}
    summary = json.loads((study / "summary.json").read_text())
    reasons = {x["reason"] for x in summary["not_compared"] if "all-reduces alone" in x["what"]}
    assert reasons == {reason}


def test_two_logs_of_one_cell_are_refused(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = study / "collectives" / "ddp-mpi.jsonl"
    sweep.with_name("again.jsonl").write_bytes(sweep.read_bytes())
    assert main(["report", str(study)]) == 2
    assert "2 logs of 1 cells and numbers of ranks; leave one of each" in capsys.readouterr().err
