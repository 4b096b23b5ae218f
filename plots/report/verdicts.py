"""What a comparison's verdict is called: in a sentence for tables, in two words for figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.backends.catalogue import facts, parts
from bench.study import power, stats
from bench.study.stats import Verdict
from plots.analyse.comparison import Comparison
from plots.report.format import ends, rule

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
        "undecided after Holm",
        "{faster} faster by {gain} {interval} (not after Holm's correction over {tests} "
        "comparisons)",
    ),
    "equivalence not after Holm": (
        "undecided after Holm",
        "equivalent within {margin} (not after Holm's correction over {tests} comparisons)",
    ),
    "inconclusive": ("inconclusive", "inconclusive; {price} would settle it"),
}


def sides(reference: str, candidate: str) -> tuple[str, str]:
    """What two cells or backends are called: by their backends where these differ, and no arm."""
    a, b = parts(reference), parts(candidate)
    if a.backend == b.backend or a.arm or b.arm:
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
    words = said.format(
        least=stats.MIN_BLOCKS,
        margin=rule(margin),
        faster=c.faster,
        gain=f"{100 * gain:.1f} %",
        interval=f"[{', '.join(ends(100 * low, 100 * high, 1, 0.0))}]",
        tests=tests,
        price=_price(c),
    )
    unequal = ["in unequal environments"] if c.unequal else []
    return "; ".join([words, *_remarks(c), *unequal, *c.of_one_arm])


def _price(c: Comparison) -> str:
    """What would settle it: more looks than planned are no way to a verdict."""
    if c.blocks_to_settle is None:
        return f"more than {power.MAX_BLOCKS} blocks"
    beyond = c.looks and c.blocks_to_settle > c.looks[-1]
    return f"{'a new study of ' if beyond else ''}about {c.blocks_to_settle} blocks"


def _remarks(c: Comparison) -> Iterator[str]:
    """What a verdict rests on, where that is not one planned look at 5 % and both tests agree."""
    if c.paired.n < stats.MIN_BLOCKS:
        return
    if len(c.looks) > 1:
        yield f"at a level of {100 * c.level:.2g} %, one of {len(c.looks)} planned looks"
    error = f"the error is about {100 * c.overall_level:.2g} %, not {rule(stats.ALPHA)}"
    if c.off_plan:
        planned = " and ".join(map(str, c.looks))
        yield f"off plan, read at {c.paired.n} blocks beside {planned}: {error}"
    if c.early:
        yield f"early, at {c.paired.n} of {c.looks[0]} planned blocks: read at each, {error}"
    exact = c.paired.signflip_p
    if exact is not None and stats.signflip_disagrees(c.paired, c.level):
        if 2 / 2**c.paired.n <= c.level:
            yield f"the exact sign-flip test disagrees (p = {exact:.4f})"
        else:
            unable = f"the exact sign-flip test of {c.paired.n} blocks cannot confirm it"
            yield f"{unable} (p = {exact:.4f})"


def label(c: Comparison) -> str:
    """The verdict in two words, for a figure; two more where the terms were not equal."""
    reference, candidate = sides(c.reference, c.candidate)
    said = WORDS[c.verdict][0].format(side=candidate if c.faster == c.candidate else reference)
    off_plan = " (off plan)" if c.off_plan else ""
    return said + off_plan + (" (environments differ)" if c.unequal else "")
