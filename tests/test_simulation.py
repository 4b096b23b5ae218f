"""Simulated studies: the same statistics as reports use, and what they promise is kept."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.study import stats
from tests.simulation import studies as simulation
from tests.simulation.__main__ import main
from tests.simulation.noise import Measured
from tests.simulation.studies import LOOKS, OF_TURNS, outcomes, simulate, swapped

ROOT = Path(__file__).parents[1]
MEASURED = Measured(
    comparisons=1,
    freedom=5,
    paired_sd=0.05,
    lowest_sd=0.02,
    highest_sd=0.1,
    run_sd=0.035,
    launch_sd=0.1,
    residuals=(-1.5, -0.5, 0.0, 0.5, 1.5),
)


@pytest.mark.parametrize("n", simulation.LAUNCHES)
def test_many_studies_at_once_are_as_one_by_one(n: int) -> None:
    random = np.random.default_rng(n)
    d = random.normal(0.02, 1, (200, n)) * random.uniform(0.001, 0.06, (200, 1))
    found, fitted = outcomes(d), swapped(d)
    first = [True, False] * (n // 2)
    verdicts = set()
    for i, ratios in enumerate(np.exp(d)):
        given = {"numerator": ratios.tolist(), "denominator": [1.0] * n}
        for many, one in (
            (found, stats.paired_ratio(**given)),
            (fitted, stats.paired_ratio(**given, first=first)),
        ):
            ends = one.interval(0.02) or (0.0, 0.0)
            halves = [np.exp(many.mean[i] + s * many.half(0.02)[i]) for s in (-1, 1)]
            assert ends == pytest.approx(halves, rel=1e-12)
            verdict = stats.decide(ends, 0.02)
            equal, differ = many.equal(0.02, 0.02)[i], many.differ(0.02)[i]
            assert verdict == ("equal" if equal else "faster" if differ else "not settled")
            verdicts.add(verdict)
    assert len(verdicts) == 3


def test_the_noise_is_that_of_the_logs(tmp_path: Path) -> None:
    folder = ROOT / "results" / "local"
    main([str(folder), "--out", str(tmp_path)])
    found = json.loads((tmp_path / "simulation.json").read_text())
    compared = json.loads((folder / "summary.json").read_text())["comparisons"]
    sds = [np.std(np.log(list(map(float, c["ratios"]))), ddof=1) for c in compared]
    squares = sum((c["n"] - 1) * sd**2 for c, sd in zip(compared, sds, strict=True))
    freedom = sum(c["n"] - 1 for c in compared)
    noise = found["measured"]
    assert (found["simulated"], found["noise_of"]) == (True, ["local"])
    assert noise["paired_sd"] == pytest.approx((squares / freedom) ** 0.5, rel=1e-9)
    assert noise["lowest_sd"] == pytest.approx(min(sds), rel=1e-9)
    assert np.std(noise["residuals"]) == pytest.approx(1)
    assert (tmp_path / "coverage.csv").read_text().startswith("noise,launches,coverage\n")


def test_normal_noise_keeps_the_promises_and_one_sided_skew_does_not() -> None:
    found = simulate(MEASURED, studies=2000, seed=1)
    assert found == simulate(MEASURED, studies=2000, seed=1)
    coverage = {(c.noise, c.launches): c.coverage for c in found.coverage}
    assert coverage["normal, as measured", 6] == pytest.approx(0.95, abs=0.015)
    assert coverage["stragglers in one arm alone", 6] < 0.9  # 84 % in another simulation
    at = {(x.sd, round(x.effect, 2)): x for x in found.looks}
    assert max(x.wrong for x in found.looks) < 0.065
    large, none = at[OF_TURNS, 0.05], at[OF_TURNS, 0.0]
    assert (large.settled[0] > 0.85, large.launches < 6.5, none.settled[-1] > 0.9) == (True,) * 3
    assert len(none.settled) == len(LOOKS)
    met = {bar.what.partition(":")[0]: bar.met for bar in found.bars}
    assert met["wrong verdicts of studies that stop when settled"]


def test_a_folder_without_enough_launches_is_refused() -> None:
    with pytest.raises(SystemExit, match="no comparison of 6 launches; name studies that have"):
        main([str(ROOT / "results" / "batch-lr"), "--out", "/nowhere"])
