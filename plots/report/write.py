"""The report of one study: read the logs, analyse them, write figures, page, summary and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import to_json

from bench.config import UsageError
from bench.record.archive import logs_in
from bench.study.collectives import read_each
from bench.study.disk import write_whole
from bench.study.folder import COLLECTIVES
from bench.study.frames import OF_THE_ANALYSIS, load, require, tidy
from plots.analyse.study import Analysis, analyse, machine, workload
from plots.analyse.trainings import by_epoch, dawnbench
from plots.report import figures, tables
from plots.report.axes import PRESETS
from plots.report.findings import findings, terminal
from plots.report.format import file_names
from plots.report.page import html, markdown, page

SCHEMA = 3  # of summary.json
_OF_THE_STUDY = {"name", "question", "site", "margin", "primary", "max_blocks"}


def make(folder: Path, out: Path) -> list[str]:
    """Make the report of a study folder in `out`; return and raise as `analysed` and `write` do."""
    return write(analysed(folder), out)


def write(a: Analysis, out: Path) -> list[str]:
    """Write figures/, report.html, report.md, summary.json and *.csv into `out`.

    Returns the answer, for a terminal.
    """
    drawn, whole = figures.draw(a), findings(a)
    try:
        _remove_stale(out, drawn)
        figures.save(drawn, out / "figures")
        content = page(a, whole, [*drawn])
        data = summary(a, [*drawn])
        numbers = to_json(data, indent=1, inf_nan_mode="constants").decode()
        texts = {
            "summary.json": f"{numbers}\n",
            "runs.csv": tables.csv_text(tidy(a.loaded)),
            "points.csv": tables.csv(data["throughput"]),
            "comparisons.csv": tables.csv(data["comparisons"]),
            **_trainings(a),
            "report.html": html(content, [*figures.pictures(a, drawn, out / "figures")]),
            "report.md": markdown(content),
        }
        for name, text in texts.items():  # names of files may hold what is no character
            (out / name).parent.mkdir(exist_ok=True)
            if text:
                write_whole(out / name, text.encode(errors="replace"))
            else:
                (out / name).unlink(missing_ok=True)
    except OSError as error:
        wrong = f"{out} cannot be written: {error.strerror}"
        raise UsageError(f"{wrong}; choose another folder with --out") from error
    return terminal(whole, out / "report.html")


def analysed(folder: Path) -> Analysis:
    """Analyse a study's folder with all that lies in it. Raises UsageError if no log is usable."""
    loaded = load(folder)
    require(loaded, folder)
    sweeps = read_each(logs_in(folder / COLLECTIVES))
    return analyse(loaded, sweeps)


def draw_one(
    name: str,
    folder: Path,
    out: Path,
    preset: str,
    *,
    width_in: float | None = None,
    dpi: int | None = None,
    title: str = "",
    labels: Mapping[str, str] = MappingProxyType({}),
    colours: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write one figure of the report on `folder` to `out`, in the format that its name ends in.

    `labels` by the legend's names, `colours` by cells. Raises UsageError for a figure that the
    study has no data for, another ending, dots per inch of what has none, and names not there.
    """
    ending = out.suffix.removeprefix(".")
    if ending not in figures.ENDINGS:
        raise UsageError(f"{out}: figures are written as .{', .'.join(figures.ENDINGS)}; name one")
    if dpi is not None and ending != "png":
        raise UsageError(f"dpi={dpi} has no effect on .{ending}, which has no dots; leave it out")
    a = analysed(folder)
    cells = {point.cell for point in a.table.blocks}
    if unknown := colours.keys() - cells:
        known = ", ".join(sorted(cells))
        raise UsageError(f"--colour {min(unknown)}=...: no such cell; {folder} has {known}")
    usual = PRESETS[preset]
    changes: dict[str, Any] = {"alone": True, "title": title, "labels": labels, "colours": colours}
    changed = replace(usual, width_in=width_in or usual.width_in, **changes)
    drawn = figures.draw(a, changed, name)[name]
    return figures.save_as(drawn, out, dpi or figures.DPI)


def _trainings(a: Analysis) -> dict[str, str]:
    """Make tables of all trainings by epoch and of one training of each point, if there are any."""
    if not a.trained:
        return {}
    trained = {tuple(map(str, t.point)): dawnbench(t.usual) for t in a.trained}
    named = file_names("training", trained)
    usual = {f"dawnbench/{name}.tsv": trained[point] for point, name in named}
    return {"trainings.csv": tables.csv_text(by_epoch(a.trained)), **usual}


def summary(a: Analysis, drawn: list[str]) -> dict[str, Any]:
    """Gather all that a report prints, unrounded; an estimate is value, low95, high95, n (blocks).

    Every row of numbers says whether it is emulated; what is not of one arm, whether any of it.
    """
    study, blocks = a.loaded.study, a.loaded.study.blocks or None
    frame = a.loaded.runs.drop(columns=["facts", "curves", *OF_THE_ANALYSIS]).astype(object)
    data = {
        "schema": SCHEMA,
        "study": {
            **study.model_dump(include=_OF_THE_STUDY),
            "blocks": blocks,
            "blocks_planned": blocks,
            "blocks_usable": a.blocks,
        },
        "emulated": a.timelines,
        "machine": machine(a.loaded.host),
        "workload": workload(a),
        "exchange": a.exchange and {},
        "equal_parameters": [asdict(d) for d in a.digests],
        "varying": a.varying,
        "runs": frame.where(frame.notna(), None).to_dict("records"),
        "attempts": a.attempts,
        "notes": list(a.loaded.notes),
        "figures": drawn,
    }
    tables.summarise(a, data)
    return data


class _Earlier(BaseModel):
    """What a summary.json must say for the figures that it lists to be removed."""

    figures: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]]


def _remove_stale(out: Path, names: Iterable[str]) -> None:
    """Remove figures that an earlier report listed and this one lacks: they contradict this one."""
    try:
        earlier = _Earlier.model_validate_json((out / "summary.json").read_bytes()).figures
    except (OSError, ValueError):  # not there, or not ours
        return
    for name in {*earlier} - {*names}:
        for ending in ("svg", "png"):
            (out / "figures" / f"{name}.{ending}").unlink(missing_ok=True)
