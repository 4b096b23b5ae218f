"""What a study says, in words: one list of findings for terminal, page and titles of figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.backends.catalogue import TRANSPORTS
from bench.study.comparability import EMULATE
from bench.study.verdict import Comparison
from bench.study.points import CURVES, PointRow, ranks
from plots.analyse.study import Analysis
from plots.analyse.variants import Variant, changes_exchange, words
from plots.report.axes import transport_order
from plots.report.checks import checks, standing
from plots.report.format import (
    Markdown,
    clean,
    count,
    escape,
    every,
    interval,
    percent,
    rate,
    ratio,
    rule,
    seconds,
    short,
    slug,
)
from plots.report.verdicts import another_day, doubts, over, plain, sentence, sides, word

_FULL = 0.9  # share of the time from which on cores are as good as full
_MOST = 1000  # characters of the first sentence
_TAUGHT = 2  # trainings that it tells of
_MOST_ANSWERS = 3  # comparisons at the head of the page; all are in its tables


@dataclass(frozen=True)
class Statement:
    """What was found, of what, and the heading under which there is more."""

    text: str
    where: str = ""
    section: str = ""

    @property
    def line(self) -> str:
        return clean(": ".join(filter(None, (self.where, self.text))), _MOST)

    @property
    def markdown(self) -> Markdown:
        where = f"**{escape(self.where)}:** " if self.where else ""
        link = f": see [{escape(self.section)}](#{slug(self.section)})." if self.section else ""
        return Markdown(f"{where}{escape(self.text)}{link}")


def tally(rows: Sequence[Comparison], sizes: bool = False, most: int | None = None) -> str:
    """Count verdicts: 'A faster at 22 of 26 points, Not settled at 4'; by how much with `sizes`.

    What is settled stands first. Of more than `most` verdicts the last ones are counted together.
    """
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[word(c)].append(c)
    total = count(len(rows), "point")
    counts: list[str] = []
    ordered = sorted(groups.items(), key=lambda item: (not item[1][0].settled, -len(item[1])))
    if most is not None and len(ordered) > most:
        rest = [c for _, group in ordered[most - 1 :] for c in group]
        ordered = [*ordered[: most - 1], ("other verdicts", rest)]
    for verdict, group in ordered:
        where = f"{len(group)}" if counts else f"{len(group)} of {total}"
        if len(group) == len(rows):
            where = total if len(rows) == 1 else every(len(rows), "point")
        counts.append(f"{verdict} at {where}{_sizes(group) if sizes else ''}")
    return ", ".join(counts)


def _sizes(rows: Sequence[Comparison]) -> str:
    if rows[0].verdict != "faster":
        return ""
    gains = sorted(max(c.paired.ratio, 1 / c.paired.ratio) - 1 for c in rows)
    ends = dict.fromkeys(percent(g).removesuffix(" %") for g in (gains[0], gains[-1]))
    return f" (by {' to '.join(ends)} %)"


def versus(a: Analysis) -> str:
    """Name the candidate against the reference, in words."""
    return " against ".join(reversed(sides(a.reference, a.candidate)))


def marked(a: Analysis, variant: Variant, text: str) -> str:
    """Put the mark of emulated runs before `text` where it speaks of such runs."""
    return ": ".join(filter(None, (emulation(a, [variant]), text)))


def emulation(a: Analysis, variants: Iterable[Variant]) -> str:
    """Name the mark of emulation of several variants together; '' where none of them slept."""
    slept = {a.emulated(variant) for variant in variants}
    return "" if True not in slept else "Emulated in part" if False in slept else "Emulated"


def _emulation(a: Analysis) -> Iterator[Statement]:
    """Tell what slept, what is real, and where the emulation ends."""
    if not a.timelines:
        return
    which = "in all runs" if a.emulated() else f"where a variant says {EMULATE}=TIMELINE,"
    notice = (
        f"{which} compute slept as {' and '.join(a.timelines)} says, in proportion to the images "
        "of a rank. Parameters, hooks, fusion, exchange and optimiser step are real; the "
        "exchanged gradients were checked, and there is no loss."
    )
    yield Statement(notice, "Emulated")
    if busy := _busy(a):
        shares = ", ".join(f"{percent(share)} at {ranks(n)}" for n, share in sorted(busy.items()))
        full = next((n for n, share in sorted(busy.items()) if share >= _FULL), None)
        ends = f": from {ranks(full)} on the emulation measures this machine" if full else ""
        polls = "a rank that waits in MPI polls, which counts as busy"
        yield Statement(f"Cores busy, of the busiest host and cell: {shares}{ends} ({polls}).")


def _busy(a: Analysis) -> dict[int, float]:
    """Find by ranks, of emulated runs, the busiest cell's share of time in which cores worked."""
    busy: dict[int, float] = {}
    for row in a.throughput:
        if a.emulated(row.point.variant) and row.busy_share is not None:
            busy[row.point.world_size] = max(row.busy_share, busy.get(row.point.world_size, 0.0))
    return busy


def _headline(a: Analysis) -> Statement:
    """State all verdicts in one sentence."""
    summary = "not compared, as no launch holds usable, comparable runs of both on one transport"
    if a.comparisons:
        summary = f"{tally(a.comparisons, sizes=True)}; margin {rule(a.loaded.study.margin)}"
    return Statement(f"{summary}.", marked(a, (), versus(a)))


def opening(a: Analysis) -> str:
    """Write the first sentence of page and terminal, for readers who know no statistics."""
    if trainings_answer(a):
        return clean(" ".join(islice(_trained(a), _TAUGHT)), _MOST)
    if not a.comparisons:
        return _headline(a).line
    c = by_weight(a)[0]
    if not c.decides:
        return clean(marked(a, c.variant, _curve(a, c)), _MOST)
    nodes = len({rank["hostname"] for rank in a.loaded.host.get("ranks", ())})
    place = "on this machine" if nodes < 2 else f"on these {nodes} nodes"
    return clean(marked(a, c.variant, plain(c, place)), _MOST)


def verdicts(a: Analysis) -> list[Statement]:
    """List what follows the first sentence: all verdicts together, and the one of most weight."""
    if not any(c.decides for c in a.comparisons):
        return []
    several = a.comparisons[1:] or trainings_answer(a)
    return [*([_headline(a)] if several else []), next(_compared(a))]


def _curve(a: Analysis, c: Comparison) -> str:
    """Describe the ratios along a comparison's first curve, of a study that plans no verdict."""

    def line(row: Comparison) -> tuple[object, ...]:
        return row.transport, row.variant, row.points[0].fixed(c.curves[0])

    rows = [r for r in a.comparisons if c.curves[0] in r.curves and line(r) == line(c)]
    rows.sort(key=lambda row: (row.world_size, row.samples_per_rank))
    values = [f"{ratio(r.paired.ratio)} at {_size(r, c.curves[0])}" for r in rows]
    launches = count(min(r.paired.n for r in rows), "launch")
    way = f" over {TRANSPORTS[c.transport]}" if c.transport in TRANSPORTS else ""
    name = f"{over(c.reference, c.candidate)}{way}"
    return f"{name} is {', '.join(values)}; {launches} each, a curve without a verdict."


def _size(c: Comparison, curve: str) -> str:
    return f"{c.samples_per_rank} images per rank" if curve == "batch" else ranks(c.world_size)


def by_weight(a: Analysis) -> list[Comparison]:
    """Sort the comparisons: the primary one first, then the largest worlds, weak scaling before
    strong; those that exchange otherwise than a plain run come after those that do not.
    """

    def weight(c: Comparison) -> tuple[object, ...]:
        place = -c.world_size, min(map(CURVES.index, c.curves)), transport_order(c.transport)
        return not c.primary, changes_exchange(c.variant), *place

    return sorted(a.comparisons, key=weight)


def _compared(a: Analysis, forecast: bool = False) -> Iterator[Statement]:
    """State every comparison; `forecast` adds to the primary one what another day may give."""
    for c in by_weight(a):
        point = f"{ranks(c.world_size)}, {c.samples_per_rank} images per rank, {c.transport}"
        conditions = "; ".join([", ".join(c.curves), *c.words])
        where = marked(a, c.variant, f"{point} ({conditions})")
        where = f"{'Primary: ' if c.primary and a.comparisons[1:] else ''}{where}"
        value = f"{over(c.reference, c.candidate)} = {interval(c.estimate, ratio)}"
        value += f"; {count(c.paired.n, 'launch')}, margin {rule(c.margin)}"
        texts = [sentence(c) if c.decides else "", value, *doubts(c)]
        text = ". ".join(text[:1].upper() + text[1:] for text in texts if text)
        day = another_day(c) if c.primary and forecast else ""
        yield Statement(f"{text}.{f' {day}' * bool(day)}", where)


def terminal(a: Analysis, page: Path, others: int) -> list[str]:
    """Write at most five lines: the answer, the verdicts, what holds, where the report is."""
    lines = [opening(a), *(finding.line for finding in verdicts(a)), standing(checks(a))]
    return [*(clean(line, 500) for line in lines), f"{page} and {count(others, 'other file')}"]


def findings(a: Analysis) -> list[Statement]:
    """List all that the head of the page says, in its order."""

    def section(title: str) -> str:
        return f"{title} (emulated)" if a.emulated() else title

    compared, texts = list(_compared(a, forecast=True)), list(_trained(a))
    taught = [Statement(text) for text in texts[:_MOST_ANSWERS]]
    if more := len(texts[_MOST_ANSWERS:]):
        taught.append(Statement(f"{more} more", section=section("Training to a target")))
    first = compared[:_MOST_ANSWERS]
    if more := len(compared[_MOST_ANSWERS:]):
        rest = f"The other {count(more, 'comparison') if more > 1 else 'comparison'}"
        first.append(Statement(rest, section=section(versus(a))))
    if not compared or (compared[1:] and by_weight(a)[0].decides):
        first.insert(0, _headline(a))
    gained = Statement("What variants gain over the plainest one", section=section("Variants"))
    order = [*taught, *first] if trainings_answer(a) else [*first, *taught]
    return [*_emulation(a), *order, *([gained] if a.gains else []), *map(Statement, _scaling(a))]


def _scaling(a: Analysis) -> Iterator[str]:
    """Compare the largest point of each curve, variant and batch with one process."""
    series: dict[tuple[str, Variant, int], list[PointRow]] = defaultdict(list)
    for s in a.efficiency:
        if s.kind == "common":
            p = s.point
            series[s.curve, p.variant, p.fixed(s.curve)].append(s)
    for (curve, variant, fixed), rows in series.items():
        largest = max(s.point.world_size for s in rows)
        last = [s for s in rows if s.point.world_size == largest]
        if curve == "weak":
            name, part = "Weak efficiency", "rank"
            values = [f"{s.point.cell} {interval(s.efficiency, percent)}" for s in last]
        else:
            name, part = "Strong speed-up", "step"
            values = [f"{s.point.cell} {interval(s.speedup, ratio)}" for s in last]
        base = f"one plain process at {rate(last[0].baseline_images_per_s.value)} images/s"
        conditions = "; ".join([f"{fixed} images per {part}", *words(variant)])
        where = f"{ranks(largest)} against {base} ({conditions})"
        name = marked(a, variant, name)
        yield f"{name} at {where}: {', '.join(values)}."


def trainings_answer(a: Analysis) -> bool:
    """Check whether trainings are the answer: there are some, and no verdict on images/s."""
    return bool(a.trained) and all(c.paired.n < c.needs for c in a.comparisons)


def _trained(a: Analysis) -> Iterator[str]:
    """Describe each batch and variant at most ranks: the median seconds to the target, or the share
    that is right at the end.
    """
    most = max((t.point.world_size for t in a.trained), default=0)
    groups: dict[tuple[str, ...], list[PointRow]] = defaultdict(list)
    for t in a.trained:
        if (p := t.point).world_size == most:
            groups[(f"{p.samples_per_rank} images per rank", *p.words)].append(t)
    for conditions, rows in groups.items():
        aim = "Held-out accuracy after the last epoch"
        if rows[0].target is not None:
            aim = f"Median seconds to {rule(rows[0].target)} held-out accuracy"
        yield f"{aim} at {ranks(most)} ({'; '.join(conditions)}): {_reached(rows)}."


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
