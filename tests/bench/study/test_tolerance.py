"""What noise allows, against answers worked out by hand, and what it says of a fall."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.study.tolerance import LEAST, MOST, fall

# e to these: six sessions of two launches, whose means are 0, 0.01, ..., 0.05
MEANS = [0.00, 0.01, 0.02, 0.03, 0.04, 0.05]
SESSIONS = [np.exp([mean - 0.01, mean + 0.01]).tolist() for mean in MEANS]


def launches(mean: float, spread: float = 0.0001) -> list[float]:
    return [math.exp(mean + spread * sign) for sign in (-1, 1, -1, 1, -1, 1)]


def test_the_noise_of_sessions_is_a_prediction_of_one_more() -> None:
    """sd of the means 0.018708, times t(0.975; 5) = 2.570582, times the root of 1 + 1/6."""
    change = fall(launches(0.025), SESSIONS, 0.025)
    assert change.over_sessions
    assert change.ratio == pytest.approx(1)
    assert change.noise == pytest.approx(1 - math.exp(-2.570582 * 0.0187083 * math.sqrt(7 / 6)))
    assert change.limit == pytest.approx(1 - change.noise)
    assert change.launches == 6
    assert change.reference == pytest.approx(math.exp(0.025))


def test_fewer_launches_than_the_reference_had_are_less_sure() -> None:
    wide = [np.exp([mean - 0.1, mean, mean, mean + 0.1]).tolist() for mean in MEANS]
    two, four = (fall(np.exp([0.025] * n).tolist(), wide, 0.025) for n in (2, 4))
    # the variance of a session's mean, and that of launches, 0.02 / 3, times 1/2 - 1/4
    assert two.noise == pytest.approx(
        1 - math.exp(-2.570582 * math.sqrt(0.00035 * 7 / 6 + 0.02 / 3 / 4)), rel=1e-5
    )
    assert four.noise < two.noise


def test_of_one_session_launches_tell_and_the_tolerance_is_the_larger_one() -> None:
    """sd of launches 0.01, t(0.95; 4) = 2.131847, six launches against five."""
    session = np.exp([-0.0126491, -0.0063246, 0, 0.0063246, 0.0126491]).tolist()
    change = fall(launches(0), [session], 0.05)
    assert not change.over_sessions
    expected = 1 - math.exp(-2.131847 * 0.01 * math.sqrt(1 / 6 + 1 / 5))
    assert change.noise == pytest.approx(expected, rel=1e-4)
    assert change.limit == 1 - MOST
    quiet = [launches(0, 1e-6) for _ in range(3)]
    assert fall(launches(0), quiet, 0.05).limit == 1 - LEAST


@pytest.mark.parametrize(
    ("mean", "tolerance", "relation"),
    [
        (0.025, None, "within"),
        (0.2, None, "within"),  # faster is no fault
        (-0.02, None, "within"),  # 0.956 of the reference, and 0.9 is ruled out
        (-0.03, None, "slower"),
        (-0.03, 0.1, "within"),
        (-0.09, 0.1, "slower"),
        (-0.02, 0.02, "cannot tell"),  # a fall of 4 % is not ruled out
    ],
)
def test_what_is_said_of_a_fall(mean: float, tolerance: float | None, relation: str) -> None:
    """Noise explains 5.06 %."""
    assert fall(launches(mean), SESSIONS, 0.025, tolerance).relation == relation


def test_a_disturbed_session_calls_nothing_slower_that_its_own_noise_explains() -> None:
    disturbed = launches(-0.1, 0.15)
    change = fall(disturbed, SESSIONS, 0.025)
    sd = 0.15 * math.sqrt(6 / 5)
    assert change.noise == pytest.approx(1 - math.exp(-2.570582 * sd / math.sqrt(6)), rel=1e-5)
    assert change.relation == "cannot tell"


def test_noise_that_nobody_knows_is_an_error() -> None:
    for now, sessions in (([1.0], SESSIONS), ([1.0, 1.1], [[1.0]])):
        with pytest.raises(ValueError, match="two launches are needed"):
            fall(now, sessions, 0.05)
