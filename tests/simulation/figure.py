"""What simulated studies say of the statistics: coverage, looks and power."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.report.figures.style import GREY, GUIDE, STYLE, name_rows
from plots.report.format import percent, rule
from tests.simulation.studies import BLOCKS, LOOKS, Simulation

_COLOURS = dict(zip(BLOCKS, ("#E69F00", "#0072B2", "#000000"), strict=True))
_MARKERS = dict(zip(BLOCKS, ("o", "s", "D"), strict=True))


def draw(s: Simulation) -> Figure:
    """One panel for each promise."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(13.5, 4.4))
        panels = figure.subplots(1, 3)
        _coverage(panels[0], s)
        _looks(panels[1], s)
        _power(panels[2], s)
        figure.suptitle(
            f"Simulated, not measured: {s.studies:,} studies a mark (seed {s.seed})",
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        m = s.measured
        figure.supxlabel(
            f"Noise from {m.comparisons} measured comparisons: paired sd {percent(m.paired_sd)}, "
            f"single ones {percent(m.lowest_sd)} to {percent(m.highest_sd)}; what the runs of a "
            f"block share: sd {percent(m.block_sd)}.",
            x=0.01,
            ha="left",
            fontsize=7,
            color=GREY,
        )
        return figure


def _coverage(ax: Axes, s: Simulation) -> None:
    names = list(dict.fromkeys(c.noise for c in s.coverage))
    ax.axvspan(93, 97, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(95, **GUIDE)
    for n in BLOCKS:
        at = [100 * c.coverage for c in s.coverage if c.blocks == n]
        ax.plot(at, range(len(names)), ls="none", label=f"{n} blocks", **_mark(n))
    name_rows(ax, names)
    ax.set_xlabel("95 % intervals that hold the truth (%)")
    ax.set_title("Coverage; shaded: 93 to 97 %", fontsize=9)
    ax.legend(fontsize=8, loc="upper left")


def _looks(ax: Axes, s: Simulation) -> None:
    """A line for each noise and effect."""
    sds = list(dict.fromkeys(x.sd for x in s.looks))
    for x in s.looks:
        style, at = ("-", "--")[sds.index(x.sd)], [100 * share for share in x.settled]
        name = f"{rule(round(x.effect, 3))}: {x.launches:.1f}, {percent(x.wrong)} wrong"
        ax.plot(LOOKS, at, style, marker="o", markersize=3, label=name)
    ax.set_xticks(LOOKS)
    ax.set_ylim(0, 103)
    ax.set_xlabel("launches; true effect: launches on average")
    ax.set_ylabel("studies settled (%)")
    ax.set_title(" and ".join(f"sd {percent(sd)}" for sd in sds) + " (dashed)", fontsize=9)
    ax.legend(fontsize=7)


def _power(ax: Axes, s: Simulation) -> None:
    sd = s.measured.paired_sd
    for n in BLOCKS:
        for verdict, style in (("faster", "-"), ("equal", "--")):
            found = [
                p
                for p in s.power
                if (p.verdict, p.sd, p.blocks) == (verdict, sd, n)
                and (p.margin is None or p.effect == 0)
            ]
            at = [100 * (p.effect if p.margin is None else p.margin) for p in found]
            ax.plot(at, [p.theory for p in found], style, color=_COLOURS[n], lw=1.2)
            label = f"{n} blocks" if verdict == "faster" else None
            simulated = [p.simulated for p in found]
            ax.plot(at, simulated, ls="none", label=label, **_mark(n))
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("true difference (solid), or margin of truly equal arms (dashed), %")
    ax.set_ylabel("share of studies that find it")
    ax.set_title(f"Power at a paired sd of {percent(sd)}; lines: theory", fontsize=9)
    ax.legend(fontsize=8, loc="lower right")


def _mark(n: int) -> dict[str, Any]:
    return {"marker": _MARKERS[n], "color": _COLOURS[n], "markersize": 4.5}
