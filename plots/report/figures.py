"""Figures of one study as SVG and PNG: the only file that knows matplotlib, and it computes no
number.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.disk import write_whole
from bench.study.stats import MIN_BLOCKS, Estimate
from plots.analyse.comparability import without_exchange
from plots.analyse.comparison import Comparison, label, tally
from plots.analyse.nodes import FLOOR, MAX_SCORE, MIN_NODES, MOST
from plots.analyse.points import CURVES, NO_SETTINGS, ranks
from plots.analyse.scaling import Scaled, Throughput, size
from plots.analyse.study import Analysis, machine, workload
from plots.report.axes import CELLS, bars, cut, dots, ends, is_log, look, ratio_ticks, reach
from plots.report.format import clean, count, percent, rate, ratio, short

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
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_ARROWS = {
    ("x", 0): 4,
    ("x", 1): 5,
    ("y", 0): 7,
    ("y", 1): 6,
}  # matplotlib's carets, by axis and end: left, right, down, up
# black, as colours belong to cells; a ring becomes a disc from a job's start to its end
_ROUND: dict[str, dict[str, Any]] = {
    "start": {
        "marker": "o",
        "markersize": 5,
        "linestyle": "none",
        "color": "black",
        "markerfacecolor": "white",
    },
    "end": {"marker": "D", "markersize": 4.5, "linestyle": "none", "color": "black"},
}
_LONGEST_NAME = 120  # of a file
_MOST_NODES = 64  # the slowest; the others are in calibration.csv
Row = TypeVar("Row", Throughput, Scaled)


def draw(a: Analysis) -> dict[str, Figure]:
    """All figures the study has points for, by file name without ending."""
    with matplotlib.rc_context(_STYLE):
        figures: dict[str, Figure] = {}
        pages = sorted({(c.variant, c.settings) for c in a.comparisons})
        for page in pages:
            figures[_file("ratio", page, pages)] = _ratio(
                a, [c for c in a.comparisons if (c.variant, c.settings) == page]
            )
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
    """Write each figure as .svg and .png, without dates, so that the same numbers give the same
    bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for name, figure in figures.items():
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                data = io.BytesIO()
                figure.savefig(data, format=ending, dpi=200, metadata=metadata)
                written.append(write_whole(folder / f"{name}.{ending}", data.getvalue()))
    return written


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by figure: one curve, one variant, one settings, one fixed batch (or rank count);
    `single` joins every settings.
    """

    def key(r: Row) -> tuple[str, tuple[str, ...], str, int]:
        return r.curve, r.point.variant, r.point.settings, r.point.fixed(r.curve)

    keys = list(dict.fromkeys(key(r) for r in rows if r.point.settings != NO_SETTINGS))
    groups: dict[str, list[Row]] = {}
    for k in keys:
        both = k, (k[0], without_exchange(k[1]), NO_SETTINGS, k[3])
        groups[_file(k[0], k[1:], [other[1:] for other in keys if other[0] == k[0]])] = [
            r for r in rows if key(r) in both
        ]
    return groups


def _file(name: str, key: tuple[Any, ...], keys: Iterable[tuple[Any, ...]]) -> str:
    """'weak', or with what tells it from the study's other figures of that name:
    'weak-compile-true-matched-16'.
    """
    differing = [
        str(part)
        for part, others in zip(key, zip(*keys, strict=True), strict=True)
        if len(set(others)) > 1
    ]
    slug = "-".join(
        [name, *(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in differing)]
    )
    if len(slug) <= _LONGEST_NAME:
        return slug
    digest = hashlib.sha256(repr(differing).encode(errors="replace")).hexdigest()
    return f"{slug[:_LONGEST_NAME]}-{digest[:8]}"


def _cells(rows: Iterable[Throughput | Scaled]) -> list[str]:
    found = {r.point.cell for r in rows}
    return [c for c in CELLS if c in found] + sorted(found - set(CELLS))


def _apply(ax: Axes, values: Sequence[int], frame: tuple[float, float], log_y: bool) -> None:
    """Ranks or batches at their true places on the x axis; ticks and limits of both."""
    if is_log(values):
        ax.set_xscale("log", base=2)
    if log_y:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    ax.minorticks_off()
    marks = sorted(set(values))
    ax.set_xticks(marks, [str(v) for v in marks])
    ax.set_xlim(*ends(values))
    ax.set_ylim(*frame)


def _frame_of(estimates: Sequence[Estimate], log_y: bool, *others: float) -> tuple[float, float]:
    """Ends of the y axis, which starts at 0 unless it is logarithmic."""
    low, high = reach(estimates, *others)
    return (low, high) if log_y else (0, 1.04 * high)


def _series(
    ax: Axes,
    rows: Sequence[Row],
    cells: Sequence[str],
    frame: tuple[float, float],
    y: Callable[[Row], Estimate],
) -> None:
    """One line for each cell, with its intervals, or with single blocks where they are few; every
    mark at its true place.
    """
    for cell in cells:
        own = sorted(
            (r for r in rows if r.point.cell == cell), key=lambda r: size(r.curve, r.point)
        )
        if own:
            at = [size(r.curve, r.point) for r in own]
            _mark(ax, at, [y(r) for r in own], frame, look(cell, cells), cell)


def _mark(
    ax: Axes,
    at: Sequence[float],
    values: Sequence[Estimate],
    frame: tuple[float, float],
    style: dict[str, Any],
    label_: str,
) -> None:
    """Values over `at`, their intervals, single blocks as dots, and an arrow where the frame cuts
    an interval.
    """
    drawn = ax.errorbar(at, [e.value for e in values], yerr=bars(values), label=label_, **style)
    drawn.lines[0].set_clip_on(False)  # a marker at the frame is whole
    for x, e in zip(at, values, strict=True):
        _dots(ax, [(x, block) for block in dots(e)], style)
        _arrows(
            ax,
            [(x, end) for end in cut(e, *frame)],
            [("y", int(end == frame[1])) for end in cut(e, *frame)],
            style,
        )


def _dots(ax: Axes, at: Sequence[tuple[float, float]], style: dict[str, Any]) -> None:
    if at:
        few = {"markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
        ax.plot(
            *zip(*at, strict=True),
            marker="o",
            color=style["color"],
            ls="none",
            zorder=style["zorder"],
            **few,
        )


def _arrows(
    ax: Axes,
    at: Sequence[tuple[float, float]],
    ways: Sequence[tuple[str, int]],
    style: dict[str, Any],
) -> None:
    for (x, y), way in zip(at, ways, strict=True):
        whole = {"markersize": 4 + 0.4 * style["markersize"], "clip_on": False}
        ax.plot(
            [x],
            [y],
            marker=_ARROWS[way],
            color=style["color"],
            ls="none",
            zorder=style["zorder"],
            **whole,
        )


def _words(
    a: Analysis,
    figure: Figure,
    title: str,
    subtitle: str,
    estimates: Sequence[Estimate],
    notes: Sequence[str],
) -> None:
    """As `_frame`, the foot ending with n and how to read the bars."""
    n = sorted({e.n for e in estimates})
    said = [f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    said[0] += ": one block, no interval" if n[-1] == 1 else " blocks"
    said += (
        ["bars: 95 % Student t interval over blocks, on logs"]
        if any(e.shown for e in estimates)
        else []
    )
    said += (
        [f"dots: single blocks, as fewer than {MIN_BLOCKS} bear no interval"]
        if any(map(dots, estimates))
        else []
    )
    _frame(
        figure,
        title,
        subtitle,
        [*notes, f"{clean(machine(a.loaded.host), 120)}. {'; '.join(said)}."],
    )


def _cut_note(estimates: Sequence[Estimate], frame: tuple[float, float]) -> list[str]:
    """What a figure owes its reader where a bar leaves the frame."""
    return (
        ["Arrows: the interval goes on; the tables have its end."]
        if any(cut(e, *frame) for e in estimates)
        else []
    )


def _frame(figure: Figure, title: str, subtitle: str, foot: Sequence[str]) -> None:
    """Finding on top, conditions below it, and at the foot what else a reader must know, such as
    machine and n.
    """
    title, subtitle, height = clean(title, 160), clean(subtitle, 200), figure.get_figheight()
    fits = (
        72 * 0.97 * figure.get_figwidth() / (0.64 * len(title))
    )  # a bold letter is 0.64 of its size wide
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=min(11, fits), fontweight="bold")
    fits = 72 * 0.97 * figure.get_figwidth() / (0.53 * len(subtitle))
    figure.text(0.01, 1 - 0.32 / height, subtitle, va="top", fontsize=min(9, fits), color=_GREY)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.5 / height))  # type: ignore[union-attr, call-arg]
    figure.supxlabel(
        "\n".join(clean(line, 250) for line in foot), x=0.01, ha="left", fontsize=7, color=_GREY
    )


def _legend(ax: Axes, values: Mapping[str, str] | None = None, heading: str = "") -> None:
    """To the right of the axes; `values` are written below their cells' names, what they are of in
    the heading.
    """
    axes: list[Axes] = ax.get_figure(root=True).axes  # type: ignore[union-attr]
    there = {
        name: handle
        for each in axes
        for handle, name in zip(*each.get_legend_handles_labels(), strict=True)
    }
    names = sorted(there, key=lambda name: name.startswith("ideal"))
    texts = [f"{name}\n{values[name]}" if values and name in values else name for name in names]
    style: Any = {
        "loc": "center left",
        "bbox_to_anchor": (1.02, 0.5),
        "title": heading or None,
        "alignment": "left",
    }
    ax.legend(
        [there[name] for name in names],
        texts,
        title_fontsize=8,
        fontsize=8,
        handlelength=2.6,
        **style,
    )


def _at_last(rows: Sequence[Row], y: Callable[[Row], Estimate]) -> dict[str, Estimate]:
    """Each cell's value at the largest point."""
    last = max(size(r.curve, r.point) for r in rows)
    return {r.point.cell: y(r) for r in rows if size(r.curve, r.point) == last}


def _conditions(a: Analysis, curve: str, rows: Sequence[Row]) -> str:
    fixed = rows[0].point.fixed(curve)
    what = {
        "weak": f"{fixed} images per rank",
        "strong": f"{fixed} images per step in all",
        "batch": ranks(fixed),
    }[curve]
    settings = sorted({r.point.settings for r in rows} - {NO_SETTINGS})
    longest: tuple[str, ...] = max(
        (r.point.variant for r in rows), key=len
    )  # that of `single` says nothing of an exchange
    return "; ".join([what, ", ".join([workload(a), *longest]), f"settings: {', '.join(settings)}"])


def _finding(last: Mapping[str, Estimate], form: Callable[[float], str]) -> str:
    """Values at the largest point, where all have an interval and no more than two would crowd a
    title.
    """
    if any(e.shown is None for e in last.values()):
        return f": n = {max(e.n for e in last.values())}, too few blocks for an interval"
    return (
        ": " + ", ".join(f"{cell} {short(e, form)}" for cell, e in last.items())
        if len(last) <= 2
        else ""
    )


def _throughput(a: Analysis, rows: list[Throughput]) -> Figure:
    curve = rows[0].curve
    figure = Figure(figsize=(7.2, 3.9))
    ax = figure.subplots()
    values, shown = [size(curve, r.point) for r in rows], [r.images_per_s for r in rows]
    base = (
        next((r.images_per_s.value for r in rows if r.point.cell == "single"), None)
        if curve != "batch"
        else None
    )
    log_y = curve != "batch" and is_log(values)
    frame = _frame_of(shown, log_y, *([base * max(values)] if base else []))
    _series(ax, rows, _cells(rows), frame, lambda r: r.images_per_s)
    notes = [
        "To compare cells use the paired ratio: these bars hold the machine's drift between "
        "blocks, which pairing removes."
    ]
    if base:
        _ideal(ax, values, base)
        notes.append(f"Ideal: ranks x {rate(base)} images/s of the single process.")
    _apply(ax, values, frame, log_y)
    ax.set_xlabel("images per rank" if curve == "batch" else "ranks")
    ax.set_ylabel("throughput (images/s)")
    last = _at_last(rows, lambda r: r.images_per_s)
    place = f"{max(values)} images per rank" if curve == "batch" else ranks(max(values))
    _legend(ax, {cell: short(e, rate) for cell, e in last.items()}, f"images/s at {place}")
    title = (
        f"Images/s at "
        f"{place}{'' if curve == 'batch' else f', {curve} scaling'}{_finding(last, rate)}"
    )
    _words(a, figure, title, _conditions(a, curve, rows), shown, [*notes, *_cut_note(shown, frame)])
    return figure


def _ideal(ax: Axes, values: Sequence[int], one: float) -> None:
    at = sorted(set(values))
    ax.plot(at, [one * v for v in at], "--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)


def _scaling(a: Analysis, rows: list[Scaled], weak: bool) -> Figure:
    """Two panels with one y axis: against the common baseline, and against each cell's own, which
    tells another story.
    """
    figure = Figure(figsize=(8.4, 3.9))
    panels = figure.subplots(1, 2, sharey=True)

    def y(r: Scaled) -> Estimate:
        return r.efficiency if weak else r.speedup

    values = [1, *(r.point.world_size for r in rows)]
    log_y = not weak and is_log(values)
    frame = _frame_of([y(r) for r in rows], log_y, 1.0, 1.0 if weak else max(values))
    for ax, kind, heading in zip(
        panels,
        ("common", "own"),
        ("against one plain process", "against its own one rank"),
        strict=True,
    ):
        shown = [r for r in rows if r.kind == kind] + (_anchors(rows) if kind == "own" else [])
        _series(ax, shown, _cells(rows), frame, y)
        if weak:
            ax.axhline(1, ls="--", color=_GREY, linewidth=1.1, label="ideal", zorder=1)
        else:
            _ideal(ax, values, 1.0)
        _apply(ax, values, frame, log_y)
        ax.set_title(heading if shown else f"{heading}: not measured", fontsize=9)
        ax.set_xlabel("ranks")
    panels[0].set_ylabel("weak efficiency T(1)/T(p)" if weak else "speed-up T(1)/T(p)")
    if weak:
        panels[0].yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    common = [r for r in rows if r.kind == "common"]
    last, form = _at_last(common or rows, y), percent if weak else (lambda x: f"{x:.2f}")
    place = ranks(max(r.point.world_size for r in common or rows))
    against = "against one\nplain process" if common else "against\nits own one rank"
    _legend(panels[1], {cell: short(e, form) for cell, e in last.items()}, f"at {place}, {against}")
    notes = (
        [f"Common baseline: {_baseline(common[0])}."] if common else ["No usable common baseline."]
    )
    title = f"{'Weak efficiency' if weak else 'Strong speed-up'} at {place}{_finding(last, form)}"
    notes += _cut_note([y(r) for r in rows], frame)
    _words(a, figure, title, _conditions(a, rows[0].curve, rows), [y(r) for r in rows], notes)
    return figure


def _anchors(rows: Sequence[Scaled]) -> list[Scaled]:
    """Each cell against itself at one rank: 1 by definition, so that its line starts where it is
    measured from.
    """
    one = Estimate(1.0, None, None, 1)
    own = {r.baseline: r for r in rows if r.kind == "own"}
    return [replace(r, point=baseline, efficiency=one, speedup=one) for baseline, r in own.items()]


def _baseline(row: Scaled) -> str:
    b = row.baseline
    return (
        f"{b.cell}, {ranks(b.world_size)}, {b.samples_per_step} images per step: "
        f"{rate(row.baseline_images_per_s.value)} images/s"
    )


def _ratio(a: Analysis, rows: list[Comparison]) -> Figure:
    """Forest plot: one row per point, the margin shaded, 1 marked."""
    rows = sorted(
        rows,
        key=lambda c: (
            c.transport != "mpi",
            c.transport,
            CURVES.index(c.curves[0]),
            c.world_size,
            c.samples_per_rank,
        ),
    )
    figure = Figure(figsize=(7.2, 1.9 + 0.36 * len(rows)))
    ax = figure.subplots()
    margin, found = a.loaded.study.margin, [c.paired.estimate for c in rows]
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#009E73", alpha=0.15, linewidth=0)
    ax.axvline(1, color=_GREY, linewidth=1)
    frame = reach(found, 1 / (1 + margin), 1 + margin)
    for i, (c, e) in enumerate(zip(rows, found, strict=True)):
        style = look(c.cells[1], [c.cells[1]]) | {"markersize": 6, "capsize": 3}
        ax.errorbar([e.value], [i], xerr=bars([e]), **style)
        _dots(ax, [(block, i) for block in dots(e)], style)
        _arrows(
            ax,
            [(end, i) for end in cut(e, *frame)],
            [("x", int(end == frame[1])) for end in cut(e, *frame)],
            style,
        )
        text = f"{short(e, ratio)}{f', n = {e.n}' if e.shown else ''}\n{label(c)}"
        ax.annotate(text, (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    ax.set_xscale("log")  # half and double are equally far from 1
    ax.minorticks_off()
    ax.set_xticks(ratio_ticks(*frame), [f"{t:g}" for t in ratio_ticks(*frame)])
    ax.set_xlim(*frame)
    names = [
        f"{'primary: ' if c.primary else ''}{ranks(c.world_size)}, {c.samples_per_rank} per rank\n"
        f"{c.transport}: {', '.join(c.curves)}"
        for c in rows
    ]
    ax.set_yticks(range(len(rows)), names, fontsize=8)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(
        "images/s of Horovod over images/s of DDP, same transport, paired by block\n(left of 1: "
        "DDP faster; right: Horovod)"
    )
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    work = ", ".join([workload(a), *rows[0].variant])
    subtitle = f"{work}; settings: {rows[0].settings}; shaded: equivalent within {100 * margin:g} %"
    _words(
        a, figure, f"Horovod against DDP: {tally(rows)}", subtitle, found, _cut_note(found, frame)
    )
    return figure


def _calibration(a: Analysis, batch: int) -> Figure:
    """Every calibration: a row for each node, the slowest on top, in it a line from start to end
    for each job.
    """
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
            for when, images_per_s in rates.items():
                ax.plot([images_per_s], [at], zorder=3, **_ROUND[when])
    median = nodes[0].images_per_s / nodes[0].relative
    ax.axvline(median, color=_GREY, linewidth=1.1, zorder=1, label="median node")
    ax.axvline(
        median * (1 - FLOOR),
        color=_GREY,
        linewidth=1.1,
        ls="--",
        zorder=1,
        label=f"{100 * FLOOR:g} % below it",
    )
    for when, style in _ROUND.items():
        ax.plot([], [], label=f"job's {when}", **style)
    ax.set_yticks(
        range(len(nodes)), [f"{clean(n.node, 40)}{', slow' if n.slow else ''}" for n in nodes]
    )
    for label_, node in zip(ax.get_yticklabels(), nodes, strict=True):
        label_.set_fontweight("bold" if node.slow else "normal")
    ax.set_ylim(len(nodes) - 0.4, -0.6)
    ax.set_xlabel("images/s of one plain process on the node")
    ax.set_ylabel("node")
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")
    ax.hlines(
        [row + 0.5 for row in range(len(nodes) - 1)],
        0,
        1,
        transform=ax.get_yaxis_transform(),
        color="#e6e6e6",
        linewidth=0.8,
    )
    _legend(ax)
    slow = [
        f"{clean(n.node, 40)} at {100 * n.relative:.0f} % of the median node"
        for n in judged
        if n.slow
    ]
    found = (
        f"no slow node among {len(judged)}"
        if len(judged) >= MIN_NODES
        else f"not judged below {MIN_NODES} nodes"
    )
    title = f"Slow nodes: {', '.join(slow)}" if slow else f"Calibration: {found}"
    if drifting := sum(job.warn for job in a.calibrated.jobs):
        title += f"; a node drifts in {drifting} of {count(len(a.calibrated.jobs), 'job')}"
    bad = sum(not c.usable for c in a.calibrated.all)
    of = (
        f"{count(len({c.node for c in good}), 'node')}, "
        f"{count(len({c.allocation for c in good}), 'job')}"
    )
    counted = f"n = {count(len(good), 'calibration')}, {of}; {bad} failed or missing"
    rule = (
        f"Slow: median and at least {100 * MOST:g} % of the calibrations more than "
        f"{100 * FLOOR:g} % below the median node, "
        f"and modified z-score below -{MAX_SCORE}."
    )
    subtitle = (
        f"one plain process on each node of a job, all at once; {batch} images per step; "
        f"{workload(a)}"
    )
    _frame(figure, title, subtitle, [rule, f"{clean(machine(a.loaded.host), 120)}. {counted}."])
    return figure
