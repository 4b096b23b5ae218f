"""How ends of intervals are written."""

from __future__ import annotations

import pytest

from bench.study.stats import Estimate
from plots.report.format import interval, percent, ratio


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.86, 1.000153, "0.927 [0.8600, 1.0002]"),
        (0.99996, 1.1, "0.927 [0.99996, 1.10000]"),
        (0.86, 1.0, "0.927 [0.860, 1.000]"),
        (0.86, 1.0005, "0.927 [0.8600, 1.0005]"),
        (0.86, 1.001, "0.927 [0.860, 1.001]"),
        (1 - 1e-16, 1 + 1e-12, "0.927 [1.000, 1.000]"),
    ],
)
def test_no_end_of_an_interval_is_rounded_onto_1(low: float, high: float, said: str) -> None:
    assert interval(Estimate(value=0.927, low=low, high=high, n=6), ratio) == said


def test_other_units_have_no_limit() -> None:
    share = Estimate(value=0.927, low=0.86, high=1.0001, n=6)
    assert interval(share, percent) == "92.7 % [86.0, 100.0]"
