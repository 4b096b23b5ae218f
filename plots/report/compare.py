"""Studies side by side: how they differ, and whether the last is as fast as the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from bench.config import UsageError
from bench.study import comparability, stats
from bench.study.comparison import Comparison
from bench.study.definition import Point
from bench.study.frames import NothingUsable
from bench.study.points import describe
from bench.study.stats import Estimate
from plots.analyse.study import Analysis, machine
from plots.report import tables
from plots.report.format import interval, rate, ratio
from plots.report.labels import emulation, over
from plots.report.page import Page, Part, Section
from plots.report.tables import Cells, Column, plain, records, shown
from plots.report.write import analysed

SCHEMA = 3  # of the JSON
Hold = Literal["holds", "slower", "not settled"]
EXIT_CODES: dict[Hold, int] = {"holds": 0, "slower": 1, "not settled": 3}  # 2 is bad input
_HOSTS = "hostnames"
_OF_SIZES = (_HOSTS, "affinity", *comparability.COUNTED, comparability.TUNED)
# how long was measured, not what
_DESIGN = ("warmup_steps", "windows", "lead_in_steps", "steps_per_window")
_CHANGES = (
    *tables.POINT,
    Column("before", "images/s before [95 %]", rate),
    Column("after", "after [95 %]", rate),
    Column("ratio", "ratio [95 %]", ratio),
    Column(lambda row: (row.before.n, row.after.n), "launches before, after", key=""),
)
_NOT_COMPARED = (
    Column(lambda row: describe(row.point), "pair", key="what"),
    Column("reason", "reason"),
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A point in two studies: images/s in each, their ratio, and the reason for its state."""

    point: Point
    state: Hold = "not settled"
    reason: str
    before: Estimate | None = None
    after: Estimate | None = None
    ratio: Estimate | None = None

    @property
    def line(self) -> str:
        """The state, the point and the reason, in words."""
        return f"{self.state}: {describe(self.point)}: {self.reason}"


@dataclass(frozen=True)
class Compared:
    """Studies side by side, as a page and as data; `judged` has the points if a limit was given."""

    page: Page
    data: dict[str, Any]
    judged: Sequence[Change] = ()


def hold(changed: Sequence[Change]) -> Hold:
    """Return 'slower' if any point is slower, 'holds' if all hold, else 'not settled'."""
    states = {one.state for one in changed}
    return "slower" if "slower" in states else "holds" if states == {"holds"} else "not settled"


def side_by_side(folders: Sequence[Path], below: float | None = None) -> Compared:
    """Compare studies; if `below` is given, also judge whether the last is slower than the first.

    `below` is the lowest ratio of images/s that passes. Raises UsageError for a single study, for
    two that share a run, and for one without usable runs. With `below`, the last may lack them.
    """
    if len(folders) < 2:
        raise UsageError("one study has nothing beside it; name two")
    studies = [analysed(folder) for folder in folders[:-1]]
    try:
        studies.append(analysed(folders[-1]))
        changed = list(changes(studies[0], studies[-1], below or 0.0))
    except NothingUsable as error:
        if below is None:
            raise
        changed = list(changes(studies[0], None, below, str(error)))
    runs = [a.loaded.runs.dropna(subset=["began_s"]) for a in studies]
    measurements = [{*zip(r["began_s"], r["step_seconds_mean"], strict=True)} for r in runs]
    if any(a & b for a, b in combinations(measurements, 2)):
        raise UsageError("two of the studies hold the same runs; name two that were measured apart")
    both = [one for one in changed if one.ratio is not None]
    others = [one for one in changed if one.ratio is None]
    more = studies[-1].table.launches.keys() - {one.point for one in changed}
    others += [Change(point=point, reason="not in the earlier study") for point in sorted(more)]
    check = None
    if below is not None:
        check = {
            "fail_below": below,
            "verdict": hold(changed),
            "exit_code": EXIT_CODES[hold(changed)],
            "points": [{**plain(x.point), "state": x.state, "reason": x.reason} for x in changed],
        }
    differing = _differences(studies)
    described = [_study(folder, a) for folder, a in zip(folders, studies, strict=False)]
    data = {
        "schema": SCHEMA,
        "studies": described,
        "differences": [{"what": name, "values": values} for name, *values in differing],
        "points": records(tables.marked(studies[0], _CHANGES), both),
        "not_compared": records(_NOT_COMPARED, others),
        "check": check,
    }
    sections = list(_sections(described, studies, differing, both))
    if others:
        sections.append(Section("Not compared", [shown(_NOT_COMPARED, others)]))
    title = " and ".join(map(str, folders))
    return Compared(Page(title, sections), data, changed if check else [])


def changes(
    before: Analysis, after: Analysis | None, below: float, nothing: str = "not in the later study"
) -> Iterator[Change]:
    """Yield a change for each point that `before` ran, and each planned point that neither ran.

    The ratio is later over earlier images/s, with Welch's interval. A point holds if the interval
    is at or above `below`, is slower if it lies under `below`, and else is not settled. `after` is
    None without usable runs. `nothing` is the reason given for points that only `before` ran.
    """
    planned = {gap.point for a in (before, after) if a for gap in a.gaps}
    for point in sorted(before.table.launches.keys() | planned):
        was = before.table.launches.get(point, {})
        now = after.table.launches.get(point, {}) if after else {}
        if not was and now:
            continue  # new: it takes nothing away
        if not now:
            reason = nothing if was else "planned, and no usable run of it"
            yield Change(point=point, reason=reason)
            continue
        means = (*was.values(), *now.values())
        work = [comparability.work_of(facts) for mean in means for facts in mean.facts]
        if other := comparability.differences(work, _DESIGN):
            yield Change(point=point, reason=f"other work: {'; '.join(other)}")
            continue
        seconds = [[mean.step_seconds for mean in side.values()] for side in (was, now)]
        rates = [stats.geometric_mean([point.global_batch / s for s in side]) for side in seconds]
        change = stats.welch_ratio(numerator=seconds[0], denominator=seconds[1])
        state: Hold = "not settled"
        if (ends := change.shown) is None:
            words = f"no interval from fewer than {stats.MIN_LAUNCHES} launches"
        elif ends[1] < below:
            state, words = "slower", f"below {below:g}"
        elif ends[0] < below:
            words = f"on both sides of {below:g}"
        else:
            state, words = "holds", f"not below {below:g}"
        reason = f"{interval(change, ratio)} of before, {words}"
        yield Change(
            point=point, state=state, reason=reason, before=rates[0], after=rates[1], ratio=change
        )


def _differences(studies: Sequence[Analysis]) -> list[tuple[str, ...]]:
    """List facts in which studies differ by more than size or knobs: (name, values by study)."""
    by_study = []
    for a in studies:
        by_name = {_HOSTS: {host for hosts in a.loaded.runs["hosts"] for host in hosts}}
        for facts in a.loaded.runs["facts"]:
            for name, value in facts.items():
                if not name.startswith((*_OF_SIZES, *comparability.PER_LAUNCH)):
                    by_name.setdefault(name, set()).add(value)
        by_study.append({name: ", ".join(sorted(values)) for name, values in by_name.items()})
    names = dict.fromkeys(name for facts in by_study for name in facts)
    rows = [(name, *(facts.get(name, "-") for facts in by_study)) for name in names]
    return [row for row in rows if len({*row[1:]}) > 1]


def _study(folder: Path, a: Analysis) -> dict[str, Any]:
    """Describe a study; `measured` is its first and last day, or 'not recorded' in older logs."""
    began = sorted(a.loaded.runs["began_s"].dropna())
    days = dict.fromkeys(f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d}" for s in began)
    return {
        "folder": str(folder),
        "name": a.loaded.study.name,
        "machine": machine(a.loaded.host),
        "measured": " to ".join([*days][:: max(1, len(days) - 1)]) or "not recorded",
        "launches": a.launches,
        "emulated": bool(a.timelines),
    }


def _sections(
    described: Sequence[dict[str, Any]],
    studies: Sequence[Analysis],
    differing: Sequence[tuple[str, ...]],
    changed: Sequence[Change],
) -> Iterator[Section]:
    names = [one["folder"] for one in described]
    rows = [
        *((key, *(str(one[key]) for one in described)) for key in ("machine", "measured")),
        ("launches", *(str(a.launches) for a in studies)),
        ("emulated", *(", ".join(a.timelines) or "no" for a in studies)),
        *differing,
    ]
    yield Section("Studies, and what else differs", [Cells("", ["", *names], rows)])
    by_points = [{c.points: c for c in a.comparisons} for a in studies]
    keys = dict.fromkeys(key for by_point in by_points for key in by_point)
    compared = [[by_point.get(key) for by_point in by_points] for key in keys]
    if compared:

        def first(row: Sequence[Comparison | None]) -> Comparison:
            return next(filter(None, row))

        def value(study: int, row: Sequence[Comparison | None]) -> Any:
            return (c := row[study]) and c.estimate

        columns = (
            Column(lambda row: over(first(row)), "ratio of images/s"),
            Column(lambda row: first(row).transport, "transport"),
            Column(lambda row: first(row).arm, "arm"),
            Column(lambda row: first(row).world_size, "ranks"),
            Column(lambda row: first(row).batch_per_rank, "images per rank"),
            *(Column(partial(value, i), name, ratio) for i, name in enumerate(names)),
        )
        yield Section("Each study's comparison", [shown(columns, compared)])
    mark = emulation(studies[0])
    title = f"Images/s of {names[-1]} over {names[0]}{f' ({mark.lower()})' * bool(mark)}"
    note = (
        "Unpaired, as launches of two studies share no conditions: intervals hold the drift of the "
        "machine between them, and of what else differs above."
    )
    both: Part = shown(_CHANGES, changed) if changed else "No point is in both."
    yield Section(title, [note, both])
