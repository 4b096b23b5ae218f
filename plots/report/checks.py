"""Checks of what an answer stands on: a few words, whether they hold, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bench.record.quiet import NOISY
from bench.study.comparability import NO_TURNS, TAKEN
from bench.study.comparison import ratios_by_session
from bench.study.points import by_point
from bench.study.rows import ENOUGH_STEPS, ENOUGH_WINDOWS
from bench.study.words import count, rule
from plots.analyse.study import LIMIT, Analysis
from plots.report.format import clean, every, ratio, short
from plots.report.verdicts import Statement, sides

_MOST_COST = 0.25  # of the margin: what beginning a turn may cost one side more
Check = tuple[str, bool | None, str]  # name, whether it holds (None: nothing tells), why


def checks(a: Analysis) -> Iterator[Statement]:
    """Make all checks, in the order in which a reader asks."""
    for part in (_launches, _work, _parameters, _turns, _sessions, _machine):
        for name, holds, why in part(a):
            yield Statement("check", f"{why[:1].upper()}{why[1:]}.", holds, clean(name, 160))


def _launches(a: Analysis) -> Iterator[Check]:
    """Check for missing launches, a changed study and runs without a number."""
    planned, n = a.loaded.study.blocks, count(a.blocks, "launch")
    n += " of each size" if a.loaded.runs["world_size"].nunique() > 1 and a.comparisons[1:] else ""
    points = count(len(a.planned), "planned point")
    if a.gaps:
        yield count(len(a.gaps), "gap"), False, f"{len(a.gaps)} of {points} lack a planned launch"
    elif not planned or not a.planned:
        yield n, None, "no plan is recorded, so nobody can tell whether launches lack"
    else:
        yield n, True, f"each of {points} has runs in {every(planned, 'planned launch')}"
    if a.loaded.changed:
        yield "study changed", False, a.loaded.changed
    aside = [x.reason for x in a.loaded.unusable if x.state == "ok"]
    if aside:  # complete, and not to be averaged with the others
        why = f"of another kind: {'; '.join(dict.fromkeys(aside))}"
        yield f"{count(len(aside), 'run')} set aside: {aside[0]}", False, why
    if lost := sum(sum(ends.values()) for ends in a.attempts.values()):
        each = (
            f"{cell or 'not recorded'} {', '.join(f'{n} {end}' for end, n in ends.items()) or 0}"
            for cell, ends in a.attempts.items()
        )
        yield f"{count(lost, 'attempt')} without a number", False, f"by cell: {'; '.join(each)}"


def _work(a: Analysis) -> Iterator[Check]:
    """Check for pairs of unequal work, and for runs that did not prove equal gradients."""
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
    """Check whether cells of a launch ended with the same parameters, where sums have one order."""
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
    """Check whether the sides of every pair took turns with each other, and none was favoured."""
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
        point: dict(zip(rows["block"], rows["took_turns_in"], strict=True))
        for point, rows in by_point(runs)
    }
    pairs = [c.points for c in a.comparisons] + [(g.baseline, g.point) for g in a.gains]
    both = [(groups[p], groups[q]) for p, q in pairs]
    together = [p[block] == q[block] for p, q in both for block in p.keys() & q]
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
    """Check whether the interval of the primary comparison is over several sessions."""
    if (c := a.primary) is None or not any(c.sessions):
        return
    each = list(ratios_by_session(c.paired, c.sessions))
    over_them = c.unit == "sessions"
    why = "the interval is over them" if over_them else "another day may give another ratio"
    beside = "; ".join(f"{session}: {short(e, ratio)}" for session, e in each)
    yield count(len(each), "session"), over_them, f"{why} ({beside})"


def _machine(a: Analysis) -> Iterator[Check]:
    """Check whether the machine was quiet, runs steady and medians of the same ratio."""
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
    changing = [(t.cell, t.over_first) for t in a.trends if t.changes and t.over_first]
    each = "; ".join(f"{cell} {short(e.estimate, ratio)}" for cell, e in changing)
    last = "seconds of a step, last window over first"
    if changing:
        yield "not steady", False, f"{last}: {each}; a longer warm-up would tell"
    elif judged:
        yield "steady", True, f"{last}, differ in no cell by more than {rule(LIMIT)}, noise apart"
    else:
        few = f"all runs have fewer than {ENOUGH_STEPS} timed steps or {ENOUGH_WINDOWS} windows"
        yield "steadiness not judged", None, few
    if (c := a.primary) is not None and c.skewed:
        two = f"that of median steps is {c.median_ratio:.3f} and of totals {c.paired.ratio:.3f}"
        yield "medians tell another ratio", False, f"{two}, so slow steps decide"
