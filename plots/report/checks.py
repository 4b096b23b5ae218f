"""What an answer stands on: checks in a few words, whether they hold, and the sentence behind each.

One list for the terminal, the head of a page and its section on data quality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.record.quiet import NOISY
from bench.study.stats import SESSIONS, geometric_mean
from plots.analyse import quiet
from bench.study.comparability import NO_TURNS, TAKEN, DigestCheck
from plots.analyse.coverage import is_planned
from bench.study.points import by_point, ranks
from bench.study.sessions import apart
from plots.analyse.steady_state import ENOUGH_STEPS, ENOUGH_WINDOWS, LIMIT
from plots.analyse.study import Analysis
from plots.report.format import clean, count, every, ratio, rule, short
from plots.report.verdicts import doubts, sides

_MOST_REASON = 160  # characters of a chip's own words
_MOST_COST = 0.25  # of the margin: what beginning a turn may cost one side more


@dataclass(frozen=True)
class Check:
    """`name` is for a chip; `why` one or more sentences; `holds` None where nothing tells."""

    name: str
    holds: bool | None
    why: str


def checks(a: Analysis) -> list[Check]:
    """Make all checks, in the order in which a reader asks."""
    data = [_launches(a), *_logs(a), *_work(a), *_parity(a), *_parameters(a)]
    machine = [*_turns(a), *_sessions(a), _machine(a), _steady(a)]
    return [*data, *machine, *_skew(a)]


def standing(checked: Sequence[Check]) -> str:
    """Sum up all checks in one line: 'Holds: equal work, in turns. In doubt: 1 session.'"""
    names = {"Holds": True, "In doubt": False, "Not known": None}
    each = {word: [c.name for c in checked if c.holds is holds] for word, holds in names.items()}
    return " ".join(f"{word}: {', '.join(some)}." for word, some in each.items() if some)


def _launches(a: Analysis) -> Check:
    planned, n = a.loaded.study.blocks, count(a.blocks, "launch")
    n += " of each size" if a.loaded.runs["world_size"].nunique() > 1 and a.comparisons[1:] else ""
    if a.gaps:
        gaps = count(len(a.gaps), "gap")
        points = count(len(a.planned), "planned point")
        return Check(gaps, False, f"{len(a.gaps)} of {points} lack a planned launch: see Gaps.")
    if not planned or not a.planned:
        return Check(n, None, "No plan is recorded, so nobody can tell whether launches lack.")
    points = count(len(a.planned), "planned point")
    whole = f"No gaps: each of {points} has usable runs in {every(planned, 'planned launch')}."
    return Check(n, True, whole)


def _logs(a: Analysis) -> Iterator[Check]:
    """Check for a changed study and runs without a number: a side that loses more is no better."""
    if changed := a.loaded.changed:
        yield Check("study changed", False, f"{changed[:1].upper()}{changed[1:]}.")
    aside = [x.reason for x in a.loaded.unusable if x.state == "ok"]
    if aside:  # complete, and not to be averaged with the others
        name = clean(f"{count(len(aside), 'run')} set aside: {aside[0]}", _MOST_REASON)
        yield Check(name, False, f"Of another kind: {'; '.join(dict.fromkeys(aside))}.")
    if lost := sum(sum(ends.values()) for ends in a.attempts.values()):
        each = "; ".join(
            f"{cell or 'not recorded'} {', '.join(f'{n} {end}' for end, n in ends.items()) or 0}"
            for cell, ends in a.attempts.items()
        )
        yield Check(f"{count(lost, 'attempt')} without a number", False, f"By cell: {each}.")


def _work(a: Analysis) -> Iterator[Check]:
    planned = [n for n in a.not_compared if n.absent is None or is_planned(n.absent, a.planned)]
    if planned:
        pairs = count(len(planned), "pair")
        why = f"Set aside because the work differed, or one side is missing: {pairs}."
        yield Check(f"{pairs} not compared", False, why)
    elif a.comparisons:
        all_agree = "Every pair that was compared agrees on everything but the framework."
        yield Check("equal work", True, all_agree)


def _parity(a: Analysis) -> Iterator[Check]:
    runs = a.loaded.runs
    if len(unproven := runs[runs["parity_not_proven"] > 0]):
        most = count(int(unproven["parity_not_proven"].max()), "tensor")
        which = (
            f"{len(unproven)} of {count(len(runs), 'run')} ({', '.join(unproven['cell'].unique())})"
        )
        why = f"In {which} a rank could not repeat its own gradients of up to {most}"
        yield Check("parity not proven", False, f"{why}, so their mean could not be compared.")


def _parameters(a: Analysis) -> Iterator[Check]:
    sizes = {*a.loaded.runs["world_size"]}
    digests = [d for d in a.digests if d.world_size in sizes and (d.groups or d.world_size > 1)]
    if not digests:
        no_order = "no run has one or two ranks, and the sum of more has no one order"
        yield Check("parameters not compared", None, f"Final parameters: {no_order}.")
        return
    why = " ".join(map(_compared, digests))
    if any(d.mismatches for d in digests):
        yield Check("parameters differ", False, why)
    elif any(d.groups for d in digests):
        yield Check("bit-identical parameters", True, why)
    else:
        yield Check("parameters not compared", None, why)


def _compared(d: DigestCheck) -> str:
    where = ranks(d.world_size)
    all_ended = f"All cells of a launch ended with bit-identical parameters at {where}"
    if not d.groups:
        return f"{all_ended}: not checked, no launch holds two cells that did the same training."
    if d.mismatches:
        differing = "; ".join(d.mismatches)
        return f"{all_ended}: NO, {len(d.mismatches)} of {d.groups} groups differ: {differing}."
    return f"{all_ended}: yes, {count(d.groups, 'group')} of {count(d.runs, 'run')} checked."


def _turns(a: Analysis) -> Iterator[Check]:
    compared = {cell for c in a.comparisons for cell in (c.reference, c.candidate)}
    runs = a.loaded.runs
    reasons = Counter(runs.loc[runs["cell"].isin(compared), "turns"])
    taken = reasons.pop(TAKEN, 0)
    together = [] if reasons else list(_in_one_group(a))
    if taken and (elsewhere := together.count(False)):
        of = count(len(together), "pair")
        why = f"Of {of} both sides took turns, and of {elsewhere} with other worlds"
        yield Check(f"{count(elsewhere, 'pair')} apart", False, f"{why}, minutes apart.")
        yield from _first_steps(a)
    elif taken and not reasons:
        how = "Both sides of a comparison lived at the same time and worked one at a time"
        yield Check("in turns", True, f"{how}, window by window.")
        yield from _first_steps(a)
    elif reasons:
        most = "; ".join(
            f"{count(n, 'run')}: {'no reason recorded' if why == NO_TURNS else why}"
            for why, n in reasons.most_common()
        )
        both = f"{count(taken, 'run')} took turns, and {most}" if taken else most
        why = f"Launched one after the other, so the machine changed between them ({both})."
        yield Check("launched apart", False, why)


def _in_one_group(a: Analysis) -> Iterator[bool]:
    """Check of each pair, those of variants and arms too, whether its sides took turns with each
    other: they did not where memory had no room for all worlds at once.
    """
    groups = {
        point: dict(zip(rows["block"], rows["took_turns_in"], strict=True))
        for point, rows in by_point(a.loaded.runs)
    }
    pairs = [c.points for c in a.comparisons] + [(g.baseline, g.point) for g in a.gains]
    for reference, candidate in (map(groups.__getitem__, pair) for pair in pairs):
        yield from (reference[block] == candidate[block] for block in reference.keys() & candidate)


def _first_steps(a: Analysis) -> Iterator[Check]:
    """Check whether beginning a turn costs both sides alike: DDP against itself cannot show it."""
    c = a.primary
    ends = c.first_steps.interval() if c is not None and c.first_steps is not None else None
    if c is None or c.first_steps is None or ends is None:
        return
    runs = a.loaded.runs
    cost = (c.first_steps.ratio - 1) / float((runs["steps"] / runs["windows"]).median())
    fair = ends[0] <= 1 <= ends[1] or abs(cost) < _MOST_COST * c.margin
    reference, candidate = sides(c.reference, c.candidate)
    name = f"turns slow {candidate if cost > 0 else reference}"
    claim = f"{candidate}'s first timed step of a turn, over its others, is {reference}'s times"
    why = f"{claim} {short(c.first_steps.estimate, ratio)}: {100 * abs(cost):.1f} % of the ratio."
    before = {p: rows["lead_in_over_rest"].dropna().tolist() for p, rows in by_point(runs)}
    if all(map(before.get, c.points)):
        each = (short(geometric_mean(before[point]), ratio) for point in c.points)
        of_both = f"{next(each)} with {reference} and {next(each)} with {candidate}"
        why += f" The step before it, outside the clock, over those others: {of_both}."
    yield Check("turns favour neither" if fair else name, fair, why)


def _sessions(a: Analysis) -> Iterator[Check]:
    if (c := a.primary) is None or not any(c.sessions):
        return
    each = list(apart(c.paired, c.sessions))
    name = count(len(each), "session")
    beside = "; ".join(f"{session}: {short(e, ratio)}" for session, e in each)
    if c.unit == "sessions":
        yield Check(name, True, f"The interval of the primary comparison is over them: {beside}.")
        return
    holds = "the interval is that session's alone, and another day may give another ratio"
    if len(each) > 1:
        holds = f"{beside}. From {SESSIONS} sessions on the interval is over their means"
    yield Check(name, False, f"{name.capitalize()}: {holds}.")


def _machine(a: Analysis) -> Check:
    noisy, known = quiet.disturbed(a.loaded.runs)
    if not known:
        return Check("load not recorded", None, "No log tells what else the machine did.")
    if noisy.empty:
        most = f"more than {rule(NOISY)} of a node's processor time"
        return Check("quiet machine", True, f"In none of {known} runs did others take {most}.")
    worst = noisy.iloc[-1]
    why = (
        f"Other processes, or other guests of its host, took more than {rule(NOISY)} of a node's "
        f"processor time, at most {100 * worst['others_share']:.0f} % ({worst['log']})."
    )
    return Check(f"busy in {len(noisy)} of {known} runs", False, why)


def _skew(a: Analysis) -> Iterator[Check]:
    if a.primary is not None and (doubt := next(doubts(a.primary), "")):
        yield Check("medians tell another ratio", False, f"{doubt[:1].upper()}{doubt[1:]}.")


def _steady(a: Analysis) -> Check:
    judged = sum(t.judged_runs for t in a.trends)
    unjudged = sum(t.runs for t in a.trends) - judged
    few = f"fewer than {ENOUGH_STEPS} timed steps or {ENOUGH_WINDOWS} windows"
    rest = f" Not judged, for {few}: {count(unjudged, 'run')}." if unjudged else ""
    last = "Seconds of a step in the last window over those in the first"
    each = "; ".join(
        f"{t.cell} {short(t.over_first.estimate, ratio)}"
        for t in a.trends
        if t.changes and t.over_first
    )
    if each:
        return Check("not steady", False, f"{last}: {each}. A longer warm-up would tell.{rest}")
    if not judged:
        return Check("steadiness not judged", None, rest.strip())
    return Check(
        "steady", True, f"{last} differ in no cell by more than {rule(LIMIT)}, noise apart.{rest}"
    )
