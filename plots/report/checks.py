"""Checks of what an answer stands on: a few words, whether they hold, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bench.record.quiet import NOISY
from bench.study import stats
from bench.study.comparability import NO_TURNS, TAKEN
from bench.study.points import by_point
from bench.study.rows import ENOUGH_STEPS, ENOUGH_WINDOWS
from bench.study.verdict import ratios_by_session
from plots.analyse.conditions import LIMIT, disturbed
from plots.analyse.study import Analysis
from plots.report.format import (
    clean,
    count,
    every,
    ratio,
    rule,
    short,
)
from plots.report.verdicts import Statement, sides

_MOST_REASON = 160  # characters of a check's name
_MOST_COST = 0.25  # of the margin: what beginning a turn may cost one side more


def checks(a: Analysis) -> Iterator[Statement]:
    """Make all checks, in the order in which a reader asks."""
    for part in (_launches, _work, _parameters, _turns, _sessions, _machine):
        for name, holds, text in part(a):
            name = clean(name, _MOST_REASON)
            yield Statement("check", f"{text[:1].upper()}{text[1:]}", "Data quality", holds, name)


Check = tuple[str, bool | None, str]  # name, whether it holds, why


def _launches(a: Analysis) -> Iterator[Check]:
    """Check for missing launches, a changed study and runs without a number."""
    planned, n = a.loaded.study.blocks, count(a.blocks, "launch")
    n += " of each size" if a.loaded.runs["world_size"].nunique() > 1 and a.comparisons[1:] else ""
    points = count(len(a.planned), "planned point")
    if a.gaps:
        lacking = f"{len(a.gaps)} of {points} lack a planned launch: see Gaps."
        yield count(len(a.gaps), "gap"), False, lacking
    elif not planned or not a.planned:
        yield n, None, "No plan is recorded, so nobody can tell whether launches lack."
    else:
        whole = f"each of {points} has usable runs in {every(planned, 'planned launch')}."
        yield n, True, f"No gaps: {whole}"
    if a.loaded.changed:
        yield "study changed", False, f"{a.loaded.changed}."
    aside = [x.reason for x in a.loaded.unusable if x.state == "ok"]
    if aside:  # complete, and not to be averaged with the others
        why = f"Of another kind: {'; '.join(dict.fromkeys(aside))}."
        yield f"{count(len(aside), 'run')} set aside: {aside[0]}", False, why
    if lost := sum(sum(ends.values()) for ends in a.attempts.values()):
        each = "; ".join(
            f"{cell or 'not recorded'} {', '.join(f'{n} {end}' for end, n in ends.items()) or 0}"
            for cell, ends in a.attempts.items()
        )
        yield f"{count(lost, 'attempt')} without a number", False, f"By cell: {each}."


def _work(a: Analysis) -> Iterator[Check]:
    """Check for pairs of unequal work, and for runs that did not prove equal gradients."""
    points = {point for _, point in a.planned}
    planned = [n for n in a.not_compared if n.absent is None or n.absent in points]
    if planned:
        pairs = count(len(planned), "pair")
        why = f"Set aside because the work differed, or one side is missing: {pairs}."
        yield f"{pairs} not compared", False, why
    elif a.comparisons:
        yield "equal work", True, "All compared pairs agree on everything but the framework."
    runs = a.loaded.runs
    if len(unproven := runs[runs["parity_not_proven"] > 0]):
        most = count(int(unproven["parity_not_proven"].max()), "tensor")
        cells = ", ".join(unproven["cell"].unique())
        why = (
            f"In {len(unproven)} of {count(len(runs), 'run')} ({cells}) a rank could not repeat "
            f"its own gradients of up to {most}, so their mean could not be compared."
        )
        yield "parity not proven", False, why


def _parameters(a: Analysis) -> Iterator[Check]:
    """Check whether cells of a launch ended with the same parameters, where sums have one order."""
    sizes = {*a.loaded.runs["world_size"]}
    digests = [d for d in a.digests if d.world_size in sizes and d.groups]
    groups = count(sum(d.groups for d in digests), "group")
    wrong = [mismatch for d in digests for mismatch in d.mismatches]
    ended = "with bit-identical parameters, at 1 and 2 ranks, where a sum has one order"
    if wrong:
        why = f"{len(wrong)} of {groups} of cells did not end {ended}: {'; '.join(wrong)}."
        yield "parameters differ", False, why
    elif digests:
        runs = count(sum(d.runs for d in digests), "run")
        yield "bit-identical parameters", True, f"All cells of a launch ended {ended} ({runs})."
    else:
        why = "No launch holds two cells of 1 or 2 ranks that did the same training."
        yield "parameters not compared", None, why


def _turns(a: Analysis) -> Iterator[Check]:
    """Check whether the sides of every pair took turns with each other, and none was favoured."""
    compared = {cell for c in a.comparisons for cell in (c.reference, c.candidate)}
    runs = a.loaded.runs
    reasons = Counter(runs.loc[runs["cell"].isin(compared), "turns"])
    taken = reasons.pop(TAKEN, 0)
    if reasons:
        reason = "; ".join(
            f"{count(n, 'run')}: {'no reason recorded' if why == NO_TURNS else why}"
            for why, n in reasons.most_common()
        )
        both = f"{count(taken, 'run')} took turns, and {reason}" if taken else reason
        why = f"Launched one after the other, so the machine changed between them ({both})."
        yield "launched apart", False, why
    if not taken or reasons:
        return
    groups = {
        point: dict(zip(rows["block"], rows["took_turns_in"], strict=True))
        for point, rows in by_point(runs)
    }
    pairs = [c.points for c in a.comparisons] + [(g.baseline, g.point) for g in a.gains]
    together = [
        groups[p][block] == groups[q][block]
        for p, q in pairs
        for block in groups[p]
        if block in groups[q]
    ]
    if elsewhere := together.count(False):
        of = count(len(together), "pair")
        why = f"Of {of} both sides took turns, and of {elsewhere} with other worlds, minutes apart."
        yield f"{count(elsewhere, 'pair')} apart", False, why
    else:
        how = "Both sides of a comparison lived at the same time and worked one at a time"
        yield "in turns", True, f"{how}, window by window."
    c = a.primary
    if c is None or c.first_steps is None or (extent := c.first_steps.interval()) is None:
        return
    # DDP against itself cannot show that beginning a turn costs one side more
    cost = (c.first_steps.ratio - 1) / float((runs["steps"] / runs["windows"]).median())
    fair = extent[0] <= 1 <= extent[1] or abs(cost) < _MOST_COST * c.margin
    reference, candidate = sides(c)
    name = f"turns slow {candidate if cost > 0 else reference}"
    claim = f"{candidate}'s first timed step of a turn, over its others, is {reference}'s times"
    why = f"{claim} {short(c.first_steps.estimate, ratio)}: {100 * abs(cost):.1f} % of the ratio."
    yield "turns favour neither" if fair else name, fair, why


def _sessions(a: Analysis) -> Iterator[Check]:
    """Check whether the interval of the primary comparison is over several sessions."""
    if (c := a.primary) is None or not any(c.sessions):
        return
    each = list(ratios_by_session(c.paired, c.sessions))
    name = count(len(each), "session")
    beside = "; ".join(f"{session}: {short(e, ratio)}" for session, e in each)
    if c.unit == "sessions":
        yield name, True, f"The interval of the primary comparison is over them: {beside}."
    elif len(each) > 1:
        more = f"From {stats.SESSIONS} sessions on the interval is over their means"
        yield name, False, f"{beside}. {more}."
    else:
        yield name, False, "The interval is this session's; another day may give another ratio."


def _machine(a: Analysis) -> Iterator[Check]:
    """Check whether the machine was quiet, runs steady and medians of the same ratio."""
    noisy, known = disturbed(a.loaded.runs)
    most = f"more than {rule(NOISY)} of a node's processor time"
    if not known:
        yield "load not recorded", None, "No log tells what else the machine did."
    elif noisy.empty:
        yield "quiet machine", True, f"In none of {known} runs did others take {most}."
    else:
        worst = noisy.iloc[-1]
        share = f"at most {100 * worst['others_share']:.0f} % ({worst['log']})"
        why = f"Other processes, or other guests of its host, took {most}, {share}."
        yield f"busy in {len(noisy)} of {known} runs", False, why
    judged = sum(t.judged_runs for t in a.trends)
    unjudged = sum(t.runs for t in a.trends) - judged
    few = f"fewer than {ENOUGH_STEPS} timed steps or {ENOUGH_WINDOWS} windows"
    rest = f" Not judged, for {few}: {count(unjudged, 'run')}." if unjudged else ""
    last = "Seconds of a step in the last window over those in the first"
    changing = [(t.cell, t.over_first) for t in a.trends if t.changes and t.over_first]
    if changing:
        each = "; ".join(f"{cell} {short(e.estimate, ratio)}" for cell, e in changing)
        yield "not steady", False, f"{last}: {each}. A longer warm-up would tell.{rest}"
    elif not judged:
        yield "steadiness not judged", None, rest.strip()
    else:
        same = f"differ in no cell by more than {rule(LIMIT)}, noise apart"
        yield "steady", True, f"{last} {same}.{rest}"
    c = a.primary
    if c is not None and c.skewed:
        two = f"the ratio of median steps is {c.median_ratio:.3f} against {c.paired.ratio:.3f}"
        why = f"{two} of totals: more than {rule(c.margin)} apart, so slow steps decide."
        yield "medians tell another ratio", False, why
