"""Time to accuracy: DAWNBench's TSV, and a line a run such as those of ml-cifar-10-faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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
_SCORES = {"validation_accuracy": "top1", "validation_top5_accuracy": "top5"}


def _read(log: Log, options: ImportOptions) -> Reading:
    lines = [[word.lower() for word in line.text.split()] for line in log.lines]
    head = next((i for i, words in enumerate(lines) if words[:2] == ["epoch", "hours"]), None)
    if head is not None:
        rows = list(_epochs(lines, head))
        return Reading(table([*rows, *_to_target(rows, options)]), cut_off(log, len(log.lines)))
    reading = _runs(log, options)
    run = reading.values.groupby("quantity").cumcount().astype(float)  # each line is a run
    runs: Any = reading.values.assign(run=run).to_dict("records")
    # a run that did not reach the target has no time to it
    reached: list[Row] = [
        {
            **row,
            "quantity": "share_of_runs_at_target",
            "value": 100 * row["value"] >= options.target,
        }
        for row in runs
        if options.target is not None and row["quantity"] == "validation_accuracy"
    ]
    return Reading(table([*runs, *reached]), reading.warnings)


def _epochs(lines: Sequence[list[str]], head: int) -> Iterator[Row]:
    """Yield the rows below the heading: hours are cumulative, percent become a share."""
    names = lines[head]
    for number, words in enumerate(lines[head + 1 :], head + 2):
        if not words:
            continue
        if len(words) != len(names):
            wrong = f"line {number}: {' '.join(words)[:60]!r} is no {', '.join(names)}"
            raise UsageError(f"{wrong}; mend it, or take it out")
        numbers = {n: as_number(w, n) for n, w in zip(names, words, strict=True)}
        place = {"epoch": numbers.pop("epoch")}
        yield {"quantity": "run_seconds", "value": 3600 * numbers.pop("hours"), **place}
        for name, value in numbers.items():
            share = value / 100 if name in _PERCENT else value
            yield {"quantity": _PERCENT.get(name, name), "value": share, **place}


def _to_target(rows: Sequence[Row], options: ImportOptions) -> Iterator[Row]:
    """Yield the first epoch at the target by each score: DAWNBench's is top-5 for ImageNet."""
    if options.target is None:
        return
    seconds = {row["epoch"]: row["value"] for row in rows if row["quantity"] == "run_seconds"}
    scores = [row for row in rows if row["quantity"] in _SCORES]
    reached = [row for row in scores if 100 * row["value"] >= options.target]
    if not reached:
        best = max((100 * row["value"] for row in scores), default=float("nan"))
        why = f"it never reaches {options.target:g}: its best is {best:g}"
        raise UsageError(f"{why}; give another --target")
    for name in dict.fromkeys(row["quantity"] for row in reached):
        epoch = min(row["epoch"] for row in reached if row["quantity"] == name)
        quantity = f"{_SCORES[name]}_target_{options.target:g}_seconds"
        yield {"quantity": quantity, "value": seconds[epoch], "epoch": epoch}


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
