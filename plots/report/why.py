"""Why one side is faster, as far as it was measured: what the exchange of gradients costs each."""

from __future__ import annotations

from collections.abc import Callable

from bench.study.stats import Estimate
from bench.study.points import PointRow
from plots.analyse.study import Analysis
from plots.report.format import interval, ms
from plots.report.verdicts import sides


def why(a: Analysis) -> str:
    """Explain the primary comparison in 1 or 2 sentences; '' if the exchange was not measured."""
    c = a.primary
    costs = {cost.point: cost for cost in a.exchange.costs} if c and a.exchange else {}
    if c is None or not all(point in costs for point in c.points):
        return ""
    named = list(
        zip(sides(c.reference, c.candidate), map(costs.__getitem__, c.points), strict=True)
    )

    def both(estimate: Callable[[PointRow], Estimate | None]) -> str:
        values = [(name, e) for name, cost in named if (e := estimate(cost)) is not None]
        each = [f"{interval(e, ms)} ms with {name}" for name, e in values]
        return " and ".join(each) if len(each) == len(named) else ""

    added = both(lambda cost: cost.difference_seconds)
    exposed = both(lambda cost: cost.exposed_seconds)
    sentences = [f"The exchange of gradients makes a step longer by {added}."] if added else []
    waits = "After its backward pass a rank waits for the exchange"
    sentences += [f"{waits}: {exposed}."] if exposed else []
    return " ".join(sentences)
