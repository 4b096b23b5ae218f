"""Studies side by side, or two cells of one, as Markdown, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.frames import NothingUsable
from bench.study.points import NotCompared
from bench.study.verdict import Choice, between
from plots.analyse import across
from plots.analyse.study import Analysis, machine
from plots.report import page, tables
from plots.report.format import rate, ratio
from plots.report.gate import EXIT_CODES, Judged, all_missing, judge, verdict
from plots.report.page import Page, Part, Section
from plots.report.tables import NOT_COMPARED, Cells, Column, plain, records, shown
from plots.report.verdicts import emulation, marked, over
from plots.report.write import analysed

SCHEMA = 2  # of the JSON


@dataclass(frozen=True)
class Compared:
    """What is written, as a page and as data; `judged` only where a limit was given."""

    page: Page
    data: dict[str, Any]
    judged: Sequence[Judged] = ()


def side_by_side(folders: Sequence[Path], below: float | None = None) -> Compared:
    """Judge every point of the first and last study against `below` times the first's images/s.

    Raises UsageError for one alone, and for two that hold the same runs.
    """
    if len(folders) < 2:
        raise UsageError("one study has nothing beside it; name two, or --cells of this one")
    studies = [analysed(folder) for folder in folders[:-1]]
    try:
        studies.append(analysed(folders[-1]))
    except NothingUsable as error:
        if below is None:
            raise
        return _nothing_there(folders, studies[0], str(error), below)
    if across.shared_runs(studies):
        raise UsageError("two of the studies hold the same runs; name two that were measured apart")
    first, last = studies[0], studies[-1]
    missing: list[NotCompared] = []
    changed = list(across.changes(first, last, missing))
    judged = [] if below is None else list(judge(first, last, changed, missing, below))
    data = {
        "schema": SCHEMA,
        "studies": [_study(folder, a) for folder, a in zip(folders, studies, strict=True)],
        "differences": [{"what": k, "values": v} for k, v in across.differences(studies)],
        "points": records(tables.marked(first, _CHANGES), changed),
        "not_compared": records(NOT_COMPARED, missing),
    }
    sections = [*_sections(folders, studies, changed), *_left_out(missing)]
    title = " and ".join(map(str, folders))
    return Compared(Page(title, sections), data | _gate(judged, below), judged)


def _nothing_there(folders: Sequence[Path], first: Analysis, why: str, below: float) -> Compared:
    judged = all_missing(first, why)
    data: dict[str, Any] = {"schema": SCHEMA, "studies": [_study(folders[0], first)]}
    data |= {"differences": [], "points": [], "not_compared": []}
    return Compared(Page(why, []), data | _gate(judged, below), judged)


def _study(folder: Path, a: Analysis) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "name": a.loaded.study.name,
        "machine": machine(a.loaded.host),
        "measured": across.measured(a),
        "blocks": a.blocks,
        "emulated": bool(a.timelines),
    }


def _gate(judged: Sequence[Judged], below: float | None) -> dict[str, Any]:
    """Describe what a check says, for JSON; null without one."""
    if below is None:
        return {"check": None}
    outcome = verdict(judged)
    points = [{**plain(x.point), "state": x.state, "reason": x.reason} for x in judged]
    return {
        "check": {
            "fail_below": below,
            "verdict": outcome,
            "exit_code": EXIT_CODES[outcome],
            "points": points,
        }
    }


def to_json(compared: Compared) -> str:
    return json.dumps(compared.data, indent=1) + "\n"


FORMS: Mapping[str, Callable[[Compared], str]] = {
    ".md": lambda compared: page.markdown(compared.page),
    ".json": to_json,
    ".html": lambda compared: page.html(compared.page),
}


def require_form(out: Path) -> None:
    """Raise UsageError for a file's name that ends in no form of a comparison."""
    if out.suffix not in FORMS:
        raise UsageError(f"{out}: comparisons are written as {', '.join(FORMS)}; name one")


def write(compared: Compared, out: Path) -> Path:
    """Write the comparison in the form that the file's name ends in."""
    return write_whole(out, FORMS[out.suffix](compared))


def _sections(
    folders: Sequence[Path], studies: Sequence[Analysis], changed: Sequence[across.Change]
) -> Iterator[Section]:
    names = [*map(str, folders)]
    rows = [
        ("machine", *(machine(a.loaded.host) for a in studies)),
        ("measured", *map(across.measured, studies)),
        ("launches", *(str(a.blocks) for a in studies)),
        ("emulated", *(", ".join(a.timelines) or "no" for a in studies)),
        *((name, *values) for name, values in across.differences(studies)),
    ]
    yield Section("Studies, and what else differs", [Cells("", ["", *names], rows)])
    if compared := list(across.beside(studies)):
        yield Section("Each study's comparison", [shown(_beside(names), compared)])
    mark = emulation(studies[0])
    title = f"Images/s of {names[-1]} over {names[0]}{f' ({mark.lower()})' * bool(mark)}"
    note = (
        "Unpaired, as launches of two studies share no conditions: intervals hold the drift of the "
        "machine between them, and of what else differs above."
    )
    both: Part = shown(_CHANGES, changed) if changed else "No point is in both."
    yield Section(title, [note, both])


def _left_out(missing: Sequence[NotCompared]) -> Iterator[Section]:
    if missing:
        yield Section("Not compared", [[f"{x.pair}: {x.reason}" for x in missing]])


_CHANGES = (
    *tables.POINT,
    tables.BATCH[0],
    Column("before", "images/s before [95 %]", rate),
    Column("after", "after [95 %]", rate),
    Column("ratio", "ratio [95 %]", ratio),
    Column(lambda row: (row.before.n, row.after.n), "launches before, after", key=""),
)


def _beside(names: Sequence[str]) -> tuple[Column, ...]:
    def of(i: int) -> Column:
        return Column(lambda row: row.ratios[i], names[i], ratio)

    return (
        Column(lambda row: over(row.first), "ratio of images/s"),
        Column("first.transport", "transport"),
        Column("first.arm", "arm", key="arm"),
        Column("first.world_size", "ranks"),
        Column("first.batch_per_rank", "images per rank"),
        *(of(i) for i in range(len(names))),
    )


def cells(folder: Path, reference: str, candidate: str) -> Compared:
    """Compare any two sides of one study, paired by block: a question that it was not made for.

    A side is a cell, or a cell and its arm: 'ddp/mpi,matched'.
    """
    if reference == candidate:
        raise UsageError(f"both sides are {reference}; name two that differ")
    a = analysed(folder)
    sides = [_choice(words, a, folder) for words in (reference, candidate)]
    study = a.loaded.study.model_copy(update={"primary": None})
    comparisons, missing = between(a.table, study, *sides)
    if not comparisons:
        why = "; ".join(dict.fromkeys(x.reason for x in missing)) or "no point that both have"
        raise UsageError(f"{reference} and {candidate} are nowhere compared in {folder}: {why}")
    loaded = replace(a.loaded, study=study)
    before, after = (side.cell for side in sides)
    changed = replace(a, loaded=loaded, reference=before, candidate=after, comparisons=comparisons)
    title = marked(a, comparisons, f"{candidate} over {reference} in {folder}")
    note = (
        "A description: the study was planned for another question, so its error covers these "
        "verdicts only among themselves."
    )
    compared_columns = tables.comparisons(changed)
    columns = tables.marked(a, (*compared_columns, *tables.DETAILS))
    compared = {"schema": SCHEMA, "studies": [_study(folder, a)]}
    compared["comparisons"] = records(columns, comparisons)
    compared["not_compared"] = records(NOT_COMPARED, missing)
    table = Section("Comparisons", [note, shown(compared_columns, comparisons)])
    return Compared(Page(title, [table, *_left_out(missing)]), compared)


def _choice(words: str, a: Analysis, folder: Path) -> Choice:
    cell, comma, arm = words.partition(",")
    side = Choice(cell, arm if comma else None)
    if any(side.takes(point) for point in a.table.blocks):
        return side
    names = sorted({p.cell for p in a.table.blocks})
    if cell not in names:
        raise UsageError(f"{folder} has no cell {cell!r}; it has {', '.join(names)}")
    arms = sorted({p.arm for p in a.table.blocks if p.cell == cell and p.arm})
    of_cell = f"arms of {cell}: {', '.join(arms)}" if arms else f"{cell} has no arms there"
    raise UsageError(f"{folder} has no {words}; {of_cell}")
