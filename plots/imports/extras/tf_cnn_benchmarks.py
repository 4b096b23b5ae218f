"""tf_cnn_benchmarks: `10<TAB>images/sec: 256.1 +/- 0.4 (jitter = 1.1)<TAB>7.95`, and a total."""

from __future__ import annotations

import re

import pandas as pd

from bench.config import UsageError
from plots.imports.observation import (
    NUMBER,
    RATE,
    SPACE,
    Format,
    ImportOptions,
    Reading,
    matched,
    stated_once,
    stating,
)
from plots.imports.text import Log

_LINE, _UNCERTAIN = "process_images_per_s", "uncertainty_images_per_s"
_lines = stating(
    matched(
        rf"(?<![\d.])(?P<step>\d+){SPACE}images/sec: (?P<{_LINE}>{NUMBER})"
        rf"(?: \+/- (?P<{_UNCERTAIN}>{NUMBER}) \(jitter = {NUMBER}\))?(?=\s|\\t|$)",
        rf"total images/sec: (?P<{RATE}>{NUMBER})(?=\s|$)",
        marker=r"\bimages/sec\b",
    ),
    batch_per_rank=r"(?<![\d.])(\d+(?:\.0)?) per device",
    model=r"Model:\s+(\S+)",
)
_VARIABLES = re.compile(r"Variables:\s+(\S+)")
_GLOBAL = re.compile(r"Batch size:\s+(\d+) global")
_OFF = 0.2  # a total counts what stands between steps, and a line's rate does not


def _read(log: Log, options: ImportOptions) -> Reading:
    """The header's devices are the world, but where workers of a cluster list only their own."""
    reading = _lines(log, options)
    values = reading.values
    devices, of_a_worker = _devices(log.text)
    horovod = stated_once(log.text, _VARIABLES, "backend") == "horovod"
    batch, whole = values["batch_per_rank"].max(), stated_once(log.text, _GLOBAL, "global_batch")
    if devices and whole and batch > 0 and whole != batch * devices:
        raise UsageError(f"its header states {whole:g} images, and {devices} times {batch:g}")
    if devices and not of_a_worker:
        values = values.assign(world_size=float(devices))
    elif devices and options.world_size and options.world_size % devices:
        header = f"each worker has {devices} devices by its header"
        raise UsageError(f"{header}; a --world-size of {options.world_size} is no multiple of it")
    if horovod:
        values = _of_each_rank(values.assign(backend="horovod"), devices)
    if devices and (options.world_size or not of_a_worker):
        world = options.world_size if of_a_worker and options.world_size else devices
        _require_agreement(values, world if horovod else world // devices)
    return Reading(values, reading.warnings)


def _devices(text: str) -> tuple[int, bool]:
    """How many a header lists, 0 where there is none, and whether they are of one worker."""
    lists = {
        tuple(re.findall(r"'([^']+)'", m[1])) for m in re.finditer(r"Devices:\s+\[(.*)]", text)
    }
    if len(counts := {len(names) for names in lists}) > 1:
        raise UsageError(
            f"it lists {' and '.join(map(str, sorted(counts)))} devices; part its runs"
        )
    return max(counts, default=0), any("job:worker" in name for names in lists for name in names)


def _of_each_rank(values: pd.DataFrame, world: int) -> pd.DataFrame:
    """Under Horovod every rank prints every line: as many of each as ranks are one of each rank."""
    order = values.groupby(["quantity", "step"], dropna=False)
    if values["rank"].notna().any() or not (order["value"].transform("size") == world).all():
        return values
    return values.assign(rank=order.cumcount().astype(float))


def _require_agreement(values: pd.DataFrame, processes: int) -> None:
    lines = values[values["quantity"] == _LINE]
    totals = values[values["quantity"] == RATE]["value"]
    if lines.empty or totals.empty:
        return
    summed = processes * lines[lines["step"] == lines["step"].max()]["value"].mean()
    for total in totals[~((totals / summed - 1).abs() <= _OFF)]:
        process = "one process" if processes == 1 else f"{processes} processes"
        raise UsageError(f"its total is {total:g}, and the last lines of {process} make {summed:g}")


FORMAT = Format(
    read=_read,
    written_by="tensorflow/benchmarks, tf_cnn_benchmarks",
    last_counts=rf"{_LINE}|{_UNCERTAIN}",
    notes=(
        "images_per_s is the file's total; a line's rate is of one process with all its GPUs",
        "a line's rate is the mean of all steps up to it: the last one counts",
    ),
)
