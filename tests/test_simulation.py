"""Simulated studies: the statistics of reports keep what they promise, and designs differ."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.study.stats import nominal_level
from tests.simulation import __main__ as simulation

LOCAL = Path(__file__).parents[1] / "results" / "local"


def test_the_noise_is_that_of_the_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulation.main([str(LOCAL), "--out", str(tmp_path), "--studies", "20"])
    compared = json.loads((LOCAL / "summary.json").read_text())["comparisons"][0]
    sd, residuals = simulation.measured([LOCAL])
    assert sd == pytest.approx(np.std(np.log(compared["ratios"]), ddof=1), rel=1e-9)
    assert np.std(residuals) == pytest.approx(1)
    assert "met    wrong verdicts of studies that stop when settled: " in capsys.readouterr().out
    assert (tmp_path / "looks.csv").read_text().startswith("sd,effect,wrong,launches,settled_by_6")
    with pytest.raises(SystemExit, match=r"^error: .*batch-lr: no comparison of 6 launches"):
        simulation.main([str(LOCAL.parent / "batch-lr")])


def test_normal_noise_keeps_the_promises_and_one_sided_skew_does_not() -> None:
    random = np.random.default_rng(1)
    drawn = simulation.draw(random, (600, 12), 0.05, (-1.5, -0.5, 0.0, 0.5, 1.5))
    assert all(abs(np.mean(noise)) < 0.01 for noise in drawn.values())
    coverage = simulation.coverage(drawn).set_index(["noise", "launches"]).coverage
    assert coverage["normal, as measured"].mean() == pytest.approx(0.95, abs=0.015)
    assert coverage["stragglers in one arm alone", 6] < 0.91  # 86 % of 20,000
    looks = simulation.looks(random, 300, (simulation.OF_TURNS,)).set_index("effect")
    assert looks.wrong.max() < 0.08
    none, large = looks.iloc[0], looks.iloc[-1]
    assert (large.settled_by_6 > 0.85, large.launches < 6.5, none.settled_by_20 > 0.9) == (1, 1, 1)


@pytest.mark.parametrize(
    ("logs", "margins", "expected"),
    [
        ([0.05, 0.051], 0.0, (6, True)),
        ([-0.05, -0.051], 2.5, (6, True)),  # the wrong side
        ([0.001, -0.001], 0.5, (6, False)),
        ([0.001, -0.001], 1.0, (6, True)),
        ([-0.2, -0.1, 0.1, 0.2], 0.0, (21, False)),
    ],
)
def test_a_verdict_is_judged(logs: list[float], margins: float, expected: tuple[int, bool]) -> None:
    level = nominal_level(simulation.LOOKS)
    assert simulation.look(np.resize(logs, 20), margins, level) == expected


def test_designs_at_the_costs_of_a_measured_study(capsys: pytest.CaptureFixture[str]) -> None:
    simulation.main(["designs", str(LOCAL), "--studies", "50"])
    rows = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(rows) == 24
    assert [*rows.launches[:4]] == [12, 11, 8, 5]
    assert [*rows.launch_s[:4].round()] == [34, 37, 47, 72]
    quiet, loud = rows[:4], rows[-4:]
    assert quiet.finds_3_percent.min() > 0.8 > loud.finds_3_percent.max()
    assert [*loud.half_width] == sorted(loud.half_width), "more launches win where they differ"
