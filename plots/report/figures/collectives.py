"""Collectives: time and bus bandwidth against bytes, a column for each, with the fitted lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.backends import catalogue
from bench.config import UsageError
from bench.study.collectives import KINDS, Measured, Timed, bus_factor, fit, read_each
from bench.study.points import ranks
from plots.report import axes
from plots.report.figures import DPI, ENDINGS, save_as
from plots.report.figures.style import GREY, STYLE

_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def draw(measured: Sequence[Measured]) -> Figure:
    """Draw all logs in one figure, with each cell as in a study's figures."""
    kinds = [kind for kind in KINDS if any(m.of(kind) for m in measured)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * len(kinds) + 2.2, 5.6))
        grid = figure.subplots(2, len(kinds), sharex=True, sharey="row", squeeze=False)
        for times, rates, kind in zip(*grid, kinds, strict=True):
            for m in measured:
                if timed := m.of(kind):
                    _line(times, rates, timed, _look(m, measured), _name(m, measured))
            _scale(times, rates, kind)
        grid[0][0].set_ylabel("time, slowest rank")
        grid[1][0].set_ylabel("bus bandwidth, GB/s")
        names = {
            n: h for ax in grid.flat for h, n in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(names.values(), names.keys(), loc="outside right center", fontsize=8)
        sizes = sorted({ranks(m.ranks) for m in measured})
        machines = ", ".join(sorted({m.machine for m in measured}))
        figure.suptitle(f"Collectives of float32 tensors, {', '.join(sizes)}", x=0.01, ha="left")
        foot = "Markers: median; bars: range over repetitions; thin lines: latency + bytes / "
        foot += f"bandwidth, one for small and one for large sizes. {machines}."
        figure.supxlabel(foot, x=0.01, ha="left", fontsize=7, color=GREY)
    return figure


def _line(times: Axes, rates: Axes, timed: Sequence[Timed], look: Any, name: str) -> None:
    sizes, medians = [t.bytes for t in timed], [t.median_s for t in timed]
    bars = [
        [t.median_s - min(t.seconds) for t in timed],
        [max(t.seconds) - t.median_s for t in timed],
    ]
    marks = {**look, "linestyle": "none"}
    times.errorbar(sizes, medians, yerr=bars, label=name, **marks)
    rates.plot(sizes, [t.bus_bytes_per_s / 1e9 for t in timed], label=name, **_plain(marks))
    factor = bus_factor(timed[0].kind, timed[0].ranks)
    for line in fit(sizes, medians):
        at = [size for size in sizes if line.first_bytes <= size <= line.last_bytes]
        fitted = [line.seconds(size) for size in at]
        thin = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 0.9}
        times.plot(at, fitted, **thin)
        rates.plot(at, [factor * s / t / 1e9 for s, t in zip(at, fitted, strict=True)], **thin)


def _plain(look: dict[str, Any]) -> dict[str, Any]:
    """Remove from a look what a line that has no bars does not take."""
    return {key: value for key, value in look.items() if key not in ("elinewidth", "capsize")}


def _scale(times: Axes, rates: Axes, kind: str) -> None:
    times.set_title(kind.replace("_", "-"), fontsize=9, loc="left")
    for ax in (times, rates):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
    low, high = rates.get_xlim()
    ticks = [2**power for power in range(10, 41, 6) if low <= 2**power <= high]
    rates.set_xticks(ticks, [_short(size) for size in ticks])
    rates.minorticks_off()
    rates.set_xlabel("bytes")
    times.yaxis.set_major_formatter(lambda seconds, _: _seconds(seconds))
    rates.yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")


def _short(size: int) -> str:
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _seconds(seconds: float) -> str:
    unit = next((u for u, s in _UNITS.items() if seconds >= 0.999 * s), "µs")
    return f"{seconds / _UNITS[unit]:g} {unit}"


def _look(m: Measured, measured: Sequence[Measured]) -> dict[str, Any]:
    look = axes.look(m.cell, axes.in_order(m.cell for m in measured))
    return {**look, "markersize": 0.6 * look["markersize"]}  # small panels


def _name(m: Measured, measured: Sequence[Measured]) -> str:
    several = len({m.ranks for m in measured}) > 1
    known = m.cell == catalogue.PLAIN or catalogue.parts(m.cell).backend in catalogue.CATALOGUE
    name = catalogue.label(m.cell) if known else m.cell
    return f"{name}, {ranks(m.ranks)}" if several else name


def draw_folder(folder: Path, out: Path, dpi: int | None = None) -> Path:
    """Draw the logs of `python -m bench collectives` in a folder, one of each cell, into `out`.

    Raises UsageError where there is none, or `out` has another ending than a figure's.
    """
    logs = sorted(folder.glob("*.jsonl"))
    if not logs:
        raise UsageError(f"{folder} holds no log of `python -m bench collectives`; name its folder")
    if (ending := out.suffix.removeprefix(".")) not in ENDINGS:
        raise UsageError(f"{out}: figures are written as .{', .'.join(ENDINGS)}, not .{ending}")
    return save_as(draw(read_each(logs)), out, dpi or DPI)
