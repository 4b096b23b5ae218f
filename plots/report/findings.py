"""Findings of a study: each sentence that terminal, pages and figures choose from, made once."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.backends.catalogue import TRANSPORTS
from bench.study import stats
from bench.study.comparison import Comparison
from bench.study.folder import RESULTS
from bench.study.points import fixed, ranks
from bench.study.words import count, ends, prospect, rule
from plots.analyse.scaling import Efficiency
from plots.analyse.study import Analysis, machine, workload
from plots.analyse.trainings import Trained
from plots.report.checks import checks
from plots.report.format import clean, interval, ms, percent, rate, ratio, seconds, short
from plots.report.verdicts import Statement, by_weight, marked, over, sides, standing, tally, versus

_STUDIES = Path(__file__).parents[2] / "slurm" / "studies"
_FULL = 0.9  # share of the time from which on cores are as good as full


def findings(a: Analysis) -> list[Statement]:
    """Make every sentence on a study, in the order in which a reader asks."""
    answer, *trained = _answers(a)
    texts: dict[str, Iterable[str]] = {
        "answer": [clean(answer, 1000)],
        "machine": [f"{clean(machine(a.loaded.host))}. {clean(workload(a))}."],
        "why": _why(a),
        "scaling": _scaling(a),
        "training": trained,
        "others": [tally(a.comparisons)] if any(c.decides for c in a.comparisons[1:]) else [],
        "emulated": _emulated(a),
        "note": (f"Note: {note.removesuffix('.')}." for note in a.notes),
    }
    made = [Statement(kind, text) for kind, some in texts.items() for text in some]
    return [*made, *_next(a), *checks(a)]


def terminal(whole: Sequence[Statement], page: Path) -> list[str]:
    """Write at most five lines: the answer, all verdicts, what holds, where the page is."""
    lines = [one.text for kind in ("answer", "others") for one in whole if one.kind == kind]
    return [*(clean(line, 500) for line in (*lines, standing(whole))), page.absolute().as_uri()]


def trains(a: Analysis) -> bool:
    """Check whether trainings are the answer: there are some, and no verdict on images/s."""
    return bool(a.trained) and all(c.paired.n < c.needs for c in a.comparisons)


def _answers(a: Analysis) -> list[str]:
    """Write the first sentence for readers who know no statistics; then those on trainings."""
    trained = list(_trained(a))
    if trains(a):
        return trained
    if not a.comparisons:
        none = "not compared, as no launch holds usable, comparable runs of both on one transport"
        return [marked(a, None, f"{versus(a)}: {none}."), *trained]
    c = by_weight(a)[0]
    nodes = len({rank["hostname"] for rank in a.loaded.host.get("ranks", ())})
    place = "on this machine" if nodes < 2 else f"on these {nodes} nodes"
    text = _verdict(c, place) if c.decides else _curve(a, c)
    return [marked(a, [c], text), *trained]


def _verdict(c: Comparison, place: str) -> str:
    """State a verdict with its interval and n; `place` says where: 'on this machine'."""
    first, second = sides(c)
    ahead, behind = (second, first) if c.paired.ratio > 1 else (first, second)
    way = f" over {TRANSPORTS[c.transport]}" if c.transport in TRANSPORTS else ""
    way += f" in arm {c.arm}" if c.arm and not c.arms_differ else ""
    place = f"on {ranks(c.world_size)}{way} {place}"
    place += ", where nothing is exchanged" if c.world_size == 1 else ""
    n = count(c.paired.n, "launch")
    if c.verdict == "equal":
        both = f"{first} and {second} are equally fast within {rule(c.margin)} {place}"
        return f"{both} ({over(c)} = {interval(c.estimate, ratio)}, {n})."
    by = f"{100 * (max(c.paired.ratio, 1 / c.paired.ratio) - 1):.1f} %"
    if not c.settled:
        doubt = "no interval is known"
        if c.paired.n < c.needs:
            doubt = f"a verdict needs {c.needs}"
        elif c.estimate.shown:
            doubt = f"anything from {_share(c, c.estimate.shown, 1)} is possible"
        return f"Not settled: {ahead} is ahead by {by} in {n} {place}, and {doubt}."
    spread = f"{_share(c, c.estimate.shown, 1)}, {n}"
    day = f"; on another day expect {_share(c, c.another_day, 0)}" if c.another_day else ""
    return f"{ahead} is {by} faster than {behind} {place} ({spread}){day}."


def _share(c: Comparison, ratios: tuple[float, float] | None, digits: int) -> str:
    """State by what share the side ahead may be faster, '4.9 to 10.1 %', from ratios."""
    low, high = ratios or (1.0, 1.0)
    low, high = (low, high) if c.paired.ratio > 1 else (1 / high, 1 / low)
    return f"{' to '.join(ends(100 * (low - 1), 100 * (high - 1), digits, 0.0))} %"


def _curve(a: Analysis, c: Comparison) -> str:
    """Describe the ratios along a comparison's first curve, of a study that plans no verdict."""
    curve, way = c.curves[0], f" over {TRANSPORTS.get(c.transport, c.transport)}"
    way += f" in arm {c.arm}" if c.arm and not c.arms_differ else ""
    line = c.transport, c.arm, fixed(c.points[0], curve)
    batch = curve == "batch"
    values = [
        f"{ratio(r.paired.ratio)} at "
        + (f"{r.batch_per_rank} images per rank" if batch else ranks(r.world_size))
        for r in sorted(a.comparisons, key=lambda row: row.points[0][2:])
        if curve in r.curves and (r.transport, r.arm, fixed(r.points[0], curve)) == line
    ]
    ends = f"; {count(c.paired.n, 'launch')}, a curve without a verdict."
    return f"{over(c)}{way} is {', '.join(values)}{ends}"


def _scaling(a: Analysis) -> Iterator[str]:
    """Compare the largest point of each curve, arm and batch with one process."""
    series: dict[tuple[str, str, int], list[Efficiency]] = defaultdict(list)
    for s in a.efficiency:
        if s.kind == "common":
            series[s.curve, s.point.arm, fixed(s.point, s.curve)].append(s)
    for (curve, arm, kept), rows in series.items():
        most = max(s.point.world_size for s in rows)
        last = [s for s in rows if s.point.world_size == most]
        values = ", ".join(f"{s.point.cell} {interval(s.efficiency, percent)}" for s in last)
        batch = f"{kept} images per {'rank' if curve == 'weak' else 'step'}"
        place = ", ".join(filter(None, [ranks(most), batch, arm]))
        one = f"one plain process ({rate(last[0].baseline_images_per_s.value)} images/s)"
        text = f"{curve.capitalize()} scaling, {place}: {values} of {most} times {one}."
        yield marked(a, [last[0].point], text)


def _trained(a: Analysis) -> Iterator[str]:
    """Describe each batch and arm at most ranks: the median seconds to the target, or the share
    that is right at the end.
    """
    most = max((t.point.world_size for t in a.trained), default=0)
    groups: dict[tuple[int, str], list[Trained]] = defaultdict(list)
    for t in a.trained:
        if t.point.world_size == most:
            groups[t.point.batch_per_rank, t.point.arm].append(t)
    for (batch, arm), rows in groups.items():
        aim, form, name = "Held-out accuracy after the last epoch", percent, "accuracy"
        done = count(sum(len(t.trainings) for t in rows), "training")
        if (target := rows[0].target) is not None:
            aim, form, name = f"Median seconds to {rule(target)} held-out right", seconds, "seconds"
            done = f"{sum(t.reached or 0 for t in rows)} of {done} reached it"
        values = [(t.point.cell, getattr(t, name)) for t in rows]
        cells = ", ".join(f"{cell} {short(e, form) if e else 'never'}" for cell, e in values)
        cells += " (95 % intervals)" if any(e and e.shown for _, e in values) else ""
        place = ", ".join(filter(None, [ranks(most), f"{batch} images per rank", arm]))
        yield f"{aim} at {place}: {cells}; {done}."


def _emulated(a: Analysis) -> Iterator[str]:
    """Tell what slept, what is real, and where the emulation ends."""
    if not a.timelines:
        return
    which = "All compute" if a.emulated() else "Compute of the runs that are marked so"
    yield (
        f"{which} slept as {' and '.join(a.timelines)} says, in proportion to the images of a "
        "rank. Parameters, hooks, fusion, exchange and optimiser step are real."
    )
    busy: dict[int, float] = defaultdict(float)
    for row in a.throughput:
        if a.emulated(row.point.arm) and row.busy_share is not None:
            busy[row.point.world_size] = max(row.busy_share, busy[row.point.world_size])
    if busy:
        shares = ", ".join(f"{percent(share)} at {ranks(n)}" for n, share in sorted(busy.items()))
        full = next((n for n, share in sorted(busy.items()) if share >= _FULL), None)
        limit = f": from {ranks(full)} on the emulation measures this machine" if full else ""
        polls = "a rank that waits in MPI polls, which counts as busy"
        yield f"Cores busy, of the busiest host and cell: {shares}{limit} ({polls})."


def _why(a: Analysis) -> Iterator[str]:
    """Explain the primary comparison by what the exchange costs each side, if it was measured."""
    c = a.primary
    costs = {cost.point: cost for cost in a.exchange.costs} if c and a.exchange else {}
    if c is None or not all(point in costs for point in c.points):
        return
    names = sides(c)
    for attribute, text in (
        ("difference_seconds", "The exchange of gradients makes a step longer by"),
        ("exposed_seconds", "After its backward pass a rank waits for the exchange:"),
    ):
        values = [getattr(costs[point], attribute) for point in c.points]
        if None not in values:
            each = zip(values, names, strict=True)
            yield f"{text} {' and '.join(f'{interval(e, ms)} ms with {x}' for e, x in each)}."


def _next(a: Analysis) -> Iterator[Statement]:
    """Say what to do next for the primary comparison: one way, its command and its price."""
    c, runs, name = a.primary, a.loaded.runs, a.loaded.study.name
    if c is None or not c.decides:
        return
    folder = f"{RESULTS}/{name}"
    if a.loaded.shipped:
        folder = name if (_STUDIES / f"{name}.toml").exists() else f"results/{name}"
    verb = "submit" if runs["allocation"].str.startswith("job ").any() else "run"
    command = f"python -m slurm {verb} {shlex.quote(clean(folder))}"
    by_block = runs.assign(ended_s=runs["began_s"] + runs["wall_s"]).groupby("block")
    launch_s = (by_block["ended_s"].max() - by_block["began_s"].min()).median()

    def price(launches: int) -> str:
        minutes = "" if math.isnan(launch_s) else f", about {launch_s * launches / 60:.0f} min"
        return count(launches, "launch") + minutes

    n, left = c.paired.n, c.max_blocks - c.paired.n
    if c.settled and c.unit == "sessions":
        text, command = "nothing is open here; other sizes and machines are another study.", ""
    elif c.settled and left > 0:
        more = min(a.loaded.study.blocks or c.needs, left)
        command += f" --blocks {n + more}"
        means = f"from {stats.SESSIONS} sessions on the interval is over their means"
        text = f"on another day add {price(more)}: {means}."
    elif n < c.needs:
        text = f"do {price(c.needs - n)}, that the first look lacks."
    elif left > 0:
        text = f"go on until it is settled, at most {price(left)}. {prospect(c)}."
    else:
        text, command = f"all planned launches are done. {prospect(c)}".strip(" ."), ""
        text += ". Measure it under another name."
    yield Statement("next", f"Next: {text}", command=command)
