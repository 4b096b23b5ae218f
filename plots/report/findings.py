"""Findings of a study: sentences and checks, from which terminal, pages and summary.json choose."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.backends.catalogue import TRANSPORTS
from bench.record.outcome import NOISY
from bench.study import stats, words
from bench.study.comparability import NO_TURNS, TAKEN
from bench.study.comparison import Comparison, ratios_by_session
from bench.study.folder import RESULTS
from bench.study.points import by_point, fixed, ranks
from bench.study.rows import ENOUGH_STEPS, ENOUGH_WINDOWS
from bench.study.words import count, ends, prospect, rule
from plots.analyse.scaling import Efficiency
from plots.analyse.study import LIMIT, Analysis, machine, workload
from plots.analyse.trainings import Trained
from plots.report.format import clean, interval, ms, percent, rate, ratio, seconds, short
from plots.report.labels import by_weight, marked, over, sides, versus

_STUDIES = Path(__file__).parents[2] / "slurm" / "studies"
_FULL = 0.9  # share of the time from which on cores are as good as full
_MOST_COST = 0.25  # of the margin: what beginning a turn may cost one side more
_OF_CURVES = ("emulated", "machine", "scaling")  # kinds of statements
Check = tuple[str, bool | None, str]  # name, whether it holds (None: nothing tells), why


@dataclass(frozen=True)
class Statement:
    """A sentence or two on a study.

    `kind` is 'answer', 'others' (all verdicts counted), 'machine', 'scaling', 'training',
    'emulated', 'why' (what the exchange costs), 'next' (what to do), 'note' or 'check'.
    """

    kind: str
    text: str
    holds: bool | None = None  # of a check; None where nothing tells
    name: str = ""  # of a check, in a few words
    command: str = ""  # what to type next


def tally(rows: Sequence[Comparison]) -> str:
    """Count verdicts: 'A faster at 22 of 26 points (by 2.1 to 4.3 %), Equal within 2 % at 4'."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in rows:
        groups[words.word(c)].append(c)
    counts: list[str] = []
    for ending, group in sorted(groups.items(), key=lambda x: (not x[1][0].settled, -len(x[1]))):
        place = f"{len(group)}" if counts else f"{len(group)} of {count(len(rows), 'point')}"
        gains = sorted(max(c.paired.ratio, 1 / c.paired.ratio) - 1 for c in group)
        both = dict.fromkeys(percent(g).removesuffix(" %") for g in (gains[0], gains[-1]))
        by = f" (by {' to '.join(both)} %)" if group[0].settled and not group[0].equal else ""
        counts.append(f"{ending} at {place}{by}")
    return ", ".join(counts)


def standing(whole: Iterable[Statement]) -> str:
    """Sum up all checks in one line, as 'Holds: equal work, in turns. In doubt: 1 session'."""
    checked = [one for one in whole if one.kind == "check"]
    names = {"Holds": True, "In doubt": False, "Not known": None}
    each = {key: [c.name for c in checked if c.holds is holds] for key, holds in names.items()}
    return " ".join(f"{key}: {', '.join(some)}." for key, some in each.items() if some)


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


def with_curves(a: Analysis, whole: Sequence[Statement], other: Analysis) -> list[Statement]:
    """Return `whole`, the findings of `a`, with the scaling of `other` in place of its own."""
    about = {kind: [one for one in findings(other) if one.kind == kind] for kind in _OF_CURVES}
    first, *emulated = about["emulated"] or about["machine"]
    return [
        *(one for one in whole if one.kind not in ("scaling", "next")),
        replace(first, kind="machine", text=f"Curves: {first.text}"),
        *(Statement("scaling", text) for text in _contrast(a, other)),
        *about["scaling"],
        *emulated,
        *(one for one in whole if one.kind == "next"),
    ]


def terminal(whole: Sequence[Statement], page: Path) -> list[str]:
    """Return up to four lines: the answer, a count of verdicts, the checks, the page's address."""
    lines = [one.text for kind in ("answer", "others") for one in whole if one.kind == kind]
    return [*(clean(line, 500) for line in (*lines, standing(whole))), page.absolute().as_uri()]


def trains(a: Analysis) -> bool:
    """Check whether trainings are the answer: some exist, and no comparison has enough launches."""
    return bool(a.trained) and all(c.paired.n < c.needs for c in a.comparisons)


def _answers(a: Analysis) -> list[str]:
    """Return the answer, for readers who know no statistics, then the sentences on trainings."""
    trained = list(_trained(a))
    if trains(a):
        return trained
    if not a.comparisons:
        none = "not compared, as no launch holds usable, comparable runs of both on one transport"
        return [marked(a, None, f"{versus(a)}: {none}."), *trained]
    c = by_weight(a)[0]
    return [marked(a, [c], _comparison(a, c) if c.decides else _curve(c)), *trained]


def _way(c: Comparison) -> str:
    """Name transport and arm of a comparison: ' over MPI in arm matched'."""
    way = f" over {TRANSPORTS.get(c.transport, c.transport)}" if c.transport else ""
    return way + f" in arm {c.arm}" * bool(c.arm and not c.arms_differ)


def _comparison(a: Analysis, c: Comparison) -> str:
    """State which side is faster, by how much and how surely, with launches and machine."""
    first, second = sides(c)
    ahead, behind = (second, first) if c.paired.ratio > 1 else (first, second)
    nodes = len({rank["hostname"] for rank in a.loaded.host.get("ranks", ())})
    place = "on this machine" if nodes < 2 else f"on these {nodes} nodes"
    place = f"on {ranks(c.world_size)} of {count(c.batch_per_rank, 'image')}{_way(c)} {place}"
    place += ", where nothing is exchanged" if c.world_size == 1 else ""
    n = count(c.paired.n, "launch")
    if c.equal:
        both = f"{first} and {second} are equally fast within {rule(c.margin)} {place}"
        return f"{both} ({over(c)} = {interval(c.estimate, ratio)}, {n})."
    by = f"{100 * (max(c.paired.ratio, 1 / c.paired.ratio) - 1):.1f} %"
    if not c.settled:
        doubt = "no interval is known"
        if c.paired.n < c.needs:
            doubt = f"{c.needs} are needed"
        elif c.estimate.shown:
            doubt = f"anything from {_share(c, c.estimate.shown, 1)} is possible"
        return f"Not settled: {ahead} is ahead by {by} in {n} {place}, and {doubt}."
    spread = f"{_share(c, c.estimate.shown, 1)}, {n}"
    day = f"; on another day expect {_share(c, c.another_day, 0)}" if c.another_day else ""
    return f"{ahead} is {by} faster than {behind} {place} ({spread}){day}."


def _share(c: Comparison, ratios: tuple[float, float] | None, digits: int) -> str:
    """Write how much faster the side ahead may be, '4.9 to 10.1 %', from an interval's ends."""
    low, high = ratios or (1.0, 1.0)
    low, high = (low, high) if c.paired.ratio > 1 else (1 / high, 1 / low)
    return f"{' to '.join(ends(100 * (low - 1), 100 * (high - 1), digits, 0.0))} %"


def _curve(c: Comparison) -> str:
    """State the ratio of a study that draws a curve and plans too few launches for a verdict."""
    n = count(c.paired.n, "launch")
    value = f"{short(c.estimate, ratio)} on {ranks(c.world_size)}{_way(c)}"
    return f"{over(c)} = {value}: {n} of a curve that claims nothing."


def _contrast(a: Analysis, curves: Analysis) -> Iterator[str]:
    """Yield a sentence if real (`a`) and emulated `curves` differ in who, if any, is ahead."""
    c = a.primary
    slept = [e for e in by_weight(curves) if e.emulated]
    same = [e for e in slept if c and (e.reference, e.candidate) == (c.reference, c.candidate)]
    if c is None or c.emulated or not same:
        return
    largest = max(same, key=lambda e: e.world_size)
    if _ahead(c) != _ahead(largest):
        real, emulated = (
            f"on {ranks(e.world_size)} ({e.batch_per_rank} images per rank) {_ahead(e)} is ahead "
            f"({over(e)} = {short(e.estimate, ratio)})"
            for e in (c, largest)
        )
        yield (
            f"Real and emulated differ: with real compute {real}, with emulated compute "
            f"{emulated}; compute that sleeps leaves the cores to the exchange, so the answer "
            "above is for real compute alone."
        )


def _ahead(c: Comparison) -> str:
    """Name the side ahead, or 'neither' if no side has won and the ratio lies inside the margin."""
    if not (c.settled and not c.equal) and abs(math.log(c.paired.ratio)) <= math.log1p(c.margin):
        return "neither"
    return sides(c)[c.paired.ratio > 1]


def _scaling(a: Analysis) -> Iterator[str]:
    """Yield a sentence for each curve, arm and batch, on efficiency at the largest world size."""
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
    """Yield a sentence per batch and arm: seconds to the target, or accuracy at the end."""
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
    """Yield sentences on emulation: what slept, what is real, how many ranks fill the cores."""
    if not a.timelines:
        return
    which = "each rank" if a.emulated() else "each rank of the runs that are marked so"
    names = " and ".join(timeline.split()[0] for timeline in a.timelines)
    yield (
        f"Compute is emulated: {which} slept as long as {names} says for its images. "
        "Parameters, hooks, fusion, exchange and optimiser step are real."
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
    c, costs = a.primary, {cost.point: cost for cost in a.costs}
    if c is None or not all(point in costs for point in c.points):
        return
    for attribute, text in (
        ("difference_seconds", "The exchange of gradients makes a step longer by"),
        ("exposed_seconds", "After its backward pass a rank waits for the exchange:"),
    ):
        values = [getattr(costs[point], attribute) for point in c.points]
        if None not in values:
            each = zip(values, sides(c), strict=True)
            yield f"{text} {' and '.join(f'{interval(e, ms)} ms with {x}' for e, x in each)}."


def _next(a: Analysis) -> Iterator[Statement]:
    """Yield what to do next for the primary comparison, with its command, launches and minutes."""
    c, runs, name = a.primary, a.loaded.runs, a.loaded.study.name
    if c is None or not c.decides:
        return
    folder = f"{RESULTS}/{name}"
    if a.loaded.shipped:
        folder = name if (_STUDIES / f"{name}.toml").exists() else f"results/{name}"
    verb = "submit" if runs["allocation"].str.startswith("job ").any() else "run"
    command = f"python -m slurm {verb} {shlex.quote(clean(folder))}"
    by_launch = runs.assign(ended_s=runs["began_s"] + runs["wall_s"]).groupby("launch")
    launch_s = (by_launch["ended_s"].max() - by_launch["began_s"].min()).median()

    def price(launches: int) -> str:
        minutes = "" if math.isnan(launch_s) else f", about {launch_s * launches / 60:.0f} min"
        return count(launches, "launch") + minutes

    n, left = c.paired.n, c.max_launches - c.paired.n
    if c.settled and c.unit == "sessions":
        text, command = "nothing is open here; other sizes and machines are another study.", ""
    elif c.settled and left > 0:
        more = min(a.loaded.study.launches or c.needs, left)
        command += f" --launches {n + more}"
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


def checks(a: Analysis) -> Iterator[Statement]:
    """Make all checks, in the order in which a reader asks."""
    for part in (_launches, _work, _parameters, _turns, _sessions, _machine):
        for name, holds, why in part(a):
            yield Statement("check", f"{why[:1].upper()}{why[1:]}.", holds, clean(name, 160))


def _launches(a: Analysis) -> Iterator[Check]:
    """Check for missing launches, a changed study, runs left out as different, failed attempts."""
    planned, n = a.loaded.study.launches, count(a.launches, "launch")
    n += " of each size" if a.loaded.runs["world_size"].nunique() > 1 and a.comparisons[1:] else ""
    points = count(len(a.planned), "planned point")
    if a.gaps:
        yield count(len(a.gaps), "gap"), False, f"{len(a.gaps)} of {points} lack a planned launch"
    elif not planned or not a.planned:
        yield n, None, "no plan is recorded, so nobody can tell whether launches lack"
    else:
        few = {1: "the one planned launch", 2: "both planned launches"}
        launches = few.get(planned, f"all {planned} planned launches")
        yield n, True, f"each of {points} has runs in {launches}"
    if a.loaded.changed:
        yield "study changed", False, a.loaded.changed
    # complete, and not to be averaged with the others
    if aside := [x.reason for x in a.loaded.unusable if x.state == "ok"]:
        why = f"of another kind: {'; '.join(dict.fromkeys(aside))}"
        yield f"{count(len(aside), 'run')} set aside: {aside[0]}", False, why
    if lost := sum(sum(ends.values()) for ends in a.attempts.values()):
        each = (
            f"{cell or 'not recorded'} {', '.join(f'{n} {end}' for end, n in ends.items()) or 0}"
            for cell, ends in a.attempts.items()
        )
        yield f"{count(lost, 'attempt')} without a number", False, f"by cell: {'; '.join(each)}"


def _work(a: Analysis) -> Iterator[Check]:
    """Check for pairs that were not compared, and for runs that did not prove equal gradients."""
    points = {point for _, point in a.planned}
    planned = [n for n in a.not_compared if n.absent is None or n.absent in points]
    if planned:
        why = "the work differed, or one side is missing: see Not compared"
        yield f"{count(len(planned), 'pair')} not compared", False, why
    elif a.comparisons:
        yield "equal work", True, "all pairs agree on everything but the framework"
    runs = a.loaded.runs
    if len(unproven := runs[runs["parity_not_proven"] > 0]):
        runs_of = f"{len(unproven)} of {count(len(runs), 'run')}"
        cells = ", ".join(unproven["cell"].unique())
        most = count(int(unproven["parity_not_proven"].max()), "tensor")
        why = f"in {runs_of} ({cells}) a rank could not repeat its own gradients of up to {most}"
        yield "parity not proven", False, why


def _parameters(a: Analysis) -> Iterator[Check]:
    """Check whether cells of a launch ended with equal parameters, on CPUs at 1 and 2 ranks."""
    sizes = {*a.loaded.runs["world_size"]}
    digests = [d for d in a.digests if d.world_size in sizes and d.groups]
    wrong = [mismatch for d in digests for mismatch in d.mismatches]
    ended = "with bit-identical parameters, at 1 and 2 ranks, where a sum has one order"
    if wrong:
        why = f"cells of a launch did not end {ended}: {'; '.join(wrong)}"
        yield "parameters differ", False, why
    elif digests:
        runs = count(sum(d.runs for d in digests), "run")
        yield "bit-identical parameters", True, f"all cells of a launch ended {ended} ({runs})"
    else:
        why = "no launch holds two cells of 1 or 2 ranks that did the same training"
        yield "parameters not compared", None, why


def _turns(a: Analysis) -> Iterator[Check]:
    """Check whether pairs alternated window by window, and if turns slow a side of the primary."""
    compared = {cell for c in a.comparisons for cell in (c.reference, c.candidate)}
    runs = a.loaded.runs
    reasons = Counter(runs.loc[runs["cell"].isin(compared), "turns"])
    taken = reasons.pop(TAKEN, 0)
    if reasons:
        each = [f"{count(n, 'run')}: {why}" for why, n in reasons.most_common() if why != NO_TURNS]
        why = "launched one after the other, so the machine changed between them"
        yield "launched apart", False, "; ".join([why, *each])
    if not taken or reasons:
        return
    groups = {
        point: dict(zip(rows["launch"], rows["took_turns_in"], strict=True))
        for point, rows in by_point(runs)
    }
    pairs = [c.points for c in a.comparisons] + [(g.baseline, g.point) for g in a.gains]
    both = [(groups[p], groups[q]) for p, q in pairs]
    together = [p[launch] == q[launch] for p, q in both for launch in p.keys() & q]
    if elsewhere := together.count(False):
        why = f"of {elsewhere} of {len(together)} pairs the sides took turns with other worlds"
        yield f"{count(elsewhere, 'pair')} apart", False, why
    else:
        why = "both sides lived at the same time and worked one at a time, window by window"
        yield "in turns", True, why
    c = a.primary
    if c is None or c.first_steps is None or (extent := c.first_steps.interval()) is None:
        return
    # DDP against itself cannot show that beginning a turn costs one side more
    cost = (c.first_steps.ratio - 1) / float((runs["steps"] / runs["windows"]).median())
    fair = extent[0] <= 1 <= extent[1] or abs(cost) < _MOST_COST * c.margin
    reference, candidate = sides(c)
    name = f"turns slow {candidate if cost > 0 else reference}"
    claim = f"{candidate}'s first timed step of a turn, over its others, is {reference}'s times"
    why = f"{claim} {short(c.first_steps.estimate, ratio)}: {100 * abs(cost):.1f} % of the ratio"
    yield "turns favour neither" if fair else name, fair, why


def _sessions(a: Analysis) -> Iterator[Check]:
    """Check whether the primary interval takes sessions as its samples, and list their ratios."""
    if (c := a.primary) is None or not any(c.sessions):
        return
    each, over_them = by_session(c), c.unit == "sessions"
    why = "the interval is over them" if over_them else "another day may give another ratio"
    yield count(len(each), "session"), over_them, f"{why} ({'; '.join(each)})"


def by_session(c: Comparison) -> tuple[str, ...]:
    """Return a line for each session of a comparison, with the session's name and ratio."""
    sessions = ratios_by_session(c.paired, c.sessions)
    return tuple(f"{session}: {short(e, ratio)}" for session, e in sessions)


def _machine(a: Analysis) -> Iterator[Check]:
    """Check that the machine was quiet, runs were steady, and medians agree with totals."""
    shares = a.loaded.runs.set_index("log")["others_share"].dropna().astype(float)
    noisy, known = shares[shares > NOISY].sort_values(), len(shares)
    most = f"more than {rule(NOISY)} of a node's processor time"
    if not known:
        yield "load not recorded", None, "no log tells what else the machine did"
    elif noisy.empty:
        yield "quiet machine", True, f"in none of {known} runs did others take {most}"
    else:
        share = f"at most {100 * noisy.iloc[-1]:.0f} % ({noisy.index[-1]})"
        why = f"other processes, or other guests of its host, took {most}, {share}"
        yield f"busy in {len(noisy)} of {known} runs", False, why
    judged = any(t.judged_runs for t in a.trends)
    changing = [
        " ".join(filter(None, (t.cell, t.arm, short(t.over_first.estimate, ratio))))
        for t in a.trends
        if t.over_first and t.changes
    ]
    last = "seconds of a step, last window over first"
    if changing:
        yield "not steady", False, f"{last}: {'; '.join(changing)}; a longer warm-up would tell"
    elif judged:
        yield "steady", True, f"{last}, differ in no cell by more than {rule(LIMIT)}, noise apart"
    else:
        few = f"all runs have fewer than {ENOUGH_STEPS} timed steps or {ENOUGH_WINDOWS} windows"
        yield "steadiness not judged", None, few
    if (c := a.primary) is not None and c.skewed:
        two = f"that of median steps is {c.median_ratio:.3f} and of totals {c.paired.ratio:.3f}"
        yield "medians tell another ratio", False, f"{two}, so slow steps decide"
