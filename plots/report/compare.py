"""Studies side by side, or two cells of one, as Markdown, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.study import comparability
from bench.study.comparison import Choice, Comparison, compare
from bench.study.frames import NothingUsable
from bench.study.points import NotCompared, describe
from plots.analyse.study import Analysis, machine
from plots.report import page, tables
from plots.report.format import rate, ratio
from plots.report.gate import EXIT_CODES, Change, changes, verdict
from plots.report.page import Page, Part, Section
from plots.report.tables import NOT_COMPARED, Cells, Column, plain, records, shown
from plots.report.verdicts import emulation, marked, over
from plots.report.write import analysed

SCHEMA = 2  # of the JSON
_HOSTS = "hostnames"
_OF_SIZES = (_HOSTS, "affinity", *comparability.COUNTED, comparability.TUNED)
_CHANGES = (
    *tables.POINT,
    tables.BATCH[0],
    Column("before", "images/s before [95 %]", rate),
    Column("after", "after [95 %]", rate),
    Column("ratio", "ratio [95 %]", ratio),
    Column(lambda row: (row.before.n, row.after.n), "launches before, after", key=""),
)
_NOT_COMPARED = (
    Column(lambda row: describe(row.point), "pair", key="what"),
    Column("reason", "reason"),
)


@dataclass(frozen=True)
class Compared:
    """What is written, as a page and as data; `judged` only where a limit was given."""

    page: Page
    data: dict[str, Any]
    judged: Sequence[Change] = ()


FORMS: Mapping[str, Callable[[Compared], str]] = {
    ".md": lambda compared: page.markdown(compared.page),
    ".json": lambda compared: json.dumps(compared.data, indent=1) + "\n",
    ".html": lambda compared: page.html(compared.page),
}


def side_by_side(folders: Sequence[Path], below: float | None = None) -> Compared:
    """Judge every point of the first and last study against `below` times the first's images/s.

    Raises UsageError for one alone, and for two that hold the same runs.
    """
    if len(folders) < 2:
        raise UsageError("one study has nothing beside it; name two, or --cells of this one")
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
    check = None
    if below is not None:
        outcome = verdict(changed)
        check = {
            "fail_below": below,
            "verdict": outcome,
            "exit_code": EXIT_CODES[outcome],
            "points": [{**plain(x.point), "state": x.state, "reason": x.reason} for x in changed],
        }
    differing = _differences(studies)
    data = {
        "schema": SCHEMA,
        "studies": [_study(folder, a) for folder, a in zip(folders, studies, strict=False)],
        "differences": [{"what": name, "values": values} for name, *values in differing],
        "points": records(tables.marked(studies[0], _CHANGES), both),
        "not_compared": records(_NOT_COMPARED, others),
        "check": check,
    }
    names = [*map(str, folders[: len(studies)])]
    sections = list(_sections(names, studies, differing, both))
    if others:
        sections.append(Section("Not compared", [shown(_NOT_COMPARED, others)]))
    judged = changed if check else []
    return Compared(Page(" and ".join(map(str, folders)), sections), data, judged)


def _differences(studies: Sequence[Analysis]) -> list[tuple[str, ...]]:
    """List facts of the runs in which the studies differ, name and each study's values, but those
    that follow from a point's size or settings.
    """
    by_study = []
    for a in studies:
        hosts = {host for hosts in a.loaded.runs["hosts"] for host in hosts}
        by_name = {_HOSTS: hosts}
        for facts in a.loaded.runs["facts"]:
            for name, value in facts.items():
                if not name.startswith((*_OF_SIZES, *comparability.PER_BLOCK)):
                    by_name.setdefault(name, set()).add(value)
        by_study.append({name: ", ".join(sorted(values)) for name, values in by_name.items()})
    names = dict.fromkeys(name for facts in by_study for name in facts)
    rows = [(name, *(facts.get(name, "-") for facts in by_study)) for name in names]
    return [row for row in rows if len({*row[1:]}) > 1]


def _study(folder: Path, a: Analysis) -> dict[str, Any]:
    """Describe a study; `measured` is the day or days of its runs, which older logs lack."""
    began = sorted(a.loaded.runs["began_s"].dropna())
    days = dict.fromkeys(f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d}" for s in began)
    return {
        "folder": str(folder),
        "name": a.loaded.study.name,
        "machine": machine(a.loaded.host),
        "measured": " to ".join([*days][:: max(1, len(days) - 1)]) or "not recorded",
        "blocks": a.blocks,
        "emulated": bool(a.timelines),
    }


def _sections(
    names: Sequence[str],
    studies: Sequence[Analysis],
    differing: Sequence[tuple[str, ...]],
    changed: Sequence[Change],
) -> Iterator[Section]:
    described = [_study(Path(name), a) for name, a in zip(names, studies, strict=True)]
    rows = [
        *((key, *(str(one[key]) for one in described)) for key in ("machine", "measured")),
        ("launches", *(str(a.blocks) for a in studies)),
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


def cells(folder: Path, reference: str, candidate: str) -> Compared:
    """Compare any two sides of one study, paired by block: a question that it was not made for.

    A side is a cell, or a cell and its arm: 'ddp/mpi,matched'.
    """
    if reference == candidate:
        raise UsageError(f"both sides are {reference}; name two that differ")
    a, missing = analysed(folder), list[NotCompared]()
    sides = Choice.read(reference), Choice.read(candidate)
    for side, words in zip(sides, (reference, candidate), strict=True):
        if not any(side.takes(point) for point in a.table.blocks):
            known = sorted({",".join(filter(None, p[:2])) for p in a.table.blocks})
            raise UsageError(f"{folder} has no {words}; it has {'; '.join(known)}")
    comparisons = compare(a.table, a.loaded.study, missing, sides)
    if not comparisons:
        why = "; ".join(dict.fromkeys(x.reason for x in missing)) or "no point that both have"
        raise UsageError(f"{reference} and {candidate} are nowhere compared in {folder}: {why}")
    changed = replace(a, reference=sides[0].cell, candidate=sides[1].cell, comparisons=comparisons)
    title = marked(a, comparisons, f"{candidate} over {reference} in {folder}")
    note = (
        "A description: the study was planned for another question, so its error covers these "
        "verdicts only among themselves."
    )
    columns = tables.comparisons(changed)
    data = {
        "schema": SCHEMA,
        "studies": [_study(folder, a)],
        "comparisons": records(tables.marked(a, (*columns, *tables.DETAILS)), comparisons),
        "not_compared": records(NOT_COMPARED, missing),
    }
    sections = [Section("Comparisons", [note, shown(columns, comparisons)])]
    if missing:
        sections.append(Section("Not compared", [shown(NOT_COMPARED, missing)]))
    return Compared(Page(title, sections), data)
