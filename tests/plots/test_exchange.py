"""What the exchange costs: clocks of several hosts, and the figure of a step's parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.record import read_run
from bench.study.rows import parts_of
from plots.report import figures
from plots.report.write import analysed
from tests.plots import logs

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ahead", [0.0, 7.5])
def test_clocks_of_two_hosts_are_set_by_the_end_of_the_exchange(
    tmp_path: Path, ahead: float
) -> None:
    """Rank 1 has its last gradient 4 ms after rank 0; both are ready 10 ms later."""
    parts = {
        "begin": (50.0, 50.001 + ahead),
        "input": (0.001, 0.001),
        "forward": (0.020, 0.020),
        "backward": (0.040, 0.043),
        "exposed": (0.014, 0.010),
        "optimiser": (0.005, 0.005),
    }
    config = logs.config("ddp/mpi", 2, observe="breakdown")
    ranks = [{"rank": r, "hostname": f"n{r}", "cpu": "x", "threads": 1} for r in range(2)]
    place = logs.host(2, ranks=ranks)
    found = parts_of(
        read_run(logs.write(tmp_path / "a.jsonl", config, 0.09, parts=parts, provenance=place))
    )
    assert found["waiting"] == pytest.approx(0.002), "rank 0 waits 4 ms, rank 1 does not"
    assert found["reducing"] == pytest.approx(0.010)


def test_the_stacks_are_as_long_as_the_steps() -> None:
    a = analysed(ROOT / "results" / "exposed")
    ax, _ = figures.draw(a)["breakdown"].axes
    bars: list[Any] = list(ax.patches)
    rows = {round(p.get_y() + p.get_height() / 2) for p in bars}
    longest = [
        max(p.get_x() + p.get_width() for p in bars if abs(p.get_y() - y) < 0.5) for y in rows
    ]
    steps = [b.step_seconds.value for b in a.breakdowns]
    assert sorted(longest) == pytest.approx(sorted(steps))
    hatches = {(str(p.get_facecolor()), p.get_hatch()) for p in bars}
    assert len(hatches) == len({hatch for _, hatch in hatches}) == 6, "told apart without colours"
