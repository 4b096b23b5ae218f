"""Figures of one study as SVG and PNG: the only file that knows matplotlib, and it computes no number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.analysis import Analysis, machine
from plots.points import NO_SETTINGS, Point, ranks
from plots.scaling import Scaled, Throughput
from plots.stats import Estimate
from plots.versus import Comparison

# Okabe & Ito (2008), safe for colour-blind readers; one colour AND one marker per cell, the same in every figure.
CELLS = {
    "single": ("#000000", "P"),
    "ddp/mpi": ("#0072B2", "o"),
    "horovod/mpi": ("#D55E00", "^"),
    "ddp/gloo": ("#56B4E9", "s"),
    "horovod/gloo": ("#E69F00", "D"),
}
_OTHERS = (("#009E73", "v"), ("#CC79A7", "X"), ("#F0E442", "h"))
_GREY = "#767676"
STYLE: dict[str, Any] = {
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "y",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_DODGE = 0.11  # of the distance between two ticks: intervals of neighbours stay apart


def draw(a: Analysis) -> dict[str, Figure]:
    """All figures the study has points for, by file name without ending."""
    with matplotlib.rc_context(STYLE):
        figures: dict[str, Figure] = {}
        for name, rows in _groups(a.throughput).items():
            if len({r.point for r in rows}) > 1:
                figures[name + "-throughput"] = _throughput(a, rows)
        for name, scaled in _groups([r for r in a.efficiency if r.kind == "common"]).items():
            own = [r for r in a.efficiency if r.kind == "own" and (r.curve, _fixed(r)) == (scaled[0].curve, _fixed(scaled[0]))]
            if scaled[0].curve == "weak":
                figures[name + "-efficiency"] = _efficiency(a, scaled, own)
            else:
                figures[name + "-speedup"] = _speedup(a, scaled)
        for settings in sorted({c.settings for c in a.comparisons}):
            several = len({c.settings for c in a.comparisons}) > 1
            figures["ratio" + (f"-{settings}" if several else "")] = _ratio(
                a, [c for c in a.comparisons if c.settings == settings]
            )
        return figures


def save(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as .svg and .png, without dates, so that the same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in figures.items():
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                path = folder / f"{name}.{ending}"
                temporary = path.with_name(path.name + ".tmp")
                figure.savefig(temporary, format=ending, dpi=200, metadata=metadata)
                os.replace(temporary, path)
                written.append(path)
    return written


def _fixed(row: Throughput | Scaled) -> tuple[str, int]:
    return row.point.settings, row.point.fixed(row.curve)


def _groups[Row: (Throughput, Scaled)](rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by figure: one curve, one settings, one fixed batch (or rank count). `single` joins every settings."""
    rows = list(rows)
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        settings, fixed = _fixed(row)
        if settings != NO_SETTINGS:
            groups.setdefault((row.curve, settings, fixed), [])
    for row in rows:
        for key, group in groups.items():
            fixed = row.point.fixed(row.curve)
            if (row.curve, fixed) == (key[0], key[2]) and row.point.settings in (key[1], NO_SETTINGS):
                group.append(row)
    return {_name(key, list(groups)): group for key, group in groups.items()}


def _name(key: tuple[str, str, int], keys: Sequence[tuple[str, str, int]]) -> str:
    """'weak', or with what tells it from the study's other figures of that curve: 'weak-matched-16'."""
    same = [k for k in keys if k[0] == key[0]]
    parts = [str(key[i]) for i in (1, 2) if len({k[i] for k in same}) > 1]
    return "-".join([key[0], *parts])


def _look(cell: str, cells: Sequence[str]) -> dict[str, Any]:
    others = sorted(set(cells) - set(CELLS))
    colour, marker = CELLS[cell] if cell in CELLS else _OTHERS[others.index(cell) % len(_OTHERS)]
    return {"color": colour, "marker": marker}


def _order(cells: Iterable[str]) -> list[str]:
    found = set(cells)
    return [c for c in CELLS if c in found] + sorted(found - set(CELLS))


def _series(
    ax: Axes,
    rows: Sequence[Any],
    ticks: Sequence[int],
    x: Callable[[Point], int],
    y: Callable[[Any], Estimate],
    label: str = "{}",
    **look: Any,
) -> None:
    """One line with intervals per cell, side by side at each tick."""
    cells = _order(r.point.cell for r in rows)
    for i, cell in enumerate(cells):
        own = sorted((r for r in rows if r.point.cell == cell), key=lambda r: x(r.point))
        at = [ticks.index(x(r.point)) + (i - (len(cells) - 1) / 2) * _DODGE for r in own]
        values = [y(r) for r in own]
        error = [
            [e.value - (e.value if e.low is None else e.low) for e in values],
            [(e.value if e.high is None else e.high) - e.value for e in values],
        ]
        drawn = {"markersize": 6, "capsize": 3, "linewidth": 1.3, "elinewidth": 1.1, **_look(cell, cells), **look}
        ax.errorbar(at, [e.value for e in values], yerr=error, label=label.format(cell), **drawn)


def _axes(ticks: Sequence[int], xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 3.8))
    ax = figure.subplots()
    ax.set_xticks(range(len(ticks)), [str(t) for t in ticks])
    ax.set_xlim(-0.5, len(ticks) - 0.5)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    return figure, ax


def _words(a: Analysis, figure: Figure, ax: Axes, title: str, subtitle: str, notes: Sequence[str]) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    ax.set_title(subtitle, loc="left", fontsize=9, color=_GREY)
    caption = "\n".join([*notes, f"{machine(a.loaded.host)}. {_counts(a)}"])
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7, color=_GREY)


def _counts(a: Analysis) -> str:
    if a.blocks == 1:
        return "n = 1 block: no interval."
    return f"n = {a.blocks} blocks; bars: 95 % Student t interval over blocks, on logs."


def _legend(ax: Axes) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.2)


def _baseline(row: Scaled) -> str:
    e = row.baseline_images_per_s
    return f"Baseline: {row.baseline.cell}, 1 rank, {row.baseline.samples_per_rank} images per step: {e.value:.4g} images/s."


def _setting(settings: Iterable[str]) -> str:
    found = sorted(set(settings) - {NO_SETTINGS})
    return f"settings: {', '.join(found)}" if found else ""


def _throughput(a: Analysis, rows: list[Throughput]) -> Figure:
    curve, fixed = rows[0].curve, next(r.point.fixed(r.curve) for r in rows)
    batch = curve == "batch"

    def x(p: Point) -> int:
        return p.samples_per_rank if batch else p.world_size

    ticks = sorted({x(r.point) for r in rows})
    figure, ax = _axes(ticks, "images per rank and step" if batch else "ranks", "throughput (images/s)")
    _series(ax, rows, ticks, x, lambda r: r.images_per_s)
    notes = []
    base = next((r for r in rows if r.point.cell == "single"), None)
    if base is not None and not batch:
        ideal = [base.images_per_s.value * t for t in ticks]
        ax.plot(range(len(ticks)), ideal, "--", color=_GREY, linewidth=1.1, label="ideal: single × ranks", zorder=1)
        notes.append(f"Ideal: {base.images_per_s.value:.4g} images/s of the single process × ranks.")
    ax.set_ylim(bottom=0)
    _legend(ax)
    title = {"weak": "Throughput, weak scaling", "strong": "Throughput, strong scaling", "batch": "Throughput against batch"}[
        curve
    ]
    what = {"weak": f"{fixed} images per rank", "strong": f"{fixed} images per step in all", "batch": ranks(fixed)}[curve]
    _words(a, figure, ax, title, f"{what}; {_setting(r.point.settings for r in rows)}", notes)
    return figure


def _efficiency(a: Analysis, rows: list[Scaled], own: list[Scaled]) -> Figure:
    ticks = sorted({r.point.world_size for r in rows})
    figure, ax = _axes(ticks, "ranks", "weak efficiency T(1)/T(p)")
    _series(ax, rows, ticks, lambda p: p.world_size, lambda r: r.efficiency)
    if own:
        _series(
            ax, own, ticks, lambda p: p.world_size, lambda r: r.efficiency, "{}, own baseline", mfc="white", ls=":", alpha=0.55
        )
    ax.axhline(1, ls="--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)
    ax.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    ax.set_ylim(0, max(1.05, *((r.efficiency.high or r.efficiency.value) * 1.05 for r in [*rows, *own])))
    _legend(ax)
    subtitle = f"{rows[0].point.samples_per_rank} images per rank; {_setting(r.point.settings for r in rows)}"
    _words(a, figure, ax, "Weak scaling efficiency against one plain process", subtitle, [_baseline(rows[0])])
    return figure


def _speedup(a: Analysis, rows: list[Scaled]) -> Figure:
    ticks = sorted({r.point.world_size for r in rows})
    figure, ax = _axes(ticks, "ranks", "speed-up T(1)/T(p)")
    _series(ax, rows, ticks, lambda p: p.world_size, lambda r: r.speedup)
    ax.plot(range(len(ticks)), ticks, "--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)
    ax.set_ylim(bottom=0)
    _legend(ax)
    subtitle = f"{rows[0].point.samples_per_step} images per step in all; {_setting(r.point.settings for r in rows)}"
    _words(a, figure, ax, "Strong scaling speed-up over one plain process", subtitle, [_baseline(rows[0])])
    return figure


def _ratio(a: Analysis, rows: list[Comparison]) -> Figure:
    """Forest plot: one row per point, the margin shaded, 1 marked."""
    rows = sorted(rows, key=lambda c: (c.transport, c.world_size, c.samples_per_rank))
    figure = Figure(figsize=(7.2, 1.9 + 0.34 * len(rows)))
    ax = figure.subplots()
    margin = a.loaded.study.margin
    ax.axvspan(
        1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0, label=f"equivalent within {100 * margin:g} %"
    )
    ax.axvline(1, color=_GREY, linewidth=1)
    for i, c in enumerate(rows):
        e = c.paired.estimate
        error = None if e.low is None or e.high is None else [[e.value - e.low], [e.high - e.value]]
        ax.errorbar([e.value], [i], xerr=error, capsize=3, markersize=6, linewidth=1.3, **_look(c.cells[1], list(CELLS)))
        text = f"{e.value:.3f}" + (f" [{e.low:.3f}, {e.high:.3f}]" if e.low is not None else "") + f"  n={e.n}"
        ax.annotate(f"{text}\n{c.verdict}", (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    ax.set_yticks(
        range(len(rows)), [f"{c.transport}, {ranks(c.world_size)},\n{c.samples_per_rank} per rank" for c in rows], fontsize=8
    )
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel("throughput ratio Horovod / DDP on the same transport\n← DDP faster      Horovod faster →")
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    _words(a, figure, ax, "Horovod against DDP", _setting(c.settings for c in rows), [])
    return figure
