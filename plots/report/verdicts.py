"""Verdicts in words, for pages, figures and terminals: one table, and what it is filled in with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench.backends.catalogue import facts
from bench.study import stats
from bench.study.stats import Verdict
from plots.analyse.comparison import Comparison
from plots.report.format import count, percent, rule

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
    """What two cells or backends are called: by their backends where these differ."""
    if reference.partition("/")[0] == candidate.partition("/")[0]:
        return reference, candidate
    return facts(reference).short_label, facts(candidate).short_label


def over(reference: str, candidate: str) -> str:
    """The ratio's name: 'B / A', or 'x/b over x/a' of cells."""
    first, second = sides(reference, candidate)
    return f"{second} over {first}" if "/" in first + second else f"{second} / {first}"


def sentence(c: Comparison, margin: float, tests: int) -> str:
    """The verdict in words; `tests`: the comparisons that Holm's correction spans."""
    said = "n=1, no interval, no verdict" if c.paired.n == 1 else WORDS[c.verdict][1]
    gain, low, high = c.gain
    price = f"about {c.blocks_to_settle}" if c.blocks_to_settle else f"more than {stats.MAX_BLOCKS}"
    return said.format(
        least=stats.MIN_BLOCKS,
        margin=rule(margin),
        faster=c.faster,
        gain=f"{100 * gain:.1f} %",
        interval=f"[{100 * low:.1f}, {100 * high:.1f}]",
        tests=tests,
        price=f"{price} blocks",
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
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[label(c)].append(c)
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
    ends = dict.fromkeys(percent(g).removesuffix(" %") for g in (gains[0], gains[-1]))
    return f" (by {' to '.join(ends)} %)"
