"""The report of one study: read the logs, analyse them, write figures,
report.md and summary.json.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from bench.config import UsageError
from bench.study.disk import write_whole
from plots.analyse import comparability
from plots.analyse.runs import Loaded, load, tidy
from plots.analyse.study import Analysis, analyse
from plots.read import calibrations
from plots.report import answer, calibration_tables, figures, tables
from plots.report.columns import csv
from plots.report.markdown import markdown
from plots.report.summary import summary

CALIBRATION = "calibration.csv"
TABLES = ("runs.csv", "points.csv", "comparisons.csv")


class _Earlier(BaseModel):
    """What a summary.json must say for the figures that it lists to be removed."""

    figures: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]]


def make(folder: Path, out: Path) -> list[str]:
    """Analyse a study's folder and write figures/, report.md, summary.json and the tables (.csv)
    into `out`.

    Returns the answer, for a terminal. Raises UsageError, with the reasons, where no log is usable.
    """
    loaded = load(folder)
    if loaded.runs.empty and not loaded.pipelines.empty:
        raise UsageError(
            f"{folder}: all usable logs are of the input pipeline alone (loader_only); put "
            f"training runs beside them"
        )
    if loaded.runs.empty:
        raise UsageError(
            f"{folder}: none of {len(loaded.unusable)} logs is usable: {_reasons(loaded)}"
        )
    a = analyse(loaded, calibrations.read(folder, comparability.facts))
    try:
        drawn = figures.draw(a)
        _remove_stale(out, set(drawn))
        written = figures.save(drawn, out / "figures")
        written.append(
            write_whole(out / "summary.json", json.dumps(summary(a, list(drawn)), indent=1) + "\n")
        )
        if a.calibrated:
            text = csv(calibration_tables.CALIBRATIONS, a.calibrated.all)
            written.append(write_whole(out / CALIBRATION, _bytes(text)))
        written += [write_whole(out / name, _bytes(text)) for name, text in _tables(a).items()]
        page = write_whole(out / "report.md", _bytes(markdown(a, list(drawn))))
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written: {error.strerror}; choose another folder with --out"
        ) from error
    return answer.terminal(a, page, len(written))


def _tables(a: Analysis) -> dict[str, str]:
    """The tables for other programs, by file name."""
    compared = csv((*tables.ratios(a), *tables.CHECKS), a.comparisons)
    runs = tidy(a.loaded).to_csv(index=False, lineterminator="\n")
    texts = (runs, csv(tables.THROUGHPUT, a.throughput), compared)
    return dict(zip(TABLES, texts, strict=True))


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")  # names of files may hold what is no character


def _reasons(loaded: Loaded) -> str:
    counts = Counter(u.reason.splitlines()[0][:120] for u in loaded.unusable)
    most = [f"{n} x {reason}" for reason, n in counts.most_common(3)]
    return "; ".join(most + ([f"and {len(counts) - 3} other reasons"] if len(counts) > 3 else []))


def _remove_stale(out: Path, names: set[str]) -> None:
    """A figure of an earlier report that this one no longer makes would contradict it; only files
    we listed are removed.
    """
    try:
        earlier = _Earlier.model_validate_json((out / "summary.json").read_bytes()).figures
    except (OSError, ValueError):  # not there, or not ours
        return
    for name in set(earlier) - names:
        for ending in ("svg", "png"):
            (out / "figures" / f"{name}.{ending}").unlink(missing_ok=True)
