"""Figures of one study as SVG and PNG: the only file that knows matplotlib, and it computes no number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.analysis import Analysis, machine, workload
from plots.calibration import FLOOR, MAX_SCORE, MIN_NODES, MOST
from plots.equal import without_exchange
from plots.layout import CELLS, Scale, bars, cut_bars, look, reach
from plots.points import NO_SETTINGS, ranks
from plots.scaling import Scaled, Throughput, size
from plots.stats import Estimate
from plots.versus import Comparison, label

_GREY = "#666666"
_STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_LINE: dict[str, Any] = {"markersize": 6, "capsize": 3, "linewidth": 1.3, "elinewidth": 1.1}
# black, as colours belong to cells; a ring becomes a disc from a job's start to its end
_ROUND: dict[str, dict[str, Any]] = {
    "start": {"marker": "o", "markersize": 5, "linestyle": "none", "color": "black", "markerfacecolor": "white"},
    "end": {"marker": "D", "markersize": 4.5, "linestyle": "none", "color": "black"},
}
_MOST_NODES = 64  # the slowest; the others are in calibration.csv
Row = TypeVar("Row", Throughput, Scaled)


def draw(a: Analysis) -> dict[str, Figure]:
    """All figures the study has points for, by file name without ending."""
    with matplotlib.rc_context(_STYLE):
        figures: dict[str, Figure] = {}
        pages = sorted({(c.variant, c.settings) for c in a.comparisons})
        for page in pages:
            figures[_file("ratio", page, pages)] = _ratio(a, [c for c in a.comparisons if (c.variant, c.settings) == page])
        for name, rows in _groups(a.throughput).items():
            if len({r.point for r in rows}) > 1:
                figures[name + "-throughput"] = _throughput(a, rows)
        for name, scaled in _groups(a.efficiency).items():
            weak = scaled[0].curve == "weak"
            figures[name + ("-efficiency" if weak else "-speedup")] = _scaling(a, scaled, weak)
        batches = [(n.samples_per_step,) for n in a.calibrated.nodes] if a.calibrated else []
        for batch in dict.fromkeys(batches):
            figures[_file("calibration", batch, batches)] = _calibration(a, batch[0])
        return figures


def save(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as .svg and .png, without dates, so that the same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for name, figure in figures.items():
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                path = folder / f"{name}.{ending}"
                temporary = path.with_name(path.name + ".tmp")
                figure.savefig(temporary, format=ending, dpi=200, metadata=metadata)
                temporary.replace(path)
                written.append(path)
    return written


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by figure: one curve, one variant, one settings, one fixed batch (or rank count); `single` joins every settings."""

    def key(r: Row) -> tuple[str, tuple[str, ...], str, int]:
        return r.curve, r.point.variant, r.point.settings, r.point.fixed(r.curve)

    keys = list(dict.fromkeys(key(r) for r in rows if r.point.settings != NO_SETTINGS))
    groups: dict[str, list[Row]] = {}
    for k in keys:
        both = k, (k[0], without_exchange(k[1]), NO_SETTINGS, k[3])
        groups[_file(k[0], k[1:], [other[1:] for other in keys if other[0] == k[0]])] = [r for r in rows if key(r) in both]
    return groups


def _file(name: str, key: tuple[Any, ...], keys: Iterable[tuple[Any, ...]]) -> str:
    """'weak', or with what tells it from the study's other figures of that name: 'weak-compile-true-matched-16'."""
    differing = [str(part) for part, others in zip(key, zip(*keys, strict=True), strict=True) if len(set(others)) > 1]
    return "-".join([name, *(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in differing)])


def _cells(rows: Iterable[Throughput | Scaled]) -> list[str]:
    found = {r.point.cell for r in rows}
    return [c for c in CELLS if c in found] + sorted(found - set(CELLS))


def _apply(scale: Scale, ax: Axes, low: float, high: float) -> None:
    """Set ticks and limits; `low` and `high` are the y axis's, which starts at 0 unless it is logarithmic."""
    ax.set_xticks([scale.at(v) for v in scale.values], [str(v) for v in scale.values])
    ax.set_xlim(*scale.ends)
    if scale.log:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    ax.set_ylim(low if scale.log else 0, high)


def _series(ax: Axes, rows: Sequence[Row], cells: Sequence[str], scale: Scale, y: Callable[[Row], Estimate]) -> None:
    """One line with intervals per cell, side by side at each tick."""
    for i, cell in enumerate(cells):
        own = sorted((r for r in rows if r.point.cell == cell), key=lambda r: size(r.curve, r.point))
        at = [scale.at(size(r.curve, r.point)) + (i - (len(cells) - 1) / 2) * scale.dodge for r in own]
        values = [y(r) for r in own]
        ax.errorbar(at, [e.value for e in values], yerr=bars(values), label=cell, **_LINE, **look(cell, cells))


def _words(a: Analysis, figure: Figure, title: str, subtitle: str, estimates: Sequence[Estimate], notes: Sequence[str]) -> None:
    """As `_frame`, the foot ending with n and how to read the bars."""
    n = sorted({e.n for e in estimates})
    count = f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"
    bars = ": one block, no interval" if n[-1] == 1 else " blocks; bars: 95 % Student t interval over blocks, on logs"
    _frame(figure, title, subtitle, [*notes, f"{machine(a.loaded.host)}. {count}{bars}."])


def _frame(figure: Figure, title: str, subtitle: str, foot: Sequence[str]) -> None:
    """Finding on top, conditions below it, and at the foot what else a reader must know, such as machine and n."""
    height = figure.get_figheight()
    fits = 72 * 0.97 * figure.get_figwidth() / (0.64 * len(title))  # a bold letter is 0.64 of its size wide
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=min(11, fits), fontweight="bold")
    fits = 72 * 0.97 * figure.get_figwidth() / (0.53 * len(subtitle))
    figure.text(0.01, 1 - 0.32 / height, subtitle, va="top", fontsize=min(9, fits), color=_GREY)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.5 / height))  # type: ignore[union-attr, call-arg]
    figure.supxlabel("\n".join(foot), x=0.01, ha="left", fontsize=7, color=_GREY)


def _legend(ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i].startswith("ideal"))
    ax.legend([handles[i] for i in order], [labels[i] for i in order], loc="center left", bbox_to_anchor=(1.01, 0.5))


def _conditions(a: Analysis, curve: str, rows: Sequence[Row]) -> str:
    fixed = rows[0].point.fixed(curve)
    what = {"weak": f"{fixed} images per rank", "strong": f"{fixed} images per step in all", "batch": ranks(fixed)}[curve]
    settings = sorted({r.point.settings for r in rows} - {NO_SETTINGS})
    longest: tuple[str, ...] = max((r.point.variant for r in rows), key=len)  # that of `single` says nothing of an exchange
    return "; ".join([what, ", ".join([workload(a), *longest]), f"settings: {', '.join(settings)}"])


def _finding(rows: Sequence[Row], y: Callable[[Row], Estimate], form: str) -> str:
    """The largest point in words: each cell's value where two cells fit in a title, else the range."""
    last = max(size(r.curve, r.point) for r in rows)
    found = [(r.point.cell, form.format(y(r).value)) for r in rows if size(r.curve, r.point) == last]
    if len(found) <= 2:
        return ", ".join(f"{cell} {value}" for cell, value in found)
    values = sorted(y(r).value for r in rows if size(r.curve, r.point) == last)
    return f"{form.format(values[0])} to {form.format(values[-1])}"


def _throughput(a: Analysis, rows: list[Throughput]) -> Figure:
    curve = rows[0].curve
    figure = Figure(figsize=(6.4, 3.9))
    ax = figure.subplots()
    scale = Scale((size(curve, r.point) for r in rows), curve != "batch", 4.2)
    _series(ax, rows, _cells(rows), scale, lambda r: r.images_per_s)
    base = next((r.images_per_s for r in rows if r.point.cell == "single"), None)
    notes = ["To compare cells use the paired ratio: these bars hold the machine's drift between blocks, which pairing removes."]
    if base is not None and curve != "batch":
        _ideal(ax, scale, base.value)
        notes.append(f"Ideal: ranks x {base.value:.4g} images/s of the single process.")
    shown = [r.images_per_s for r in rows]
    low, high = reach(shown, *([base.value * max(scale.values)] if base is not None and curve != "batch" else []))
    _apply(scale, ax, low, high)
    notes += cut_bars(shown, low if scale.log else 0, high)
    ax.set_xlabel("images per rank" if curve == "batch" else "ranks")
    ax.set_ylabel("throughput (images/s)")
    _legend(ax)
    last = max(scale.values)
    where = f"{last} images per rank" if curve == "batch" else f"{ranks(last)}, {curve} scaling"
    title = f"Images/s at {where}: {_finding(rows, lambda r: r.images_per_s, '{:.3g}')}"
    _words(a, figure, title, _conditions(a, curve, rows), shown, notes)
    return figure


def _ideal(ax: Axes, scale: Scale, one: float) -> None:
    at = [scale.at(v) for v in scale.values]
    ax.plot(at, [one * v for v in scale.values], "--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)


def _scaling(a: Analysis, rows: list[Scaled], weak: bool) -> Figure:
    """Two panels with one y axis: against the common baseline, and against each cell's own, which tells another story."""
    figure = Figure(figsize=(7.2, 3.9))
    panels = figure.subplots(1, 2, sharey=True)
    cells = _cells(rows)

    def y(r: Scaled) -> Estimate:
        return r.efficiency if weak else r.speedup

    low, high = reach([y(r) for r in rows], 1.0, 1.0 if weak else max(r.point.world_size for r in rows))
    for ax, kind, heading in zip(
        panels, ("common", "own"), ("against one plain process", "against its own one rank"), strict=True
    ):
        shown = [r for r in rows if r.kind == kind] + (_anchors(rows) if kind == "own" else [])
        scale = Scale([1, *(r.point.world_size for r in rows)], not weak, 2.3)
        _series(ax, shown, cells, scale, y)
        if weak:
            ax.axhline(1, ls="--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)
        else:
            _ideal(ax, scale, 1.0)
        _apply(scale, ax, low, high)
        ax.set_title(heading if shown else f"{heading}: not measured", fontsize=9)
        ax.set_xlabel("ranks")
    panels[0].set_ylabel("weak efficiency T(1)/T(p)" if weak else "speed-up T(1)/T(p)")
    if weak:
        panels[0].yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    _legend(panels[1])
    common = [r for r in rows if r.kind == "common"]
    notes = [f"Common baseline: {_baseline(common[0])}."] if common else ["No usable common baseline."]
    notes += cut_bars([y(r) for r in rows], low if scale.log else 0, high)
    finding = _finding(common or rows, y, "{:.0%}" if weak else "{:.2f}").replace("%", " %")
    title = f"{'Weak efficiency' if weak else 'Strong speed-up'} at {ranks(max(r.point.world_size for r in rows))}: {finding}"
    _words(a, figure, title, _conditions(a, rows[0].curve, rows), [y(r) for r in rows], notes)
    return figure


def _anchors(rows: Sequence[Scaled]) -> list[Scaled]:
    """Each cell against itself at one rank: 1 by definition, so that its line starts where it is measured from."""
    one = Estimate(1.0, None, None, 1)
    own = {r.baseline: r for r in rows if r.kind == "own"}
    return [replace(r, point=baseline, efficiency=one, speedup=one) for baseline, r in own.items()]


def _baseline(row: Scaled) -> str:
    b = row.baseline
    return (
        f"{b.cell}, {ranks(b.world_size)}, {b.samples_per_step} images per step: {row.baseline_images_per_s.value:.4g} images/s"
    )


def _ratio(a: Analysis, rows: list[Comparison]) -> Figure:
    """Forest plot: one row per point, the margin shaded, 1 marked."""
    rows = sorted(rows, key=lambda c: (c.transport != "mpi", c.transport, c.world_size, c.samples_per_rank))
    figure = Figure(figsize=(7.2, 1.9 + 0.36 * len(rows)))
    ax = figure.subplots()
    margin = a.loaded.study.margin
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(1, color=_GREY, linewidth=1)
    for i, c in enumerate(rows):
        e = c.paired.estimate
        ax.errorbar([e.value], [i], xerr=bars([e]), **_LINE, **look(c.cells[1], [c.cells[1]]))
        interval = "" if e.low is None or e.high is None else f" [{e.low:.3f}, {e.high:.3f}]"
        text = f"{e.value:.3f}{interval}, n = {e.n}\n{label(c)}"
        ax.annotate(text, (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    low, high = reach([c.paired.estimate for c in rows], 1 / (1 + margin), 1 + margin)
    ax.set_xlim(low, high)
    names = [
        f"{'primary: ' if c.primary else ''}{ranks(c.world_size)}, {c.samples_per_rank} per rank\n"
        f"{c.transport}: {', '.join(c.curves)}"
        for c in rows
    ]
    ax.set_yticks(range(len(rows)), names, fontsize=8)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(
        "images/s of Horovod over images/s of DDP, same transport, paired by block\n(left of 1: DDP faster; right: Horovod)"
    )
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    counts = {word: sum(label(c) == word for c in rows) for word in dict.fromkeys(map(label, rows))}
    title = f"Horovod against DDP at {len(rows)} points: " + ", ".join(f"{n} {word}" for word, n in counts.items())
    title = f"Horovod against DDP: {label(rows[0])} at all {len(rows)} points" if len(counts) == 1 < len(rows) else title
    work = ", ".join([workload(a), *rows[0].variant])
    subtitle = f"{work}; settings: {rows[0].settings}; shaded: equivalent within {100 * margin:g} %"
    _words(a, figure, title, subtitle, [c.paired.estimate for c in rows], cut_bars([c.paired.estimate for c in rows], low, high))
    return figure


def _calibration(a: Analysis, batch: int) -> Figure:
    """Every calibration: a row for each node, the slowest on top, in it a line from start to end for each job."""
    assert a.calibrated is not None
    judged = [n for n in a.calibrated.nodes if n.samples_per_step == batch]
    nodes = judged[:_MOST_NODES]
    good = [c for c in a.calibrated.all if c.usable and c.samples_per_step == batch]
    figure = Figure(figsize=(7.2, 1.9 + 0.34 * len(nodes)))
    ax = figure.subplots()
    for row, node in enumerate(nodes):
        if node.slow:
            ax.axhspan(row - 0.5, row + 0.5, color="#E69F00", alpha=0.25, linewidth=0)
        own = [c for c in good if c.node == node.node]
        jobs = list(dict.fromkeys(c.allocation for c in own))
        for i, job in enumerate(jobs):
            rates = {c.when: c.images_per_s for c in own if c.allocation == job}
            at = row + 0.6 * ((i + 0.5) / len(jobs) - 0.5)
            ax.plot(list(rates.values()), [at] * len(rates), color=_GREY, linewidth=0.8, zorder=2)
            for when, rate in rates.items():
                ax.plot([rate], [at], zorder=3, **_ROUND[when])
    median = nodes[0].images_per_s / nodes[0].relative
    ax.axvline(median, color=_GREY, linewidth=1.1, zorder=1, label="median node")
    ax.axvline(median * (1 - FLOOR), color=_GREY, linewidth=1.1, ls="--", zorder=1, label=f"{100 * FLOOR:g} % below it")
    for when, style in _ROUND.items():
        ax.plot([], [], label=f"job's {when}", **style)
    ax.set_yticks(range(len(nodes)), [f"{n.node}{', slow' if n.slow else ''}" for n in nodes])
    for label_, node in zip(ax.get_yticklabels(), nodes, strict=True):
        label_.set_fontweight("bold" if node.slow else "normal")
    ax.set_ylim(len(nodes) - 0.4, -0.6)
    ax.set_xlabel("images/s of one plain process on the node")
    ax.set_ylabel("node")
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    ax.hlines(
        [row + 0.5 for row in range(len(nodes) - 1)], 0, 1, transform=ax.get_yaxis_transform(), color="#e6e6e6", linewidth=0.8
    )
    _legend(ax)
    slow = [f"{n.node} at {100 * n.relative:.0f} % of the median node" for n in judged if n.slow]
    found = f"no slow node among {len(judged)}" if len(judged) >= MIN_NODES else f"not judged below {MIN_NODES} nodes"
    title = f"Slow nodes: {', '.join(slow)}" if slow else f"Calibration: {found}"
    bad = sum(not c.usable for c in a.calibrated.all)
    of = f"{len({c.node for c in good})} nodes, {len({c.allocation for c in good})} jobs"
    count = f"n = {len(good)} calibrations, {of}; {bad} failed or missing"
    rule = (
        f"Slow: median and at least {100 * MOST:g} % of the calibrations more than {100 * FLOOR:g} % below the median node, "
        f"and modified z-score below -{MAX_SCORE}."
    )
    subtitle = f"one plain process on each node of a job, all at once; {batch} images per step; {workload(a)}"
    _frame(figure, title, subtitle, [rule, f"{machine(a.loaded.host)}. {count}."])
    return figure
