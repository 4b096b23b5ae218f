"""NNabla's monitors: console lines, `*.series.txt` (index, value) and `*.timer.txt`.

`iter=24 {Training time}=0.294[sec/12iter] 1.165[sec]`; a timer file's line is index, seconds of the
lap, iterations in it, seconds in all.
"""

from __future__ import annotations

import re

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import (
    NUMBER,
    Format,
    ImportOptions,
    Reading,
    Row,
    cut_off,
    cuts_a_number,
    of_groups,
    table,
    understood,
)
from plots.imports.text import Line, Log

_N = f"(?P<value>{NUMBER})"
_LAP = re.compile(
    rf"iter=(?P<step>\d+) \{{(?P<name>[^}}]+)\}}={_N}\[sec/(?P<steps>\d+)iter\] "
    rf"(?P<total>{NUMBER})\[sec\]"
)
_VALUE = re.compile(rf"iter=(?P<step>\d+) \{{(?P<name>[^}}]+)\}}={_N}(?![\w.\[])")
_TIMER = re.compile(rf"\s*(?P<step>\d+)\s+{_N}\s+(?P<steps>\d+)\s+(?P<total>{NUMBER})\s*")
_SERIES = re.compile(rf"\s*(?P<step>\d+)\s+{_N}\s*")
_KINDS = ((_LAP, False), (_VALUE, False), (_TIMER, True), (_SERIES, True))
_OFF = 0.01  # relative: laps and totals are rounded


def _read(log: Log, options: ImportOptions) -> Reading:
    rows: list[Row] = []
    laps: list[tuple[str, float, float, float, float]] = []
    marked, lost, last = 0, [], 0
    of_a_series = not any("iter=" in line.text for line in log.lines)
    for line in log.lines:
        if not line.text.strip() or not (of_a_series or "iter=" in line.text):
            continue
        marked += 1
        match = _match(line)
        if match is None:
            lost.append(line)
            continue
        last, groups = line.number, match.groupdict()
        name = _slug(groups.get("name") or re.sub(r"\.(series|timer)?(\.txt)?$", "", log.name))
        value = float(match["value"])
        if steps := groups.get("steps"):
            if int(steps) == 0:
                lost.append(line)
                continue
            laps.append((name, float(match["step"]), int(steps), value, float(match["total"])))
            alone = "name" not in groups and not log.name.endswith(".timer.txt")
            value, name = value / int(steps), "step_seconds" if alone else _of_a_step(name)
        rows += of_groups({"step": match["step"], name: str(value)}, line)
    _require_agreement(laps)
    if of_a_series and len(lost) == marked:  # words, and no series
        return Reading(table([]))
    return Reading(table(rows), [*understood(marked, lost), *cut_off(log, last)])


def _match(line: Line) -> re.Match[str] | None:
    for pattern, alone in _KINDS:
        match = pattern.fullmatch(line.text) if alone else pattern.search(line.text)
        if match and not cuts_a_number(match):
            return match
    return None


def _slug(name: str) -> str:
    """'train_loss' for 'Training loss' of a console and 'Training-loss' of a file."""
    return re.sub(r"\W+", "_", name.strip().lower()).replace("training_", "train_", 1)


def _of_a_step(name: str) -> str:
    """Seconds of a step of training, or of what else was timed."""
    return "step_seconds" if name == "train_time" else f"{name}_step_seconds"


def _require_agreement(laps: list[tuple[str, float, float, float, float]]) -> None:
    """Raise UsageError where the seconds in all do not grow by a lap."""
    frame = pd.DataFrame(laps, columns=["name", "step", "steps", "lap", "total"])
    for _, of_run in frame.groupby("name"):
        following = of_run["step"].diff() == of_run["steps"]
        grown = of_run["total"].diff()
        wrong = of_run[
            following & ~((grown - of_run["lap"]).abs() <= _OFF * of_run["total"] + 1e-3)
        ]
        if len(wrong):
            first = wrong.iloc[0]
            lap = f"the lap of step {first['step']:g} is {first['lap']:g} s, and its total grew by"
            raise UsageError(f"{lap} {grown[wrong.index[0]]:g} s: of two runs, or mend the line")


FORMAT = Format(
    read=_read,
    written_by="sony/nnabla-examples, distributed/cifar10-100",
    notes=("a time is the mean of the iterations since the line before",),
)
