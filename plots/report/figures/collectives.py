"""Collectives: time and bus bandwidth against bytes, a column for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bench.backends import catalogue
from bench.config import UsageError
from bench.study.collectives import KINDS, Measured, read_each
from bench.study.points import ranks
from plots.report.figures import save_as
from plots.report.figures.style import GREY, STYLE, in_order, look


def draw(measured: Sequence[Measured]) -> Figure:
    """Draw all logs in one figure, with each cell as in a study's figures."""
    kinds = [kind for kind in KINDS if any(m.of(kind) for m in measured)]
    cells = in_order(m.cell for m in measured)
    sizes = sorted({ranks(m.ranks) for m in measured})
    machines = ", ".join(sorted({m.machine for m in measured}))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * len(kinds) + 2.2, 5.6))
        grid = figure.subplots(2, len(kinds), sharex=True, sharey="row", squeeze=False)
        for times, rates, kind in zip(*grid, kinds, strict=True):
            for m in measured:
                if not (timed := m.of(kind)):
                    continue
                known = m.cell == catalogue.PLAIN or m.cell.split("/")[0] in catalogue.CATALOGUE
                name = catalogue.label(m.cell) if known else m.cell
                name += f", {ranks(m.ranks)}" if len(sizes) > 1 else ""
                style = look(m.cell, cells, 3.5)
                x = [t.bytes for t in timed]
                below = [t.median_s - min(t.seconds) for t in timed]
                above = [max(t.seconds) - t.median_s for t in timed]
                middle = [t.median_s for t in timed]
                times.errorbar(x, middle, [below, above], label=name, **style)
                plain = {key: style[key] for key in style if key not in ("elinewidth", "capsize")}
                rates.plot(x, [t.bus_bytes_per_s for t in timed], label=name, **plain)
            for ax, unit in ((times, "s"), (rates, "B/s")):
                ax.set(xscale="log", yscale="log")
                ax.xaxis.set_major_formatter(EngFormatter("B"))
                ax.yaxis.set_major_formatter(EngFormatter(unit))
            times.set_title(kind.replace("_", "-"), fontsize=9, loc="left")
        grid[0][0].set_ylabel("time, slowest rank")
        grid[1][0].set_ylabel("bus bandwidth")
        names = {
            n: h for ax in grid.flat for h, n in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(names.values(), names.keys(), loc="outside right center", fontsize=8)
        figure.suptitle(f"Collectives of float32 tensors, {', '.join(sizes)}", x=0.01, ha="left")
        foot = f"Markers: median; bars: range over repetitions. {machines}."
        figure.supxlabel(foot, x=0.01, ha="left", fontsize=7, color=GREY)
    return figure


def draw_folder(folder: Path, out: Path) -> Path:
    """Draw the logs of `python -m bench collectives` in a folder, one of each cell, into `out`.

    Raises UsageError where there is none.
    """
    logs = sorted(folder.glob("*.jsonl"))
    if not logs:
        raise UsageError(f"{folder} holds no log of `python -m bench collectives`; name its folder")
    return save_as(draw(read_each(logs)), out)
