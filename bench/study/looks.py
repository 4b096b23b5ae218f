"""Looks at a growing study: when, and at which level, so that all together err in ALPHA."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

ALPHA = 0.05  # the error that a verdict may make, and what an interval may miss
MIN_LAUNCHES = 6  # below six pairs an exact sign flip cannot reach 5 %: the smallest p is 2 / 2^n
MAX_LAUNCHES = 10_000
STEP = 2  # launches added between looks: each side of a pair is first in one of them
_STUDIES = 2**18  # simulated: a level of 0.02 is then good to 0.0002 (one standard error)
_SEED = 20250613


def schedule(launches: int, max_launches: int) -> tuple[int, ...]:
    """List where a verdict is read: from `launches`, at least MIN_LAUNCHES, to `max_launches`."""
    return tuple(range(max(launches, MIN_LAUNCHES), max_launches + 1, STEP))


@cache
def nominal_level(looks: tuple[int, ...], overall: float = ALPHA) -> float:
    """Estimate the p below which a t test at any of `looks` (launches, rising) finds a difference.

    The same at each look (Pocock 1977), for Student's t rather than a known deviation: of studies
    without a difference, `overall` then call one at some look. An interval of 1 - level holds the
    truth at all looks of 1 - overall of studies. Of an effect at the margin, one side alone errs:
    half as often.
    """
    if len(looks) < 2:
        return overall
    import numpy as np

    return float(np.quantile(_smallest_p(looks), overall))


@cache
def _smallest_p(looks: tuple[int, ...]) -> np.ndarray:
    """Draw the smallest two-sided p of all looks, [studies], for normal log ratios of mean zero.

    Of m such ratios the sum z and the squares around its mean are independent: normal, and
    chi-squared with m - 1 degrees of freedom. So each look takes two draws, whatever its launches.
    """
    if looks[0] < 2 or list(looks) != sorted(set(looks)):
        raise ValueError(f"looks={list(looks)} must rise, from 2 launches on")
    import numpy as np  # late: a study's definition has its looks from here, and needs no numbers
    from scipy.special import stdtr

    random = np.random.Generator(np.random.Philox(_SEED))
    sums, squares, p = np.zeros(_STUDIES), np.zeros(_STUDIES), np.ones(_STUDIES)
    for before, n in pairwise((0, *looks)):
        m = n - before
        added = np.sqrt(m) * random.standard_normal(_STUDIES)
        sums += added
        squares += added**2 / m + (random.chisquare(m - 1, _STUDIES) if m > 1 else 0.0)
        variance = (squares - sums**2 / n) / (n - 1)
        t = sums / np.sqrt(n * variance)
        p = np.minimum(p, 2 * stdtr(n - 1, -np.abs(t)))
    return p
