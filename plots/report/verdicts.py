"""Verdicts in words, for pages, figures and terminals: one table, and what it is filled in with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.backends.catalogue import facts
from bench.study import stats
from bench.study.stats import Verdict
from plots.analyse.comparison import Comparison
from plots.report.format import count

# verdict: in two words for a figure, and as a sentence
WORDS: Mapping[Verdict, tuple[str, str]] = {
    "too few blocks": ("too few blocks", "no verdict below {least} blocks"),
    "equivalent": ("equivalent", "equivalent within {margin}"),
    "small difference": (
        "equivalent",
        "equivalent within {margin}, with a real but small difference: {faster} faster by {gain}",
    ),
    "different": ("{side} faster", "{faster} faster by {gain} {interval}"),
    "not after Holm": (
        "not after Holm",
        "{faster} faster by {gain} {interval} (not after Holm's correction over {tests} "
        "comparisons)",
    ),
    "inconclusive": ("inconclusive", "inconclusive; {price} would settle it"),
}


def sides(reference: str, candidate: str) -> tuple[str, str]:
    """What two cells or backends are called beside each other: by their backends where these
    differ.
    """
    backends = [name.partition("/")[0] for name in (reference, candidate)]
    if backends[0] == backends[1]:
        return reference, candidate
    return facts(reference).short_label, facts(candidate).short_label


def over(reference: str, candidate: str) -> str:
    """The ratio's name: 'B / A', or 'x/b over x/a' of cells."""
    first, second = sides(reference, candidate)
    return f"{second} over {first}" if "/" in first + second else f"{second} / {first}"


def sentence(c: Comparison, margin: float, tests: int) -> str:
    """The verdict in words, and whether it is one on equal terms; `tests`: the comparisons that
    Holm's correction spans.
    """
    said = "n=1, no interval, no verdict" if c.paired.n == 1 else WORDS[c.verdict][1]
    value, low, high = (100 * x for x in c.gain)
    settle = (
        f"about {c.blocks_to_settle}" if c.blocks_to_settle else f"more than {stats.MAX_BLOCKS}"
    )
    return said.format(
        least=stats.MIN_BLOCKS,
        margin=f"{100 * margin:g} %",
        faster=c.faster,
        gain=f"{value:.1f} %",
        interval=f"[{low:.1f}, {high:.1f}]",
        tests=tests,
        price=f"{settle} blocks",
    ) + ("; in unequal environments" if c.unequal else "")


def label(c: Comparison) -> str:
    """The verdict in two words, for a figure; two more where the terms were not equal."""
    reference, candidate = sides(c.reference, c.candidate)
    said = WORDS[c.verdict][0].format(side=candidate if c.faster == c.candidate else reference)
    return said + (" (environments differ)" if c.unequal else "")


def tally(rows: Sequence[Comparison], sizes: bool = False) -> str:
    """All verdicts in one line: 'A faster at 22 of 26 points, equivalent at 4'; with `sizes` by
    how much the faster is.
    """
    groups: dict[str, list[Comparison]] = {}
    for c in rows:
        groups.setdefault(label(c), []).append(c)
    total = count(len(rows), "point")
    said: list[str] = []
    for word, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        where = f"{len(group)}" if said else f"{len(group)} of {total}"
        if len(group) == len(rows):
            where = total if len(rows) == 1 else f"all {total}"
        said.append(f"{word} at {where}{_sizes(group) if sizes else ''}")
    return ", ".join(said)


def _sizes(rows: Sequence[Comparison]) -> str:
    if rows[0].verdict != "different":
        return ""
    gains = sorted(c.gain[0] for c in rows)
    ends = dict.fromkeys(f"{100 * g:,.1f}" for g in (gains[0], gains[-1]))
    return f" (by {' to '.join(ends)} %)"
