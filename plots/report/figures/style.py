"""Look of every figure: panels, marks with intervals, rows, legend, title and foot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from markupsafe import escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.stats import MIN_LAUNCHES
from plots.analyse.study import Analysis, machine, workload
from plots.report.axes import Estimates, Extent, Preset, Style, bars, cut, dots, is_log, preset
from plots.report.findings import emulation
from plots.report.format import clean, short

GREY = "#666666"
_POINTS = 9  # of a letter on a page
STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "svg.fonttype": "none",  # text that can be searched and read aloud
    "font.size": _POINTS,
    **dict.fromkeys(("figure.titlesize", "figure.labelsize"), "medium"),
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "legend.fontsize"), "medium"),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), "medium"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "ps.fonttype": 42,
    "text.parse_math": False,  # a dollar in a name is a dollar
}
GUIDE: Any = {"color": GREY, "linewidth": 1.1, "zorder": 1}  # lines that are no measurement
_ARROWS = {"x": (4, 5), "y": (7, 6)}  # matplotlib's carets at the low and the high end of an axis
_MARK = "value-"  # begins an identifier, which holds the text that takes its place
_NAMED = re.compile(rf'<g id="{_MARK}([0-9a-f]+)">')


def drawing(one: Preset) -> AbstractContextManager[None]:
    """Provide matplotlib's settings for a preset."""
    return rc_context({**STYLE, "font.size": one.letters * _POINTS})


def panels(
    rows: int, columns: int, row_in: float, names: int = 0, share_y: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """Make axes in rows and columns, as wide as the preset; a row of them is `row_in` high.

    `names` in a legend have lines below them; title and foot, which `caption` adds, room besides.
    """
    one = preset()
    lines = -(-names // _names_in_line())
    ratios = [row_in] * rows + [0.21 * lines] * bool(lines)
    room = 0.5 + (1.7 if one.narrow else 0.9) * one.titled
    figure = Figure(figsize=(one.width_in, one.letters * (sum(ratios) + room)))
    spec = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
    grid = [[figure.add_subplot(spec[i, j]) for j in range(columns)] for i in range(rows)]
    for line in grid:
        for ax in line[1:] if share_y else ():
            ax.sharey(line[0])
            ax.tick_params(labelleft=False)
    if lines:
        figure.add_subplot(spec[rows, :], label="legend").set_axis_off()
    return figure, grid


def _names_in_line() -> int:
    return 2 if preset().narrow else 3


def mark(
    ax: Axes,
    at: Sequence[float],
    values: Estimates,
    frame: Extent,
    style: Style,
    form: Callable[[float], str],
    axis: str = "y",
) -> None:
    """Draw values along `axis` with intervals, dots for few launches, arrows where the frame cuts.

    A pointer on one shows it by `form`, as tables do.
    """

    def place(where: Any, values: Any) -> tuple[Any, Any]:
        return (where, values) if axis == "y" else (values, where)

    bare = {"color": style["color"], "zorder": style["zorder"], "ls": "none"}
    dot = {"marker": "o", "markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
    arrow = {"markersize": 4 + 0.4 * style["markersize"], "clip_on": False}
    drawn = ax.errorbar(
        *place(at, [e.value for e in values]), **{f"{axis}err": bars(values), **style}
    )
    drawn.lines[0].set_clip_on(False)  # a marker at the frame is whole
    for where, e in zip(at, values, strict=True):
        if launches := dots(e):
            ax.plot(*place([where] * len(launches), launches), **bare, **dot)
        for end in cut(e, frame):
            ax.plot(*place([where], [frame[end]]), marker=_ARROWS[axis][end], **bare, **arrow)
        # unseen, and large enough for a pointer
        n = f", n = {e.n}" if e.shown else ""
        text = clean(f"{style.get('label', '')}: {short(e, form)}{n}".removeprefix(": "))
        unseen: Any = {"s": 120, "color": "black", "alpha": 0}
        ax.scatter(*place([where], [e.value]), gid=_MARK + text.encode().hex(), **unseen)


def with_names(svg: str) -> str:
    """Give every named mark of the SVG a <title> in place of its identifier."""
    return _NAMED.sub(lambda m: f"<g><title>{escape(bytes.fromhex(m[1]).decode())}</title>", svg)


def scale_axes(ax: Axes, values: Iterable[int], frame: Extent, log_y: bool) -> None:
    """Put ranks or batches at their true places on the x axis; set ticks and limits of both."""
    at = sorted({*values})
    if log_y or is_log(at):
        ax.set_xscale("log", base=2)
    if log_y:
        ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.minorticks_off()
    ax.margins(x=0.12)
    marks = at[:: -(-len(at) // 6)] if len(at) > 6 else at
    ax.set_xticks(marks, [str(v) for v in marks])
    ax.set_ylim(*frame)


def name_rows(ax: Axes, names: Sequence[tuple[str, str]]) -> None:
    """Write above each row, from top to bottom, its name and what was found: side by side where
    the figure is wide, else on two lines.
    """
    ax.set_ylim(len(names) - 0.55, -0.95)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x")
    above: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    offset = 7 * preset().letters
    for row, (name, value) in enumerate(names):
        if preset().narrow:
            both = "\n".join(filter(None, (name, value)))
            ax.annotate(both, (0, row), (0, offset), va="bottom", wrap=True, **above)
        else:
            ax.annotate(name, (0, row), (0, offset), va="bottom", **above)
            ax.annotate(value, (1, row), (0, offset), va="bottom", ha="right", **above)


def legend(figure: Figure, columns: int = 0) -> None:
    """Draw one legend of all axes below them, without what stands there twice."""
    entries = [each.get_legend_handles_labels() for each in figure.axes]
    handles = {name: handle for both in entries for handle, name in zip(*both, strict=True)}
    names = sorted(handles, key=lambda name: name.startswith("ideal"))
    drawn = [handles[name] for name in names]
    figure.axes[-1].legend(drawn, names, loc="center", ncols=columns or _names_in_line())


def caption(
    a: Analysis, figure: Figure, points: Iterable[Any], title: str, notes: Sequence[str]
) -> None:
    """Write what is drawn on top, and at the foot notes and the machine; both wrap by themselves.

    `points` are those of all that is drawn: the figure's label is their mark of emulation.
    """
    one = preset()
    figure.set_label(emulation(a, points))
    title = ": ".join(filter(None, (str(figure.get_label()), title * one.titled)))
    if title:
        figure.suptitle(clean(title, 160), x=0.01, ha="left", wrap=True, fontweight="bold")
    if one.titled:
        foot = " ".join(clean(note, 250) for note in notes)
        if one.alone:
            foot = f"{foot} {workload(a)}. {machine(a.loaded.host)}."
        figure.supxlabel(clean(foot, 600), x=0.01, ha="left", wrap=True, color=GREY)


def bars_explained(estimates: Estimates, frame: Extent, unit: str = "launches") -> str:
    """Say what n counts and how to read the bars, over the unit of the intervals."""
    n = sorted({e.n for e in estimates})
    remarks = [f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    remarks[0] += ": one launch, no interval" if n[-1] == 1 else " launches"
    if any(e.shown for e in estimates):
        remarks.append(f"bars: 95 % intervals over {unit}")
    if any(map(dots, estimates)):
        remarks.append(f"dots: single launches, as fewer than {MIN_LAUNCHES} bear no interval")
    if any(cut(e, frame) for e in estimates):
        remarks.append("arrows: the interval goes on")
    return f"{'; '.join(remarks)}."
