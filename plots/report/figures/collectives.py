"""The all-reduce alone: time and bus bandwidth against bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bench.backends import catalogue
from bench.config import UsageError
from bench.study.collectives import Measured, read_each
from bench.study.points import ranks
from plots.report.figures import save_as
from plots.report.figures.style import GREY, STYLE, in_order, look


def draw(measured: Sequence[Measured]) -> Figure:
    """Draw time and bus bandwidth of all logs against bytes, in the styles of a study's figures."""
    cells = in_order(m.cell for m in measured)
    sizes = sorted({ranks(m.ranks) for m in measured})
    machines = ", ".join(sorted({m.machine for m in measured}))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 3.2))
        times, rates = figure.subplots(1, 2, sharex=True)
        for m in measured:
            known = m.cell.split("/")[0] in catalogue.CATALOGUE
            name = catalogue.label(m.cell) if known else m.cell
            name += f", {ranks(m.ranks)}" if len(sizes) > 1 else ""
            style = look(m.cell, cells, 3.5)
            x, middle = [t.bytes for t in m.timed], [t.median_s for t in m.timed]
            below = [t.median_s - min(t.seconds) for t in m.timed]
            above = [max(t.seconds) - t.median_s for t in m.timed]
            times.errorbar(x, middle, [below, above], label=name, **style)
            plain = {key: style[key] for key in style if key not in ("elinewidth", "capsize")}
            rates.plot(x, [t.bus_bytes_per_s for t in m.timed], **plain)
        for ax, unit, title in (
            (times, "s", "time, slowest rank"),
            (rates, "B/s", "bus bandwidth"),
        ):
            ax.set(xscale="log", yscale="log")
            ax.xaxis.set_major_formatter(EngFormatter("B"))
            ax.yaxis.set_major_formatter(EngFormatter(unit))
            ax.set_title(title, fontsize=9, loc="left")
        figure.legend(loc="outside right center", fontsize=8)
        figure.suptitle(f"All-reduce of float32 tensors, {', '.join(sizes)}", x=0.01, ha="left")
        foot = f"Markers: median; bars: range over repetitions. {machines}."
        figure.supxlabel(foot, x=0.01, ha="left", fontsize=7, color=GREY)
    return figure


def draw_folder(folder: Path, out: Path) -> Path:
    """Draw a folder's logs of `python -m bench collectives` into the file `out`; return its path.

    Raises UsageError for no log, a bad log, or two logs of one cell and number of ranks.
    """
    logs = sorted(folder.glob("*.jsonl"))
    if not logs:
        raise UsageError(f"{folder} holds no log of `python -m bench collectives`; name its folder")
    return save_as(draw(read_each(logs)), out)
