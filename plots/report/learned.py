"""What trainings reached, in sentences: a line for each batch and variant at most ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from plots.analyse.points import PointRow, ranks
from plots.analyse.study import Analysis
from plots.report.format import count, percent, rule, seconds, short


def answers(a: Analysis) -> bool:
    """Whether trainings are the study's answer: there are some, and no verdict on images/s."""
    return bool(a.trained) and all(c.paired.n < c.needs for c in a.comparisons)


def lines(a: Analysis) -> Iterator[str]:
    """With the median seconds to the target, or with the share that is right at the end."""
    most = max((t.point.world_size for t in a.trained), default=0)
    groups: dict[tuple[str, ...], list[PointRow]] = defaultdict(list)
    for t in a.trained:
        if (p := t.point).world_size == most:
            groups[(f"{p.samples_per_rank} images per rank", *p.words)].append(t)
    for conditions, rows in groups.items():
        yield f"{_aim(rows[0])} at {ranks(most)} ({'; '.join(conditions)}): {_reached(rows)}."


def _aim(t: PointRow) -> str:
    if t.target is None:
        return "Held-out accuracy after the last epoch"
    return f"Median seconds to {rule(t.target)} held-out accuracy"


def _reached(rows: Sequence[PointRow]) -> str:
    cells = ", ".join(f"{t.point.cell} {_of(t)}" for t in rows)
    estimates = [t.accuracy if t.target is None else t.seconds for t in rows]
    cells += " (95 % intervals)" if any(e and e.shown for e in estimates) else ""
    whole = sum(len(t.trainings) for t in rows)
    if rows[0].target is None:
        return f"{cells}; {count(whole, 'training')}"
    successes = sum(t.reached or 0 for t in rows)
    return f"{cells}; {successes} of {count(whole, 'training')} reached it"


def _of(t: PointRow) -> str:
    if t.target is None:
        return short(t.accuracy, percent)
    return short(t.seconds, seconds) if t.seconds else "never"
