"""Windows in which power or heat lowered a GPU's clock are counted and named, by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.record import read_run
from plots.analyse.runs import load
from plots.analyse.study import analyse
from plots.report.checks import Check, checks
from tests.plots import logs


def clocks(power_s: float, heat_s: float = 0.0, mhz: int = 1980) -> dict[str, list[int | None]]:
    """One rank's readings at the edges of a window, as `bench.instrument.nvml.Clocks` has them."""
    lowered = {"power_ns": power_s, "hw_thermal_ns": heat_s}
    edges: dict[str, list[int | None]] = {
        name: [7, 7 + round(1e9 * seconds)] for name, seconds in lowered.items()
    }
    return {"sm_mhz": [345, mhz], **edges, "thermal_ns": [0, None]}


def check(folder: Path, **of_cells: Any) -> Check:
    """What a report says of one run of each cell: 4 windows of 0.5 s."""
    for backend, of_ranks in of_cells.items():
        run = logs.config(f"{backend}/mpi", 2, block=0)
        path = folder / f"{backend}.jsonl"
        logs.write(path, run, 0.1, provenance=logs.host(2), of_window={"clocks": of_ranks})
        assert read_run(path).problem is None
    (clocks_check,) = [c for c in checks(analyse(load(folder))) if c.name.startswith("clocks")]
    return clocks_check


def test_windows_are_counted_by_cause_and_cell(tmp_path: Path) -> None:
    found = check(
        tmp_path,
        ddp=[clocks(0.004), clocks(0.006, mhz=1755)],  # one rank's: 1.2 % of the window
        horovod=[clocks(0.0, heat_s=0.1), {}],
    )
    assert (found.name, found.holds) == (
        "clocks lowered by power in 4 of 8 windows; by heat in 4 of 8 windows",
        False,
    )
    assert found.why == (
        "Windows whose SM clock was lowered for more than 1 % of their time: "
        "ddp/mpi 4 by power, 0 by heat of 4 windows, 1755 to 1980 MHz at their ends; "
        "horovod/mpi 0 by power, 4 by heat of 4 windows, 1980 to 1980 MHz at their ends."
    )


def test_clocks_that_were_kept(tmp_path: Path) -> None:
    found = check(tmp_path, ddp=[clocks(0.004), {"power_ns": [None, 5]}])
    assert (found.name, found.holds) == ("clocks kept", True)


def test_nothing_is_said_where_no_log_tells(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    logs.write(path, logs.config("ddp/mpi", 2, block=0), 0.1, provenance=logs.host(2))
    assert not [c for c in checks(analyse(load(tmp_path))) if c.name.startswith("clocks")]


def test_a_reading_without_its_pair_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    fields = {"clocks": [{"power_ns": [1]}, {}]}
    logs.write(path, logs.config("ddp/mpi", 2), 0.1, provenance=logs.host(2), of_window=fields)
    assert "window.clocks.0.power_ns" in str(read_run(path).problem)
