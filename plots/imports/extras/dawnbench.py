"""Time to accuracy: DAWNBench's TSV, and a line a run such as those of ml-cifar-10-faster.

`Train acc 0.988 loss 0.920, validation acc 0.942 loss 0.992 wall time 10.318s`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import (
    NUMBER,
    Format,
    ImportOptions,
    Reading,
    Row,
    as_number,
    cut_off,
    matched,
    table,
)
from plots.imports.text import Log

_runs = matched(
    rf"Train acc (?P<train_accuracy>{NUMBER}) loss (?P<train_loss>{NUMBER}), "
    rf"validation acc (?P<validation_accuracy>{NUMBER}) loss (?P<validation_loss>{NUMBER}) "
    rf"wall time (?P<run_seconds>{NUMBER})s",
    marker="wall time",
)
_PERCENT = {"top1accuracy": "validation_accuracy", "top5accuracy": "validation_top5_accuracy"}
_SCORES = {  # how a target by each is called, and in which unit it is given
    "validation_accuracy": ("top1", 100),
    "validation_top5_accuracy": ("top5", 100),
    "f1_score": ("f1", 1),
}
_HEAD = re.compile(r"(.*?)\b(epochs?\s+hours\s+\S.*|hours\s+epochs?\s+\S.*)", re.IGNORECASE)


def _read(log: Log, options: ImportOptions) -> Reading:
    heads = [(i, m) for i, line in enumerate(log.lines) if (m := _HEAD.fullmatch(line.text))]
    if heads:
        rows = list(_epochs(log, heads[0][0], heads[0][1]))
        _require_a_training(rows)
        return Reading(table([*rows, *_to_target(rows, options)]), cut_off(log, len(log.lines)))
    reading = _runs(log, options)
    lines = reading.values
    run = lines.groupby("quantity").cumcount().astype(float)  # each line is a run
    return Reading(_reached(lines.assign(run=run), options), reading.warnings)


def _epochs(log: Log, at: int, head: re.Match[str]) -> Iterator[Row]:
    """Hours are cumulative, and count no validation; accuracy in percent becomes a share.

    What stands before the heading, such as a date, stands before each row in the same shape.
    """
    before = re.compile(re.sub(r"\d+", r"\\d+", re.escape(head[1])))
    names = [name.lower() for name in head[2].split()]
    for line in log.lines[at + 1 :]:
        shape = before.match(line.text)
        words = line.text[shape.end() if shape else 0 :].split()
        if not words or [word.lower() for word in words] == names:  # a training again
            continue
        if len(words) != len(names):
            wrong = f"line {line.number}: {' '.join(words)[:60]!r} is no {', '.join(names)}"
            raise UsageError(f"{wrong}; mend it, or take it out")
        numbers = {n: as_number(w, n) for n, w in zip(names, words, strict=True)}
        epoch = numbers.pop("epoch", None)
        place = {"epoch": numbers.pop("epochs") if epoch is None else epoch}
        yield {"quantity": "run_seconds", "value": 3600 * numbers.pop("hours"), **place}
        for name, value in numbers.items():
            if quantity := _PERCENT.get(name):
                yield {"quantity": quantity, "value": value / 100, **place}
            else:
                yield {
                    "quantity": "f1_score" if name == "f1score" else name,
                    "value": value,
                } | place


def _require_a_training(rows: Sequence[Row]) -> None:
    """Raise UsageError where hours fall from one epoch to the next, or percent are none."""
    times = sorted({(r["epoch"], r["value"]) for r in rows if r["quantity"] == "run_seconds"})
    for (epoch, seconds), (after, later) in pairwise(times):
        if not later >= seconds or after == epoch:
            hours = f"hours at epoch {after:g} are {later / 3600:g}, and {seconds / 3600:g} at"
            raise UsageError(f"{hours} {epoch:g}: of two trainings, or cut; part or mend them")
    shares = [r["value"] for r in rows if r["quantity"] == "validation_accuracy"]
    if shares and not 0.01 < max(shares) <= 1:
        raise UsageError(f"no top1Accuracy is in percent: the largest is {100 * max(shares):g}")


def _to_target(rows: Sequence[Row], options: ImportOptions) -> Iterator[Row]:
    """The first epoch at the target by each score: DAWNBench's is top-5 for ImageNet."""
    if options.target is None:
        return
    seconds = {row["epoch"]: row["value"] for row in rows if row["quantity"] == "run_seconds"}
    scores = [
        (name, row["value"] * unit, row["epoch"])
        for row in rows
        for name, unit in [_SCORES.get(row["quantity"], ("", 0))]
        if name
    ]
    reached = [score for score in scores if score[1] >= options.target]
    if not reached:
        best = max((value for _, value, _ in scores), default=None)
        words = "it states no accuracy" if best is None else f"its best is {best:g}"
        raise UsageError(f"it never reaches {options.target:g}: {words}; give another --target")
    for name in dict.fromkeys(name for name, *_ in reached):
        epoch = min(epoch for score, _, epoch in reached if score == name)
        quantity = f"{name}_target_{options.target:g}_seconds"
        yield {"quantity": quantity, "value": seconds[epoch], "epoch": epoch}


def _reached(lines: pd.DataFrame, options: ImportOptions) -> pd.DataFrame:
    """With which of the runs reached the target, as a run that did not has no time to it."""
    scores = lines[lines["quantity"] == "validation_accuracy"]
    if options.target is None or scores.empty:
        return lines
    share = scores.assign(
        quantity="share_of_runs_at_target", value=(100 * scores["value"] >= options.target) * 1.0
    )
    return pd.concat([lines, share], ignore_index=True)


FORMAT = Format(
    read=_read,
    written_by="DAWNBench, and apple/ml-cifar-10-faster",
    a_file_is_a_run=True,
    last_counts=".*",
    notes=(
        "seconds are cumulative and leave validation out: those of the last epoch count",
        "--target 94 adds the seconds of the first epoch at 94 %, or the share of runs there",
    ),
)
