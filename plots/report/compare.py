"""Studies side by side in Markdown, and whether the last one is slower than the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.config import UsageError
from plots.analyse import across
from plots.analyse.across import Both, Change
from plots.analyse.comparison import Comparison, compare
from plots.analyse.study import Analysis
from plots.report import tables
from plots.report.answer import over
from plots.report.format import Column, escape, interval, markdown_table, rate, ratio, table
from plots.report.markdown import told
from plots.report.write import analysed


def side_by_side(folders: Sequence[Path]) -> tuple[str, list[Change]]:
    """The text, and every change of a point from the first study to the last."""
    if len(folders) < 2:
        raise UsageError("one study has nothing beside it; name two, or --cells of this one")
    studies = [told(analysed(folder)) for folder in folders]
    found = list(across.changes(studies[0], studies[-1]))
    return "\n\n".join(_texts(folders, studies, found)), found


def _texts(
    folders: Sequence[Path], studies: Sequence[Analysis], found: Sequence[Change]
) -> Iterator[str]:
    names = [escape(str(folder)) for folder in folders]
    yield f"# {' and '.join(names)}"
    rows = [[escape(name), *map(escape, values)] for name, values in across.differences(studies)]
    yield "## What differs"
    yield table(["", *names], rows) if rows else "Nothing that the logs record, but the date."
    if compared := list(across.both(studies)):
        yield "## Each study's comparison"
        yield markdown_table(_both(names), compared)
    yield f"## Images/s of {names[-1]} over {names[0]}"
    yield (
        "Unpaired, as blocks of two studies share no conditions: intervals hold the drift of the "
        "machine between them, and of what else differs above."
    )
    yield markdown_table(_CHANGES, found) if found else "No point is in both."


_CHANGES = (
    Column("point.cell", "cell"),
    Column("point.settings", "settings"),
    Column("point.variant", "variant", sparse=True),
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
        Column(lambda row: over(row.reference, row.candidate), "ratio of images/s"),
        Column("settings", "settings"),
        Column("variant", "variant", sparse=True),
        Column("world_size", "ranks"),
        Column("samples_per_rank", "images per rank"),
        *(of(i) for i in range(len(names))),
        Column(pooled, "all blocks"),
    )


def slower(found: Sequence[Change], below: float) -> list[str]:
    """The points whose whole interval lies below `below`; without one, the value itself."""
    worse = [c for c in found if (c.ratio.shown or (0, c.ratio.value))[1] < below]
    return [
        f"{c.point.cell} at {c.point.world_size} ranks, {c.point.samples_per_rank} images per "
        f"rank: {interval(c.ratio, ratio)} of before, below {below:g}"
        for c in worse
    ]


def cells(folder: Path, reference: str, candidate: str) -> str:
    """Any two cells of one study, paired by block: a question that it was not made for."""
    a: Analysis = told(analysed(folder))
    there = sorted({p.cell for p in a.table.blocks})
    if unknown := [cell for cell in (reference, candidate) if cell not in there]:
        raise UsageError(f"{folder} has no cell {unknown[0]!r}; it has {', '.join(there)}")
    asked = {"reference": reference, "candidate": candidate, "primary": None}
    study = a.loaded.study.model_copy(update=asked)
    found = [x for x in compare(a.table, study) if isinstance(x, Comparison)]
    if not found:
        raise UsageError(f"{reference} and {candidate} share no point in {folder}")
    loaded = replace(a.loaded, study=study)
    changed = replace(a, loaded=loaded, reference=reference, candidate=candidate, comparisons=found)
    head = f"# {escape(candidate)} over {escape(reference)} in {escape(str(folder))}"
    note = (
        "A description: the study was planned for another question, so its error covers these "
        "verdicts only among themselves."
    )
    return "\n\n".join([head, note, markdown_table(tables.ratios(changed), found)])
