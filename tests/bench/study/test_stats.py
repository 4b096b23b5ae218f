"""The statistics against examples computed elsewhere, and their promises by simulation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bench.study import stats

KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "known_answers.json").read_text())
PAIRED = KNOWN["paired"]


def pair(ratios: list[float]) -> stats.Paired:
    return stats.paired_ratio(numerator=ratios, denominator=[1.0] * len(ratios))


def noise(seed: int, shape: tuple[int, ...], sd: float) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, shape)


def binomial_tolerance(p: float, n: int) -> float:
    """Compute 4 standard errors of a share: a seeded simulation that misses by more is wrong."""
    return 4 * math.sqrt(p * (1 - p) / n)


def test_t_interval() -> None:
    assert stats.t_interval(KNOWN["t_ci"]["x"]) == pytest.approx(KNOWN["t_ci"]["ci"], abs=1e-9)
    assert stats.t_interval([3.0]) is None


def test_geometric_mean_is_the_t_interval_of_the_logs() -> None:
    found = stats.geometric_mean([math.exp(x / 100) for x in KNOWN["t_ci"]["x"]])
    logs = [100 * math.log(v) for v in (found.value, found.low or 0, found.high or 0)]
    assert logs == pytest.approx([KNOWN["t_ci"]["mean"], *KNOWN["t_ci"]["ci"]], abs=1e-9)
    assert stats.geometric_mean([1.0]) == stats.Estimate(value=1.0, low=None, high=None, n=1)


def test_paired_ratio() -> None:
    p = stats.paired_ratio(numerator=PAIRED["hvd"], denominator=PAIRED["ddp"])
    assert p.ratio == pytest.approx(PAIRED["geo_ratio"], abs=1e-9)
    assert p.interval() == pytest.approx(PAIRED["ci95"], abs=1e-9)
    assert p.interval(0.1) == pytest.approx(PAIRED["ci90"], abs=1e-9)
    assert p.t == pytest.approx(PAIRED["t"], abs=1e-8)
    assert p.t_p == pytest.approx(PAIRED["p_t"], rel=1e-8)
    assert p.signflip_p == PAIRED["signflip_p"]


def test_equality_is_two_one_sided_tests() -> None:
    """An interval that misses 2 p ends at the margin, p of both tests (Schuirmann 1987)."""
    p = stats.paired_ratio(numerator=PAIRED["hvd"], denominator=PAIRED["ddp"])
    for words, tost_p in PAIRED["tost_p"].items():
        edge = 1 / (1 + float(words.rstrip("%")) / 100)
        if tost_p < 0.5:
            assert (p.interval(2 * tost_p) or (0,))[0] == pytest.approx(edge, rel=1e-9)
        level = 2 * min(tost_p * 1.001, 0.49)
        assert verdict(p, 1 / edge - 1, level) == ("equal" if tost_p < 0.5 else "faster")


def verdict(p: stats.Paired, margin: float = 0.02, level: float = stats.ALPHA) -> str:
    ends = p.interval(level)
    assert ends is not None
    return stats.decide(ends, margin)


def test_one_pair_has_a_ratio_and_nothing_else() -> None:
    p = stats.paired_ratio(numerator=[3.0], denominator=[2.0])
    assert p.ratio == pytest.approx(1.5)
    assert p.estimate == stats.Estimate(value=p.ratio, low=None, high=None, n=1)
    assert (p.sd_log, p.interval(), p.t_p, p.role, p.signflip_p) == (None,) * 5


def test_mean_and_role_are_fitted_together() -> None:
    """Least squares of log ratios on a constant and +-1, computed by numpy."""
    logs = np.array([0.05, 0.01, 0.06, 0.0, 0.04, 0.02, 0.07])
    first = np.array([True, False, True, False, True, False, True])
    p = stats.paired_ratio(
        numerator=np.exp(logs).tolist(), denominator=[1.0] * 7, first=first.tolist()
    )
    design = np.column_stack([np.ones(7), np.where(first, 1, -1)])
    (mean, role), squares, _, _ = np.linalg.lstsq(design, logs)
    error = math.sqrt(squares[0] / 5 * np.linalg.inv(design.T @ design)[0, 0])
    half = scipy_stats.t.ppf(0.975, 5) * error
    assert (math.log(p.ratio), p.error_log, p.freedom) == pytest.approx((mean, error, 5))
    assert p.interval() == pytest.approx((math.exp(mean - half), math.exp(mean + half)))
    assert p.role is not None
    assert (p.role.value, p.role.high) == pytest.approx((math.exp(role), math.exp(role + half)))
    plain = pair(np.exp(logs).tolist())
    assert (plain.freedom, plain.role) == (6, None)
    assert (plain.sd_log or 0) > 2 * (p.sd_log or 0), "what the swap balances is no noise"
    once = stats.paired_ratio(numerator=[1.0, 1.1, 1.2], denominator=[1.0] * 3, first=[True] * 3)
    assert once == pair([1.0, 1.1, 1.2])


def test_from_three_sessions_on_their_means_carry_the_interval() -> None:
    paired = pair([1.01, 1.03, 1.10, 1.12, 0.95, 0.97])
    assert stats.over_sessions(paired, list("aabbbb")) == paired
    found = stats.over_sessions(paired, list("aabbcc"))
    means = [math.log(a * b) / 2 for a, b in ((1.01, 1.03), (1.10, 1.12), (0.95, 0.97))]
    ends = stats.t_interval(means)
    assert ends is not None
    assert found.interval() == pytest.approx([math.exp(end) for end in ends])
    assert (found.n, found.freedom) == (6, 2)


def test_sign_flip_enumerates_every_vector() -> None:
    assert stats.signflip_p([1.0, 2.0, 3.0]) == 2 / 8
    assert stats.signflip_p([1.0, 2.0, -3.0]) == 1.0
    # |sum| >= 6: 8 once, 6 twice, either sign
    assert stats.signflip_p([1.0, 2.0, 4.0, -1.0]) == 6 / 16
    assert stats.signflip_p([0.1] * 21) is None


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.001, 0.999, 1.002, 0.998, 1.0, 1.001], "equal"),
        ([1.009, 1.011, 1.010, 1.012, 1.008, 1.010], "equal"),  # though the interval excludes 1
        ([1.10, 1.12, 1.11, 1.13, 1.09, 1.12], "faster"),
        ([0.90, 0.88, 0.91, 0.89, 0.90, 0.92], "faster"),
        ([1.0] * 8, "equal"),
        ([1.10, 0.92, 1.05, 0.97, 1.01, 0.99], "not settled"),
        ([1.018, 1.024, 1.016, 1.023, 1.019, 1.021], "faster"),  # across the margin's edge
        ([1.01, 0.985, 1.03, 0.995, 1.025, 1.0], "not settled"),  # across 1 and the edge
        ([PAIRED["hvd"][i] / PAIRED["ddp"][i] for i in range(8)], "equal"),
    ],
)
def test_verdict_table(ratios: list[float], expected: str) -> None:
    assert verdict(pair(ratios)) == expected


def test_margin_is_symmetric_in_the_ratio() -> None:
    ratios = [1.0185, 1.0190, 1.0195, 1.0188, 1.0192, 1.0190]
    assert verdict(pair(ratios)) == verdict(pair([1 / r for r in ratios])) == "equal"
    below = [0.9801, 0.9802, 0.9803] * 2  # above 1 - 0.02, below the edge 1 / 1.02 = 0.9804
    assert verdict(pair(below)) == "faster"


def test_a_percentile_wants_a_step_beyond_it() -> None:
    assert stats.percentiles(range(19), (95, 99)) == [None, None]
    assert stats.percentiles(range(99), (95, 99)) == [pytest.approx(93.1), None]
    assert stats.percentiles(range(20), (95,)) == [pytest.approx(18.05)]
    assert stats.percentiles(range(101), (99,)) == [pytest.approx(99)]


def test_median_interval_ranks() -> None:
    for n, ranks in KNOWN["median_ci_ranks_95"].items():
        e = stats.median_estimate(range(1, int(n) + 1))
        assert (e.low, e.high) == (tuple(ranks) if ranks else (None, None)), n
    found = stats.median_estimate([9, 1, 2, 3, 4, 5, 6, 7, 8])
    assert found == stats.Estimate(value=5.0, low=2, high=8, n=9)
    assert stats.median_estimate([3.0, 1.0]) == stats.Estimate(value=2.0, low=None, high=None, n=2)


def test_welch_ratio() -> None:
    known = KNOWN["efficiency_ci"]
    e = stats.welch_ratio(numerator=known["x8"], denominator=known["x1"])
    assert e.value / 8 == pytest.approx(known["E"], abs=1e-9)
    ends = [v / 8 for v in (e.low or 0, e.high or 0)]
    assert ends == pytest.approx(known["welch_ci95"], abs=1e-9)
    alone = stats.welch_ratio(numerator=[2.0, 2.0], denominator=[2.0])
    assert alone == stats.Estimate(value=1.0, low=None, high=None, n=1)


def test_power_of_equivalence_is_the_published_one() -> None:
    """PowerTOST: power.TOST(CV = 0.3, theta0 = 0.95, n = 40) in two periods is 0.815845."""
    error = math.sqrt(math.log(1 + 0.3**2) * 2 / 40)  # of 38 degrees of freedom, as of 39 pairs
    found = stats.power_equivalence(error * math.sqrt(39), math.log(0.95), 0.25, 39)
    assert found == pytest.approx(0.815845, abs=5e-7)


def test_launches_to_settle_finds_the_nearer_end() -> None:
    wide = pair([1.10, 0.92, 1.05, 0.97, 1.01, 0.99])
    needed = stats.launches_to_settle(wide, 0.02)
    assert needed is not None
    assert wide.n < needed < 500
    chances = [stats.chance(wide, 0.02, n) or 0 for n in (needed - 1, needed)]
    assert chances[0] < stats.POWER <= chances[1]
    clear = pair([1.10, 1.12, 1.11, 1.13, 1.09])
    assert stats.launches_to_settle(clear, 0.02) == stats.MIN_LAUNCHES
    assert stats.launches_to_settle(pair([1.10, 1 / 1.1] * 4), 0.0001) is None
    assert stats.launches_to_settle(pair([1.5]), 0.02) is None


@pytest.mark.parametrize("launches", [3, 6, 8])
def test_interval_covers_the_truth_in_95_percent(launches: int) -> None:
    repeats, hits = 3000, 0
    for row in np.exp(noise(launches, (repeats, launches), 0.08)):
        e = stats.geometric_mean(row.tolist())
        hits += (e.low or 0) <= 1.0 <= (e.high or 0)
    assert hits / repeats == pytest.approx(0.95, abs=binomial_tolerance(0.95, repeats))


def test_equal_systems_are_called_different_in_five_percent() -> None:
    """A/A: large common launch noise, which pairing removes, and run noise, small and large."""
    repeats, launches = 1500, 6
    for run_sd in (0.005, 0.03):
        common, shape = noise(1, (repeats, launches), 0.2), (repeats, launches)
        a, b = noise(2, shape, run_sd), noise(4, shape, run_sd)
        called = [
            (pair((y / x).tolist()).t_p or 0) < stats.ALPHA
            for x, y in zip(np.exp(common + a), np.exp(common + b), strict=True)
        ]
        assert np.mean(called) == pytest.approx(0.05, abs=binomial_tolerance(0.05, repeats))
