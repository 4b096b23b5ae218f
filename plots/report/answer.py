"""The answer in words: the head of a page and of a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from bench.backends.catalogue import TRANSPORTS
from plots.analyse.comparability import EMULATE
from plots.analyse.comparison import Comparison
from plots.analyse.points import CURVES, ranks
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis
from plots.analyse.variants import Variant, changes_exchange, words
from plots.report import learned
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
)
from plots.report.verdicts import (
    another_day,
    doubts,
    label,
    over,
    plain,
    sentence,
    sides,
)

_FULL = 0.9  # share of the time from which on cores are as good as full
_MOST = 1000  # characters of the first sentence
_TAUGHT = 2  # trainings that it tells of
_MOST_ANSWERS = 3  # comparisons at the head of the page; all are in its tables


def tally(rows: Sequence[Comparison], sizes: bool = False, most: int | None = None) -> str:
    """All in one line: 'A faster at 22 of 26 points, Not settled at 4'; by how much with `sizes`.

    What is settled stands first. Of more than `most` verdicts the last ones are counted together.
    """
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[label(c)].append(c)
    total = count(len(rows), "point")
    counts: list[str] = []
    ordered = sorted(groups.items(), key=lambda item: (not item[1][0].settled, -len(item[1])))
    if most is not None and len(ordered) > most:
        rest = [c for _, group in ordered[most - 1 :] for c in group]
        ordered = [*ordered[: most - 1], ("other verdicts", rest)]
    for word, group in ordered:
        where = f"{len(group)}" if counts else f"{len(group)} of {total}"
        if len(group) == len(rows):
            where = total if len(rows) == 1 else every(len(rows), "point")
        counts.append(f"{word} at {where}{_sizes(group) if sizes else ''}")
    return ", ".join(counts)


def _sizes(rows: Sequence[Comparison]) -> str:
    if rows[0].verdict != "faster":
        return ""
    gains = sorted(max(c.paired.ratio, 1 / c.paired.ratio) - 1 for c in rows)
    ends = dict.fromkeys(percent(g).removesuffix(" %") for g in (gains[0], gains[-1]))
    return f" (by {' to '.join(ends)} %)"


def versus(a: Analysis) -> str:
    """The candidate against the reference, in words."""
    return " against ".join(reversed(sides(a.reference, a.candidate)))


def marked(a: Analysis, variant: Variant, text: str) -> str:
    """`text`, which begins with the mark of emulated runs where it speaks of such."""
    kind = emulation(a, [variant])
    return f"{kind}: {text}" if kind else text


def emulation(a: Analysis, variants: Iterable[Variant]) -> str:
    """The mark of what several variants show together; '' where none of them slept."""
    slept = {a.emulated(variant) for variant in variants}
    return "" if True not in slept else "Emulated in part" if False in slept else "Emulated"


def _emulation(a: Analysis) -> list[Markdown]:
    """What slept and what is real, and where the emulation ends."""
    if not a.timelines:
        return []
    timelines = " and ".join(map(escape, a.timelines))
    which = "in all runs" if a.emulated() else f"where a variant says {EMULATE}=TIMELINE,"
    notice = Markdown(
        f"**Emulated:** {which} compute slept as {timelines} says, in proportion to the "
        "images of a rank. Parameters, hooks, fusion, exchange and optimiser step are real; the "
        "exchanged gradients were checked, and there is no loss."
    )
    busy = _busy(a)
    shares = ", ".join(f"{percent(share)} at {ranks(n)}" for n, share in sorted(busy.items()))
    full = full_from(a)
    ends = "" if full is None else f": from {ranks(full)} on the emulation measures this machine"
    polls = "a rank that waits in MPI polls, which counts as busy"
    cores = f"Cores busy, of the busiest host and cell: {shares}{ends} ({polls})."
    return [notice, Markdown(cores)] if busy else [notice]


def _busy(a: Analysis) -> dict[int, float]:
    """By ranks, of emulated runs: the busiest cell's share of time in which cores worked."""
    busy: dict[int, float] = {}
    for row in a.throughput:
        if a.emulated(row.point.variant) and row.busy_share is not None:
            busy[row.point.world_size] = max(row.busy_share, busy.get(row.point.world_size, 0.0))
    return busy


def full_from(a: Analysis) -> int | None:
    """From so many ranks on an emulation's cores are full: it measures the machine."""
    return next((n for n, share in sorted(_busy(a).items()) if share >= _FULL), None)


def headline(a: Analysis) -> str:
    """All verdicts in one sentence."""
    summary = "not compared, as no launch holds usable, comparable runs of both on one transport"
    if a.comparisons:
        summary = f"{tally(a.comparisons, sizes=True)}; margin {rule(a.loaded.study.margin)}"
    return marked(a, (), f"{versus(a)}: {summary}.")


def opening(a: Analysis) -> str:
    """The first sentence of page and terminal, for who knows no statistics."""
    if learned.answers(a):
        return clean(" ".join(islice(learned.lines(a), _TAUGHT)), _MOST)
    if not a.comparisons:
        return clean(headline(a), _MOST)
    c = by_weight(a)[0]
    if not c.decides:
        return clean(marked(a, c.variant, _curve(a, c)), _MOST)
    nodes = len({rank["hostname"] for rank in a.loaded.host.get("ranks", ())})
    place = "on this machine" if nodes < 2 else f"on these {nodes} nodes"
    return clean(marked(a, c.variant, plain(c, place)), _MOST)


def _curve(a: Analysis, c: Comparison) -> str:
    """The ratios along a comparison's first curve, of a study that plans no verdict."""

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
    """The primary comparison first, then the largest worlds, weak scaling before strong; what
    exchanges otherwise than a plain run comes after what does not.
    """

    def weight(c: Comparison) -> tuple[object, ...]:
        curve = min(map(CURVES.index, c.curves))
        other = changes_exchange(c.variant)
        return not c.primary, other, -c.world_size, curve, transport_order(c.transport)

    return sorted(a.comparisons, key=weight)


def _each(a: Analysis) -> list[tuple[str, str]]:
    """Where and what of every comparison."""
    rows = []
    for c in by_weight(a):
        point = f"{ranks(c.world_size)}, {c.samples_per_rank} images per rank, {c.transport}"
        conditions = "; ".join([", ".join(c.curves), *c.words])
        where = marked(a, c.variant, f"{point} ({conditions})")
        where = f"{'Primary: ' if c.primary and a.comparisons[1:] else ''}{where}"
        value = f"{over(c.reference, c.candidate)} = {interval(c.estimate, ratio)}"
        n = f", n = {c.paired.n}" if c.estimate.shown else ""
        texts = [sentence(c) if c.decides else "", f"{value}{n}", *doubts(c)]
        rows.append((where, ". ".join(text[:1].upper() + text[1:] for text in texts if text) + "."))
    return rows


def terminal(a: Analysis, page: Path, others: int) -> list[str]:
    """At most five lines: the answer, the verdicts, what holds, where the report is."""
    first, has_verdicts = [opening(a)], any(c.decides for c in a.comparisons)
    if has_verdicts and (a.comparisons[1:] or learned.answers(a)):
        first.append(headline(a))
    first += [f"{where}: {text}" for where, text in _each(a)[:has_verdicts]]
    lines = [clean(line, 500) for line in (*first, standing(checks(a)))]
    return [*lines, f"{page} and {count(others, 'other file')}"]


def lines(a: Analysis) -> list[Markdown]:
    """The head of the page, one finding a line."""
    findings = _emulation(a)
    trained = [Markdown(escape(line)) for line in learned.lines(a)]
    taught = trained[:_MOST_ANSWERS]
    if more := trained[_MOST_ANSWERS:]:
        link = "[Training to a target](#training-to-a-target)"
        taught.append(Markdown(f"{len(more)} more: see {link}."))
    compared = _each(a)
    if a.primary and (day := another_day(a.primary)):  # the first one
        compared[0] = compared[0][0], f"{compared[0][1]} {day}"
    head = escape(headline(a))
    verdicts = [] if len(compared) == 1 else [f"**{head}**" if compared else head]
    verdicts = [] if compared and not by_weight(a)[0].decides else verdicts
    first = compared[:_MOST_ANSWERS]
    verdicts += [f"**{escape(where)}:** {escape(text)}" for where, text in first]
    if others := compared[_MOST_ANSWERS:]:
        rest = count(len(others), "comparison") if len(others) > 1 else "comparison"
        verdicts.append(f"The other {rest}: see the table below.")
    compared_lines = [Markdown(line) for line in verdicts]
    findings += [*taught, *compared_lines] if learned.answers(a) else [*compared_lines, *taught]
    place = "variants-emulated" if a.emulated() else "variants"
    gained = f"What the variants gain over the plainest one stands under [Variants](#{place})."
    scaling = [Markdown(escape(line)) for line in _scaling(a)]
    return [*findings, *([Markdown(gained)] if a.gains else []), *scaling]


def _scaling(a: Analysis) -> list[str]:
    """For each curve, variant and batch the largest point against one process."""
    series: dict[tuple[str, Variant, int], list[Scaled]] = defaultdict(list)
    for s in a.efficiency:
        if s.kind == "common":
            p = s.point
            series[s.curve, p.variant, p.fixed(s.curve)].append(s)
    lines = []
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
        lines.append(f"{name} at {where}: {', '.join(values)}.")
    return lines
