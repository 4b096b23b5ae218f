"""Levels of repeated looks, against those of another simulation and of Pocock."""

from __future__ import annotations

import pytest

from bench.study.looks import nominal_level, overall_level, schedule


@pytest.mark.parametrize(
    ("looks", "nominal", "overall"),
    [
        ((6,), 0.05, 0.05),
        ((6, 8), 0.0327, 0.075),
        ((6, 12), 0.0286, None),
        ((6, 8, 12), 0.0225, 0.101),
        ((6, 12, 24), 0.0194, None),
        ((6, 12, 24, 48), 0.0150, 0.147),
    ],
)
def test_levels(looks: tuple[int, ...], nominal: float, overall: float | None) -> None:
    assert nominal_level(looks) == pytest.approx(nominal, abs=0.001)
    assert overall_level(looks, nominal_level(looks)) == pytest.approx(0.05, abs=1e-5)
    if overall is not None:
        assert overall_level(looks) == pytest.approx(overall, abs=0.004)


def test_many_blocks_are_pococks_own_case() -> None:
    """Five looks at equal steps of a known deviation: 0.0158 (Pocock 1977, table 1)."""
    assert nominal_level((200, 400, 600, 800, 1000)) == pytest.approx(0.0158, abs=0.0006)


@pytest.mark.parametrize("looks", [(1, 6), (8, 6), (6, 6)])
def test_looks_rise(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        nominal_level(looks)


def test_equivalence_over_looks_errs_in_less_than_five_percent() -> None:
    """At the edge of the margin, by the one-sided test: half of a two-sided one at twice the p."""
    level = nominal_level((6, 8, 12))
    assert 0.04 < overall_level((6, 8, 12), 2 * level) / 2 < 0.05


def test_a_p_value_is_no_smaller_over_looks() -> None:
    assert overall_level((6, 8), 1e-9) == 1e-9
    assert overall_level((6,), 0.3) == 0.3


def test_a_look_at_each_two_blocks_from_the_sixth_on() -> None:
    assert schedule(6, 20) == schedule(2, 20) == (6, 8, 10, 12, 14, 16, 18, 20)
    assert schedule(8, 8) == (8,)
    assert schedule(1, 4) == ()
    assert nominal_level(schedule(6, 20)) == pytest.approx(0.0131, abs=0.0003)
