"""Formats of other tools as patterns: a name, what reads its lines, and what to know of them."""

from __future__ import annotations

import re

from bench.config import UsageError
from plots.imports.observation import (
    NUMBER,
    RANK_RATE,
    RATE,
    SPACE,
    Format,
    ImportOptions,
    Reading,
    matched,
    stating,
)
from plots.imports.text import Log

_N = f"(?P<value>{NUMBER})"
_LAP = rf"(?P<lap_seconds>{NUMBER})"
_NODE = r"(?:Node\[(?P<rank>\d+)\] )?"  # later versions of MXNet name the worker before the line
_OFF = 0.02  # relative: rates are cut to whole numbers, and times to hundredths
_ROUNDED = 0.102  # means and lines are written with one decimal

_ancestor = matched(
    r"Rank ?: ?(?P<rank>\d+) Epoch (?P<epoch>\d+): "
    rf"train set accuracy (?P<train_accuracy>{NUMBER}) time (?P<epoch_seconds>{NUMBER}) "
    rf"throughput (?P<{RANK_RATE}>{NUMBER}) Sample Size (?P<samples>\d+)\b",
    marker="train set accuracy",
)
_mxnet = matched(
    rf"{_NODE}Epoch\[(?P<epoch>\d+)\] (?:(?P<name>(?:Train|Validation)-[\w-]+)={_N}"
    rf"|Time cost=(?P<epoch_seconds>{NUMBER}))(?!\w)",
    rf"{_NODE}(?:Epoch|Iter)\[(?P<epoch>\d+)\] Batch \[(?:\d+-)?(?P<step>\d+)\]"
    rf"{SPACE}Speed: (?P<{RANK_RATE}>{NUMBER}) samples/sec",
    marker=r"samples/sec|\b(?:Epoch|Iter)\[\d+\] (?:Train|Validation)-|\bTime cost",
)
_synthetic = stating(
    matched(
        rf"Iter #(?P<step>\d+): (?P<{RANK_RATE}>{NUMBER}) img/sec per \S+",
        rf"Img/sec per \S+: (?P<rank_mean_{RATE}>{NUMBER}) \+-{NUMBER}(?!\w)",
        rf"Total img/sec on \d+ \S+\(s\): (?P<total_{RATE}>{NUMBER}) \+-{NUMBER}(?!\w)",
        marker=r"(?i)\bimg/sec\b",
    ),
    world_size=r"(?:Number of \w+s: |Total img/sec on )(\d+)\b",
    batch_per_rank=r"Batch size: (\d+)\b",
    model=r"\bModel: (\S+)",
)
_GPUS = re.compile(r"\bgpus='([\d, ]+)'|training with \[(gpu[^]]+)]")
_ALONE = re.compile(r"\bkv_store='(?:local|device|nccl)")


def _read_ancestor(log: Log, options: ImportOptions) -> Reading:
    """Read lines whose rate is samples over time: one that is not was written by two ranks."""
    reading = _ancestor(log, options)
    by_name = {n: rows["value"].tolist() for n, rows in reading.values.groupby("quantity")}
    names = ("samples", "epoch_seconds", RANK_RATE)
    lines = zip(*(by_name.get(name, []) for name in names), strict=True)
    for samples, seconds, rate in lines:
        if not abs(rate * seconds / samples - 1 if samples else 1) <= _OFF:  # nan as well
            raise UsageError(
                f"throughput {rate:g} does not follow from {samples:g} samples in {seconds:g} s; "
                "mend the line, or take it out"
            )
    return reading


def _read_mxnet(log: Log, options: ImportOptions) -> Reading:
    """Read with the GPUs of a worker that runs alone: its rate is of all of them."""
    reading = _mxnet(log, options)
    values = reading.values
    lists = {len(re.findall(r"\d+", m[1] or m[2])) for m in _GPUS.finditer(log.text)}
    if max(lists, default=1) == 1:
        return reading
    if len(lists) > 1 or not _ALONE.search(log.text) or (values["rank"] > 0).any():
        several = " or ".join(map(str, sorted(lists)))
        remark = f"a worker has {several} GPUs: the world size counts workers"
        return Reading(values, [*reading.warnings, remark])
    quantity = values["quantity"].replace(RANK_RATE, RATE)
    gpus = float(lists.pop())
    alone = values.assign(quantity=quantity, rank=float("nan"), world_size=gpus)
    return Reading(alone, reading.warnings)


def _read_synthetic(log: Log, options: ImportOptions) -> Reading:
    """Read lines whose mean is the one that the script states: no line is missing."""
    reading = _synthetic(log, options)
    values = reading.values
    by_name = {n: sorted(set(rows["value"])) for n, rows in values.groupby("quantity")}
    means, totals = by_name.get(f"rank_mean_{RATE}", []), by_name.get(f"total_{RATE}", [])
    if len(means) > 1 or len(totals) > 1:
        raise UsageError(f"it states the means {', '.join(map(str, means))}; part its runs")
    world = values["world_size"].max()
    if means and totals and not abs(totals[0] - world * means[0]) <= _ROUNDED * (world + 1):
        raise UsageError(f"its total is {totals[0]:g}, and {world:g} times its mean {means[0]:g}")
    rates = values[values["quantity"] == RANK_RATE].drop_duplicates()["value"]
    if rates.empty and (totals or means):  # a total pasted alone is the rate
        quantity = f"total_{RATE}" if totals else f"rank_mean_{RATE}"
        name = RATE if totals else RANK_RATE
        return Reading(values.replace({"quantity": {quantity: name}}), reading.warnings)
    mean = rates.iloc[options.skip :].mean()
    if means and not abs(mean - means[0]) <= _ROUNDED:
        raise UsageError(
            f"its lines have the mean {mean:.1f}, and it states {means[0]:g}: lines are missing or "
            "of another run; or leave out the warm-up of Keras' script by --skip 1"
        )
    return reading


PRESETS = {
    "horovod-and-ddp": Format(
        read=_read_ancestor,
        written_by="RadhaGulhane13/data-parallelism-deep-learning",
        notes=(
            "per-rank rates are cut to whole numbers before they are added",
            "the first epoch holds the warm-up",
            "train accuracy is of another set in each of the two scripts",
        ),
    ),
    "nnabla": Format(
        read=matched(
            rf"iter=(?P<step>\d+) \{{Training time\}}={_LAP}\[sec/(?P<lap_steps>\d+)iter\]",
            rf"iter=(?P<step>\d+) \{{(?P<name>[^}}]+)\}}={_N}(?![\w.\[])",
            rf"^\s*(?P<step>\d+)\s+{_LAP}\s+(?P<lap_steps>\d+)\s+{NUMBER}\s*$",
            rf"^\s*(?P<step>\d+)\s+{_N}\s*$",
            marker=r"\biter=\d",
        ),
        written_by="sony/nnabla-examples, distributed/cifar10-100",
        notes=("a time is the mean of the iterations since the line before",),
    ),
    "mxnet": Format(
        read=_read_mxnet,
        written_by="apache/mxnet, example/distributed-training and its successors",
        notes=(
            "lines of early versions do not name the worker: give one file of each, --files ranks",
            "its tables average synchronous workers and take the slowest of asynchronous ones",
        ),
    ),
    "pathway2ai": Format(
        read=matched(
            rf"step (?P<step>\d+) \| train_loss (?P<train_loss>{NUMBER}) \| "
            rf"test_loss (?P<test_loss>{NUMBER}) \| step time (?P<step_ms>{NUMBER})ms",
            marker="step time",
        ),
        written_by="jinyangli/pathway2ai",
        notes=("a time is of one step of a hundred", "test loss is computed on training data"),
    ),
    "horovod-synthetic": Format(
        read=_read_synthetic,
        written_by="horovod, examples/*_synthetic_benchmark.py",
        a_file_is_a_run=True,
        one_speaks=True,
        notes=("'+-' is 1.96 standard deviations of its windows: no interval of the mean",),
    ),
    "pytorch-imagenet": Format(
        read=matched(
            r"Epoch: \[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/\d+\]\s+Time +"
            rf"(?P<step_seconds>{NUMBER})\b",
            marker=r"Epoch: \[\d+\]\[ *\d+/\d+\]",
        ),
        written_by="pytorch/examples, imagenet/main.py",
    ),
}
