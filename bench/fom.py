"""Figures of merit on standard output, in lines that the checks of other programs parse."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import harmonic_mean
from typing import Any

from bench.config import RunConfig

MARK = "hvd-ddp-fom"  # begins the line of JSON


def merits(
    config: RunConfig, rates: Sequence[float], versions: Mapping[str, str], *, ok: bool
) -> dict[str, Any]:
    """Return a run's figures of merit; `rates` are images/s over all ranks, one per timed window.

    `images_per_s` is the harmonic mean of `rates`. `plus_minus` is half the width of its 95 %
    t interval, None for one window; launches differ by more. Both are None unless `ok`.
    """
    # here, after the windows: it loads scipy, and with it threads of a linear algebra library
    from bench.study.stats import t_interval

    images_per_s, interval = harmonic_mean(rates), t_interval([1 / rate for rate in rates])
    half = (interval[1] - interval[0]) / 2 * images_per_s**2 if interval else None
    return {
        "cell": config.cell,
        "ranks": config.world_size,
        "device": config.device,
        "images_per_s": images_per_s if ok else None,
        "plus_minus": half if ok else None,
        "windows": len(rates),
        "transport": config.transport,
        "network": versions.get("nccl transport"),  # what NCCL says that it uses
        "compute": "emulated" if config.emulate else "trained",
        "ok": ok,
    }


def text(run: Mapping[str, Any]) -> str:
    """Return `run`, made by `merits`, as a line of JSON.

    If it is `ok`, two lines of images/s come first, in the format of Horovod's benchmark.
    """
    line = f"{MARK} {json.dumps(run)}"
    if run["images_per_s"] is None:
        return line
    unit, ranks = "GPU" if run["device"] == "cuda" else "CPU", run["ranks"]
    half = math.nan if run["plus_minus"] is None else run["plus_minus"]
    each = _numbers(run["images_per_s"] / ranks, half / ranks)
    total = _numbers(run["images_per_s"], half)
    return f"Img/sec per {unit}: {each}\nTotal img/sec on {ranks} {unit}(s): {total}\n{line}"


def _numbers(rate: float, half: float) -> str:
    """Return 'rate +-half'; `rate` gets at least one decimal and four significant digits."""
    digits = max(1, 3 - math.floor(math.log10(rate)))
    return f"{rate:.{digits}f} +-{half:.{digits}f}"
