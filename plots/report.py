"""The report of one study: read the logs, analyse them, write figures, report.md and summary.json."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from bench.config import UsageError
from plots import calibration_tables, figures, jobs
from plots.analysis import analyse
from plots.load import Loaded, load
from plots.markdown import markdown
from plots.summary import summary

CALIBRATION = "calibration.csv"


def make(folder: Path, out: Path) -> list[Path]:
    """Analyse a study's folder and write figures/, report.md, summary.json and calibration.csv into `out`.

    Raises UsageError, with the reasons, where no log is usable.
    """
    loaded = load(folder)
    if loaded.runs.empty and not loaded.pipelines.empty:
        raise UsageError(
            f"{folder}: all usable logs are of the input pipeline alone (loader_only); put training runs beside them"
        )
    if loaded.runs.empty:
        raise UsageError(f"{folder}: none of {len(loaded.unusable)} logs is usable: {_reasons(loaded)}")
    a = analyse(loaded, jobs.read(folder))
    try:
        drawn = figures.draw(a)
        _remove_stale(out, set(drawn))
        written = figures.save(drawn, out / "figures")
        written.append(_write(out / "summary.json", json.dumps(summary(a, list(drawn)), indent=1) + "\n"))
        if a.calibrated:
            written.append(_write(out / CALIBRATION, calibration_tables.csv(a.calibrated)))
        written.append(_write(out / "report.md", markdown(a, list(drawn))))
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}; choose another folder with --out") from error
    return written


def _reasons(loaded: Loaded) -> str:
    counts = Counter(u.reason.splitlines()[0][:120] for u in loaded.unusable)
    most = [f"{n} x {reason}" for reason, n in counts.most_common(3)]
    return "; ".join(most + ([f"and {len(counts) - 3} other reasons"] if len(counts) > 3 else []))


def _remove_stale(out: Path, names: set[str]) -> None:
    """A figure of an earlier report that this one no longer makes would contradict it; only files we listed are removed."""
    try:
        earlier = json.loads((out / "summary.json").read_text())["figures"]
    except (OSError, ValueError, KeyError):
        return
    for name in set(earlier) - names:
        for ending in ("svg", "png"):
            (out / "figures" / f"{Path(name).name}.{ending}").unlink(missing_ok=True)


def _write(path: Path, text: str) -> Path:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    return temporary.replace(path)
