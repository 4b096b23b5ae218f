"""The statistics against examples computed elsewhere, and their promises by simulation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bench.study import power as powers
from bench.study import stats

KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "known_answers.json").read_text())
PAIRED = KNOWN["paired"]


def pair(ratios: list[float]) -> stats.Paired:
    return stats.paired_ratio(numerator=ratios, denominator=[1.0] * len(ratios))


def noise(seed: int, shape: tuple[int, ...], sd: float) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, shape)


def binomial_tolerance(p: float, n: int) -> float:
    """Four standard errors of a share: a seeded simulation that misses by more is wrong."""
    return 4 * math.sqrt(p * (1 - p) / n)


def test_rates_are_not_averaged() -> None:
    window = KNOWN["summaries"]["throughput_window"]
    total = window["batch"] * len(window["step_s"]) / sum(window["step_s"])
    assert total == window["window_ips"] != window["amean_of_rates_WRONG"]
    hpl = KNOWN["summaries"]["hpl_means"]
    relative = [hpl["gflop_each"] / t / 10 for t in hpl["times_s"]]
    assert stats.geometric_mean(relative).value == pytest.approx(hpl["gmean_rel_peak10"], abs=1e-9)


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
    assert p.ci95 == pytest.approx(PAIRED["ci95"], abs=1e-9)
    assert p.ci90 == pytest.approx(PAIRED["ci90"], abs=1e-9)
    assert p.t == pytest.approx(PAIRED["t"], abs=1e-8)
    assert p.t_p == pytest.approx(PAIRED["p_t"], rel=1e-8)
    assert p.signflip_p == PAIRED["signflip_p"]
    assert p.wilcoxon_p == PAIRED["wilcoxon_p"]


def test_verdicts_agree_with_two_one_sided_tests() -> None:
    """The 90 % interval lies within a margin exactly if both tests reject (Schuirmann 1987)."""
    p = stats.paired_ratio(numerator=PAIRED["hvd"], denominator=PAIRED["ddp"])
    verdicts = set()
    for words, tost_p in PAIRED["tost_p"].items():
        margin = float(words.rstrip("%")) / 100
        assert stats.tost_p(p, margin) == pytest.approx(tost_p, rel=1e-8)
        expected = "small difference" if tost_p < 0.05 else "different"
        assert stats.decide(p, margin) == expected
        verdicts.add(expected)
    assert verdicts == {"small difference", "different"}


def test_one_pair_has_a_ratio_and_nothing_else() -> None:
    p = stats.paired_ratio(numerator=[3.0], denominator=[2.0])
    assert p.ratio == pytest.approx(1.5)
    assert p.estimate == stats.Estimate(value=p.ratio, low=None, high=None, n=1)
    assert (p.sd_log, p.ci95, p.ci90, p.signflip_p) == (None, None, None, None)
    assert stats.decide(p, 0.02) == "too few blocks"


def test_identical_values_are_equivalent() -> None:
    p = stats.paired_ratio(numerator=[5.0] * 6, denominator=[5.0] * 6)
    assert (p.ratio, p.ci95, p.signflip_p, p.wilcoxon_p) == (1.0, (1.0, 1.0), 1.0, 1.0)
    assert stats.decide(p, 0.02) == "equivalent"


def test_sign_flip_enumerates_every_vector() -> None:
    assert stats.signflip_p([1.0, 2.0, 3.0]) == 2 / 8
    assert stats.signflip_p([1.0, 2.0, -3.0]) == 1.0
    # |sum| >= 6: 8 once, 6 twice, either sign
    assert stats.signflip_p([1.0, 2.0, 4.0, -1.0]) == 6 / 16
    assert stats.signflip_p([0.1] * 21) is None


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.001, 0.999, 1.002, 0.998, 1.0, 1.001], "equivalent"),
        ([1.009, 1.011, 1.010, 1.012, 1.008, 1.010], "small difference"),
        ([1.10, 1.12, 1.11, 1.13, 1.09, 1.12], "different"),
        ([0.90, 0.88, 0.91, 0.89, 0.90, 0.92], "different"),
        ([1.10, 0.92, 1.05, 0.97, 1.01, 0.99], "inconclusive"),
        # 90 % interval straddles the margin, 95 % excludes 1
        ([1.018, 1.024, 1.016, 1.023, 1.019, 1.021], "different"),
        ([1.10, 1.12, 1.11, 1.13, 1.09], "too few blocks"),
        ([PAIRED["hvd"][i] / PAIRED["ddp"][i] for i in range(8)], "small difference"),
    ],
)
def test_verdict_table(ratios: list[float], expected: str) -> None:
    assert stats.decide(pair(ratios), 0.02) == expected


def test_a_corrected_p_decides_whether_a_difference_is_one() -> None:
    clear, small = pair([1.10, 1.12, 1.11, 1.13, 1.09, 1.12]), pair([1.009, 1.011, 1.01] * 2)
    assert stats.decide(clear, 0.02, holm_p=stats.ALPHA) == "different"
    assert stats.decide(clear, 0.02, holm_p=0.06) == "not after Holm"
    assert stats.decide(small, 0.02, holm_p=0.06) == "equivalent"
    assert stats.decide(small, 0.02, holm_tost_p=0.06) == "different"
    both = stats.decide(small, 0.02, holm_p=0.06, holm_tost_p=0.06)
    assert both == "equivalence not after Holm"
    assert stats.decide(pair([1.10, 0.92, 1.05] * 2), 0.02, holm_p=0.06) == "inconclusive"


def test_a_look_has_a_level_for_differences_and_equivalence_alike() -> None:
    differs, equal = pair([1.10, 1.02, 1.09, 0.99, 1.08, 1.03]), pair([1.02, 1.01, 0.99, 1.02] * 2)
    for p, own, verdict in (
        (differs, differs.t_p, "different"),
        (equal, stats.tost_p(equal, 0.02), "equivalent"),
    ):
        assert own is not None
        assert 0.01 < own < 0.05
        assert stats.decide(p, 0.02, level=own + 1e-6) == stats.decide(p, 0.02) == verdict
        assert stats.decide(p, 0.02, level=own - 1e-6) == "inconclusive"


def test_the_sign_flip_test_may_disagree() -> None:
    skewed = pair([1.09, 1.02, 1.09, 0.995, 1.08, 1.05])  # one sign differs: 4 of 64 are as far out
    assert skewed.t_p is not None
    assert (skewed.t_p < 0.05, skewed.signflip_p) == (True, 4 / 64)
    assert stats.signflip_disagrees(skewed)
    assert not stats.signflip_disagrees(skewed, 0.07)
    assert not stats.signflip_disagrees(pair([1.1]))


def test_margin_is_symmetric_in_the_ratio() -> None:
    ratios = [1.0185, 1.0190, 1.0195, 1.0188, 1.0192, 1.0190]
    assert stats.decide(pair(ratios), 0.02) == "small difference"
    assert stats.decide(pair([1 / r for r in ratios]), 0.02) == "small difference"
    below = [0.9801, 0.9802, 0.9803] * 2  # above 1 - 0.02, below the edge 1 / 1.02 = 0.9804
    assert stats.decide(pair(below), 0.02) == "different"


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.6]) == [1.0, 1.0]
    assert stats.holm([]) == []
    # the first has half of the error: 0.01 * 4, then 0.03 * 3 / 2, and what is larger than 0.04
    assert stats.holm([0.03, 0.01, 0.04], [2, 1, 1]) == pytest.approx([0.045, 0.04, 0.045])


def test_a_percentile_wants_a_step_beyond_it() -> None:
    assert stats.percentiles(range(19), (95, 99)) == [None, None]
    assert stats.percentiles(range(99), (95, 99)) == [pytest.approx(93.1), None]
    assert stats.percentiles(range(20), (95,)) == [pytest.approx(18.05)]
    assert stats.percentiles(range(101), (99,)) == [pytest.approx(99)]


@pytest.mark.parametrize("equal", [8, 4])
def test_a_page_errs_in_five_percent(equal: int) -> None:
    """Eight comparisons, the first primary, some truly different: any of the others called so."""
    pages, blocks, truth = 1500, 6, np.repeat([0.0, 0.2], [equal, 8 - equal])
    wrong = 0
    for logs in noise(equal, (pages, blocks, 8), 0.02) + truth:
        t = logs.mean(axis=0) / logs.std(axis=0, ddof=1) * math.sqrt(blocks)
        p = 2 * scipy_stats.t.sf(np.abs(t), blocks - 1)
        wrong += any(np.array(stats.holm(p.tolist(), [7, *[1] * 7]))[:equal] <= stats.ALPHA)
    assert wrong / pages == pytest.approx(0.05, abs=binomial_tolerance(0.05, pages))


def test_median_interval_ranks() -> None:
    for n, ranks in KNOWN["median_ci_ranks_95"].items():
        assert stats.median_interval_ranks(int(n)) == (tuple(ranks) if ranks else None), n
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


def test_power_matches_what_the_study_design_assumes() -> None:
    sd = 0.005 * math.sqrt(2)  # two runs of sd 0.5 % in a block
    for blocks, power in ((3, 0.29), (5, 0.67), (8, 0.93)):
        assert powers.power_difference(sd, math.log(1.01), blocks) == pytest.approx(
            power, abs=0.015
        )
    assert powers.power_difference(sd, 0.0, 8) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("sd", "n", "effect"), [(0.02, 10, 0.0), (0.03, 8, 0.0), (0.012, 6, 0.01)])
def test_power_of_equivalence_by_simulation(sd: float, n: int, effect: float) -> None:
    repeats = 20_000
    d = effect + noise(3, (repeats, n), sd)
    half = scipy_stats.t.ppf(0.95, n - 1) * d.std(axis=1, ddof=1) / math.sqrt(n)
    inside = np.mean(np.abs(d.mean(axis=1)) + half <= math.log(1.02))
    tolerance = binomial_tolerance(inside, repeats)
    assert powers.power_equivalence(sd, effect, 0.02, n) == pytest.approx(inside, abs=tolerance)


def test_power_of_equivalence_is_the_published_one() -> None:
    """PowerTOST: power.TOST(CV = 0.3, theta0 = 0.95, n = 40) in two periods is 0.815845."""
    error = math.sqrt(math.log(1 + 0.3**2) * 2 / 40)
    found = powers.power_tost(math.log(1.25) / error, math.log(0.95) / error, 38)
    assert found == pytest.approx(0.815845, abs=5e-7)


def test_blocks_needed_is_the_smallest_number() -> None:
    n = powers.blocks_for_half_width(0.05, 0.02)
    assert n is not None

    def half(blocks: int) -> float:
        return float(scipy_stats.t.ppf(0.975, blocks - 1)) * 0.05 / math.sqrt(blocks)

    assert half(n) <= math.log(1.02) < half(n - 1)
    n = powers.blocks_for_power(0.05, 0.02)
    assert n is not None
    power = [powers.power_difference(0.05, math.log(1.02), blocks) for blocks in (n - 1, n)]
    assert power[0] < 0.8 <= power[1]
    assert powers.blocks_for_power(0.0, 0.02) == stats.MIN_BLOCKS
    assert powers.blocks_for_power(1e-9, 0.02) == stats.MIN_BLOCKS
    assert powers.blocks_for_power(5.0, 0.001) is None


def test_blocks_to_settle_finds_the_nearer_end() -> None:
    wide = pair([1.10, 0.92, 1.05, 0.97, 1.01, 0.99])
    needed = powers.blocks_to_settle(wide, 0.02)
    assert needed is not None
    assert wide.n < needed < 500
    clear = pair([1.10, 1.12, 1.11, 1.13, 1.09])
    assert powers.blocks_to_settle(clear, 0.02) == stats.MIN_BLOCKS
    assert powers.blocks_to_settle(pair([1.5]), 0.02) is None


@pytest.mark.parametrize("blocks", [3, 6, 8])
def test_interval_covers_the_truth_in_95_percent(blocks: int) -> None:
    repeats, hits = 3000, 0
    for row in np.exp(noise(blocks, (repeats, blocks), 0.08)):
        e = stats.geometric_mean(row.tolist())
        hits += (e.low or 0) <= 1.0 <= (e.high or 0)
    assert hits / repeats == pytest.approx(0.95, abs=binomial_tolerance(0.95, repeats))


def test_equal_systems_are_called_different_in_five_percent() -> None:
    """A/A: large common block noise, which pairing removes, and run noise, small and large."""
    repeats, blocks = 1500, 6
    for run_sd in (0.005, 0.03):
        common, shape = noise(1, (repeats, blocks), 0.2), (repeats, blocks)
        a, b = noise(2, shape, run_sd), noise(4, shape, run_sd)
        called = [
            stats.decide(pair((y / x).tolist()), 0.02) in ("small difference", "different")
            for x, y in zip(np.exp(common + a), np.exp(common + b), strict=True)
        ]
        assert np.mean(called) == pytest.approx(0.05, abs=binomial_tolerance(0.05, repeats))
