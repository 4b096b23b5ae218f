"""Studies side by side in Markdown, and whether the last one is slower than the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.config import UsageError
from plots.analyse import across
from plots.analyse.across import Both, Change
from plots.analyse.comparison import Choice, between
from plots.analyse.points import NotCompared, describe
from plots.analyse.study import Analysis, machine
from plots.report import tables
from plots.report.columns import Column, markdown_table
from plots.report.format import escape, interval, rate, ratio, table
from plots.report.markdown import told
from plots.report.verdicts import over
from plots.report.write import analysed

Changes = Sequence[Change | NotCompared]


def side_by_side(folders: Sequence[Path]) -> tuple[str, Changes]:
    """The text, and every point of the first and the last. Raises UsageError for one alone."""
    if len(folders) < 2:
        raise UsageError("one study has nothing beside it; name two, or --cells of this one")
    studies = [told(analysed(folder)) for folder in folders]
    if across.shared_runs(studies):
        raise UsageError("two of the studies hold the same runs, which would count twice")
    found = list(across.changes(studies[0], studies[-1]))
    return "\n\n".join(_texts(folders, studies, found)), found


def _texts(folders: Sequence[Path], studies: Sequence[Analysis], found: Changes) -> Iterator[str]:
    names = [escape(str(folder)) for folder in folders]
    yield f"# {' and '.join(names)}"
    rows = [
        ["machine", *(machine(a.loaded.host) for a in studies)],
        ["measured", *map(across.measured, studies)],
        ["blocks", *(str(a.blocks) for a in studies)],
        *([name, *values] for name, values in across.differences(studies)),
    ]
    yield "## Studies, and what else differs"
    yield table(["", *names], [list(map(escape, row)) for row in rows])
    if compared := list(across.both(studies)):
        yield "## Each study's comparison"
        yield markdown_table(_both(names), compared)
    yield f"## Images/s of {names[-1]} over {names[0]}"
    yield (
        "Unpaired, as blocks of two studies share no conditions: intervals hold the drift of the "
        "machine between them, and of what else differs above."
    )
    changed = [x for x in found if isinstance(x, Change)]
    yield markdown_table(_CHANGES, changed) if changed else "No point is in both."
    if missing := [x for x in found if isinstance(x, NotCompared)]:
        yield "Not compared:"
        yield "\n".join(f"- {escape(x.what)}: {escape(x.reason)}" for x in missing)


_CHANGES = (
    Column("point.cell", "cell"),
    Column("point.settings", "settings"),
    Column("point.variant", "variant"),
    Column("point.world_size", "ranks"),
    Column("point.samples_per_rank", "images per rank"),
    Column("before", "images/s before [95 %]", lambda e: interval(e, rate)),
    Column("after", "after [95 %]", lambda e: interval(e, rate)),
    Column("ratio", "ratio [95 %]", lambda e: interval(e, ratio)),
)


def _both(names: Sequence[str]) -> tuple[Column, ...]:
    def of(i: int) -> Column:
        return Column(lambda row: row.ratios[i], names[i], lambda e: interval(e, ratio))

    def pooled(row: Both) -> str:
        if row.pooled is None:
            return f"not pooled: {row.not_pooled}"
        return f"{interval(row.pooled, ratio)}, n = {row.pooled.n}"

    return (
        Column(lambda row: over(row.first.reference, row.first.candidate), "ratio of images/s"),
        Column("first.transport", "transport"),
        Column("first.settings", "settings"),
        Column("first.variant", "variant"),
        Column("first.world_size", "ranks"),
        Column("first.samples_per_rank", "images per rank"),
        *(of(i) for i in range(len(names))),
        Column(pooled, "all blocks"),
    )


def slower(found: Changes, below: float) -> tuple[list[str], list[str]]:
    """Points whose whole interval lies below `below`, without one the value itself; and those that
    could not be judged. Raises UsageError where none could.
    """
    changed = [x for x in found if isinstance(x, Change)]
    if not changed:
        raise UsageError("no point of the first study can be compared with one of the last")
    worse = [c for c in changed if (c.ratio.shown or (0, c.ratio.value))[1] < below]
    said = [
        f"{describe(c.point)}: {interval(c.ratio, ratio)} of before, below {below:g}" for c in worse
    ]
    return said, [f"{x.what}: {x.reason}" for x in found if isinstance(x, NotCompared)]


def cells(folder: Path, reference: str, candidate: str) -> str:
    """Any two sides of one study, paired by block: a question that it was not made for.

    A side is a cell with what it is chosen by: 'ddp/mpi,settings=matched,precision=bf16'.
    """
    if reference == candidate:
        raise UsageError(f"both sides are {reference}; name two that differ")
    a: Analysis = told(analysed(folder))
    sides = [_choice(words, a, folder) for words in (reference, candidate)]
    study = a.loaded.study.model_copy(update={"primary": None})
    found = between(a.table, study, *sides)
    if not found:
        raise UsageError(f"{reference} and {candidate} share no point in {folder}")
    loaded = replace(a.loaded, study=study)
    before, after = (side.cell for side in sides)
    changed = replace(a, loaded=loaded, reference=before, candidate=after, comparisons=found)
    head = f"# {escape(candidate)} over {escape(reference)} in {escape(str(folder))}"
    note = (
        "A description: the study was planned for another question, so its error covers these "
        "verdicts only among themselves."
    )
    return "\n\n".join([head, note, markdown_table(tables.ratios(changed), found)])


def _choice(words: str, a: Analysis, folder: Path) -> Choice:
    cell, *fields = words.split(",")
    if wrong := [field for field in fields if "=" not in field]:
        raise UsageError(f"{words!r}: {wrong[0]!r} is no FIELD=VALUE, such as settings=matched")
    side = Choice(cell, dict(field.split("=", 1) for field in fields))
    if any(side.takes(point) for point in a.table.blocks):
        return side
    there = sorted({p.cell for p in a.table.blocks})
    if cell not in there:
        raise UsageError(f"{folder} has no cell {cell!r}; it has {', '.join(there)}")
    known = {f"settings={p.settings}" for p in a.table.blocks if p.cell == cell}
    known |= {word for p in a.table.blocks if p.cell == cell for word in p.variant}
    raise UsageError(f"{folder} has no {words}; of {cell} it has {', '.join(sorted(known))}")
