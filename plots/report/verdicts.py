"""What a comparison says: a sentence for everybody, one of four words, and what decides it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.backends.catalogue import TRANSPORTS, facts, parts
from bench.study.power import MAX_BLOCKS
from bench.study.verdict import Comparison
from bench.study.points import ranks
from bench.study.sessions import TAU, TAU_EMULATED
from plots.report.format import count, ends, ratio_ends, rule


def sides(reference: str, candidate: str) -> tuple[str, str]:
    """Name two cells or backends: by their backends where these differ and neither has an arm."""
    a, b = parts(reference), parts(candidate)
    if a.backend == b.backend or a.arm or b.arm:
        return reference, candidate
    return facts(reference).short_label, facts(candidate).short_label


def over(reference: str, candidate: str) -> str:
    """Name the ratio: 'B / A', or 'x/b over x/a' of cells."""
    first, second = sides(reference, candidate)
    return f"{second} over {first}" if "/" in first + second else f"{second} / {first}"


def word(c: Comparison) -> str:
    """Name the verdict: 'Horovod faster', 'DDP faster', 'Equal within 2 %' or 'Not settled'.

    'No verdict planned' of a study whose few launches draw a curve.
    """
    if not c.decides:
        return "No verdict planned"
    reference, candidate = sides(c.reference, c.candidate)
    faster = candidate if c.paired.ratio > 1 else reference
    words = {"faster": f"{faster} faster", "equal": f"Equal within {rule(c.margin)}"}
    return words.get(c.verdict, "Not settled")


def line(c: Comparison) -> str:
    """State the verdict, its share and the deciding interval: 'Horovod faster: 5.3 % [0.6, 10.1]'.

    Of the faster one over the slower; else of the candidate over the reference.
    """
    if not c.decides:
        return word(c)
    if c.paired.n < c.needs:
        return f"{word(c)}: needs {c.needs} launches"
    return f"{word(c)}: {share(c)}"


def share(c: Comparison) -> str:
    """State by what share one side is ahead: '5.3 % [0.6, 10.1]'."""
    e = c.estimate
    values = (e.value, e.low or e.value, e.high or e.value)
    if c.verdict == "faster" and e.value < 1:
        values = (1 / e.value, 1 / values[2], 1 / values[1])
    value, low, high = (100 * (x - 1) for x in values)
    return f"{round(value, 1) + 0.0:.1f} % [{', '.join(ends(low, high, 1, 0.0))}]"


def sentence(c: Comparison) -> str:
    """State the verdict, and what was compared other than the framework."""
    return "; ".join([line(c), *c.of_one_arm])


def exchanges_nothing(c: Comparison) -> bool:
    """Tell whether there is one rank."""
    return c.world_size == 1


def plain(c: Comparison, place: str) -> str:
    """State the verdict for people new to statistics; `place` says where: 'on this machine'."""
    first, second = sides(c.reference, c.candidate)
    ahead, behind = (second, first) if c.paired.ratio > 1 else (first, second)
    over = f" over {TRANSPORTS[c.transport]}" if c.transport in TRANSPORTS else ""
    over += f" with {' and '.join(c.words)}" if c.variant else ""
    where = f"on {ranks(c.world_size)}{over} {place}"
    where += ", where nothing is exchanged" if exchanges_nothing(c) else ""
    if c.verdict == "equal":
        return f"{first} and {second} are equally fast within {rule(c.margin)} {where}."
    by = f"{100 * (max(c.paired.ratio, 1 / c.paired.ratio) - 1):.1f} %"
    launches = count(c.paired.n, "launch")
    if c.paired.n < c.needs or not c.estimate.shown:
        few = f"a verdict needs {c.needs}" if c.paired.n < c.needs else "no interval is known"
        return f"Not settled: {ahead} is ahead by {by} in {launches} {where}, and {few}."
    spread = _of_the_one_ahead(c, c.estimate.shown, 1)
    if not c.settled:
        possible = f"anything from {spread} is possible"
        return f"Not settled: {ahead} is ahead by {by} in {launches} {where}, and {possible}."
    day = f"; on another day expect {_of_the_one_ahead(c, c.another_day, 0)}"
    return f"{ahead} is {by} faster than {behind} {where} ({spread}){day if c.another_day else ''}."


def _of_the_one_ahead(c: Comparison, ratios: tuple[float, float] | None, digits: int) -> str:
    """State by what share one side may be faster, '4.9 to 10.1 %', from an interval of ratios."""
    low, high = ratios or (1.0, 1.0)
    low, high = (low, high) if c.paired.ratio > 1 else (1 / high, 1 / low)
    return f"{' to '.join(ends(100 * (low - 1), 100 * (high - 1), digits, 0.0))} %"


def prospect(c: Comparison) -> str:
    """Estimate in a sentence how many launches would settle it; '' where settled, or not begun."""
    if c.settled or c.chance is None:
        return ""
    if c.blocks_to_settle is None:
        return f"More than {MAX_BLOCKS:,} launches would be needed"
    needed = f"About {c.blocks_to_settle:,} launches would settle it"
    if c.paired.n >= c.max_blocks:
        return f"{needed}, in a new study"
    by_then = f"the chance by the last look, {c.max_blocks}, is {100 * c.chance:.0f} %"
    return f"{needed}; {by_then}, were ratio and noise the true ones"


def doubts(c: Comparison) -> Iterator[str]:
    """Yield a sentence where the ratio and its check tell of two different things."""
    if c.skewed:
        yield (
            f"the ratio of median steps is {c.median_ratio:.3f} against {c.paired.ratio:.3f} of "
            f"totals: more than {rule(c.margin)} apart, so slow steps decide"
        )


def another_day(c: Comparison) -> str:
    """Predict what the same comparison may give on another day; '' where there is no interval."""
    if c.another_day is None or not c.estimate.shown:
        return ""
    low, high = ratio_ends(*c.another_day)
    sessions = len(set(c.sessions))
    why = f"a prediction from {sessions} sessions"
    if c.unit != "sessions":
        tau = TAU_EMULATED if c.emulated else TAU
        of = count(sessions, "session")
        why = f"this is of {of}, and the project's own differ by an sd of {rule(tau)}"
    return f"On another day the ratio may lie in [{low}, {high}]: {why}."
