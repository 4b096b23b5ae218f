"""The report of one study: read the logs, analyse them, write figures, page, summary and tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
from plots.report.findings import findings, terminal, with_curves
from plots.report.format import file_names
from plots.report.page import html, markdown, page

SCHEMA = 3  # of summary.json
_CURVES = ("Scaling", "Throughput")  # begin the titles of the sections on curves
_OF_THE_STUDY = {"name", "question", "site", "margin", "primary", "max_launches"}


def make(folder: Path, out: Path, scaling: Path | None = None) -> list[str]:
    """Write a study's figures, report.html, report.md, summary.json, *.csv and dawnbench/ to `out`.

    Scaling curves, tables and sentences are of the study in `scaling`, if given. Returns lines for
    a terminal. Raises UsageError if no run is usable, `scaling` has no curve, or writing fails.
    """
    a, other = analysed(folder), None if scaling is None else analysed(scaling)
    drawn = _drawn(a, other)
    whole = findings(a)
    saved = figures.save(drawn, out / "figures")
    content, data = page(a, whole, [*drawn]), summary(a, [*drawn])
    if other is not None:
        whole = with_curves(a, whole, other)
        sections = [s for s in content.sections if not s.title.startswith("Scaling")]
        sections += [
            replace(s, title=f"Scaling curves: {s.title}")
            for s in page(other, [], []).sections
            if s.title.startswith(_CURVES)
        ]
        content = replace(content, findings=whole, sections=sections)
        data["scaling_study"] = summary(other, [])
    numbers = to_json(data, indent=1, inf_nan_mode="constants").decode()
    texts = {
        "summary.json": f"{numbers}\n",
        "runs.csv": tidy(a.loaded).to_csv(index=False),
        "points.csv": tables.csv(data["throughput"]),
        "comparisons.csv": tables.csv(data["comparisons"]),
        **_trainings(a),
        "report.html": html(content, saved),
        "report.md": markdown(content),
    }
    for name, text in texts.items():  # names of files may hold what is no character
        if text:
            write_whole(out / name, text.encode(errors="replace"))
        else:
            (out / name).unlink(missing_ok=True)
    return terminal(whole, out / "report.html")


def _drawn(a: Analysis, scaling: Analysis | None) -> dict[str, Any]:
    """Draw figures by name, with curves of `scaling` if given. Raises UsageError if it has none."""
    drawn = figures.draw(a)
    if scaling is None:
        return drawn
    every = figures.draw(scaling)
    curves = {name: every[name] for name in every if name.startswith("scaling")}
    if not curves:
        name = scaling.loaded.study.name
        raise UsageError(f"the study {name} has no scaling curve; name another with --scaling")
    return {name: drawn[name] for name in drawn if not name.startswith("scaling")} | curves


def analysed(folder: Path) -> Analysis:
    """Analyse a study's folder. Raises UsageError for no usable run or a bad collectives log."""
    loaded = load(folder)
    require(loaded, folder)
    sweeps = read_each(logs_in(folder / COLLECTIVES))
    return analyse(loaded, sweeps)


def _trainings(a: Analysis) -> dict[str, str]:
    """Return texts by file name: trainings.csv, and a DAWNBench TSV of one training per point."""
    if not a.trained:
        return {}
    trained = {tuple(map(str, t.point)): dawnbench(t.usual) for t in a.trained}
    named = file_names("training", trained)
    usual = {f"dawnbench/{name}.tsv": trained[point] for point, name in named}
    epochs = by_epoch(a.trained).to_csv(index=False)
    return {"trainings.csv": epochs, **usual}


def summary(a: Analysis, drawn: list[str]) -> dict[str, Any]:
    """Return the contents of summary.json: all numbers of a study, and the figures' names `drawn`.

    Numbers are unrounded. Runs and rows of measurements say in `emulated` whether compute slept.
    """
    study, launches = a.loaded.study, a.loaded.study.launches or None
    frame = a.loaded.runs.drop(columns=["facts", "curves", *OF_THE_ANALYSIS]).astype(object)
    data = {
        "schema": SCHEMA,
        "study": {
            **study.model_dump(include=_OF_THE_STUDY),
            "launches": launches,
            "launches_planned": launches,
            "launches_usable": a.launches,
        },
        "emulated": a.timelines,
        "machine": machine(a.loaded.host),
        "workload": workload(a),
        "exchange": {} if a.breakdowns or a.costs or a.overlaps else None,
        "equal_parameters": [asdict(d) for d in a.digests],
        "varying": a.varying,
        "runs": frame.where(frame.notna(), None).to_dict("records"),
        "attempts": a.attempts,
        "notes": list(a.loaded.notes),
        "figures": drawn,
    }
    tables.summarise(a, data)
    return data
