"""What every figure looks like and says: marks with intervals, axes, legend, titles and foot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from bench.study.stats import MIN_BLOCKS
from plots.analyse.study import Analysis, machine
from plots.analyse.variants import Variant
from plots.report.answer import emulation
from plots.report.axes import (
    Estimates,
    Extent,
    Preset,
    Style,
    bars,
    cut,
    dots,
    ends,
    is_log,
    legible,
    preset,
)
from plots.report.figures.hover import name_value
from plots.report.format import clean, short

GREY = "#666666"
_POINTS = 9  # of a letter on a page
STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "svg.fonttype": "none",  # text that can be searched and read aloud
    "font.size": _POINTS,
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "ps.fonttype": 42,
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_SMALL = 5 / 6  # of a letter
_BOLD = 1.42  # of a title: how wide its letters are
_NARROW_IN = 6.0  # a figure of less has its legend below
_HANDLE = 6  # letters: the line before a name
GUIDE: Any = {"color": GREY, "linewidth": 1.1, "zorder": 1}  # lines that are no measurement
_ARROWS = {"x": (4, 5), "y": (7, 6)}  # matplotlib's carets at the low and the high end of an axis


def drawing(one: Preset) -> AbstractContextManager[None]:
    """Provide matplotlib's settings for a preset."""
    return rc_context({**STYLE, "font.size": one.letters * _POINTS})


def panels(
    width_in: float, height_in: float, columns: int = 1, share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """Make axes beside one another in a figure of this size, or as wide as the preset."""
    as_wide = preset().width_in or width_in
    # a narrow figure keeps its rows readable, a wide one its shape
    height_in *= max(as_wide / width_in, 0.8)
    figure = Figure(figsize=(as_wide, height_in))
    grid: Any = figure.subplots(1, columns, sharey=share_y, squeeze=False)
    for ax in grid[0]:  # marks that are set later too
        ax.tick_params(labelsize=preset().letters * _POINTS)
    return figure, list(grid[0])


def name_axes(ax: Axes, x: str, y: str = "", title: str = "") -> None:
    """Write labels and title, on more lines where the panel is narrow."""
    figure: Any = ax.get_figure(root=True)
    room_in = (0.6 + 0.2 / _columns(ax)) * figure.get_figwidth() / _columns(ax)
    ax.set_xlabel(wrapped(x, room_in))
    ax.set_ylabel(wrapped(y, 0.6 * figure.get_figheight()))
    ax.set_title(wrapped(title, room_in))


def keep_x_label_inside(ax: Axes, text: str) -> None:
    """Wrap the label of a narrow figure anew where its axes stand so far aside that it is cut."""
    figure: Any = ax.get_figure(root=True)
    if _width(ax) >= _NARROW_IN:
        return
    figure.draw_without_rendering()  # only a layout tells where the axes are
    whole, middle = figure.bbox.width, sum(ax.get_window_extent().intervalx) / 2
    room = 2 * min(middle, whole - middle)
    if ax.xaxis.label.get_window_extent().width > room:
        ax.set_xlabel(wrapped(text, 0.95 * room / figure.dpi))


def most_marks(ax: Axes) -> int:
    """Count the marks that an axis of ratios has room for."""
    narrow = _width(ax) < _NARROW_IN  # names and numbers of rows leave it little
    return max(2, min(8, letters_in((0.2 if narrow else 0.45) * _width(ax)) // 5))


def _columns(ax: Axes) -> int:
    spec = ax.get_subplotspec()
    return spec.get_gridspec().ncols if spec else 1


def _width(ax: Axes) -> float:
    figure: Any = ax.get_figure(root=True)
    return float(figure.get_figwidth())


def mark(
    ax: Axes,
    at: Sequence[float],
    values: Estimates,
    frame: Extent,
    style: Style,
    form: Callable[[float], str],
    axis: str = "y",
    unit: str = "",
) -> ErrorbarContainer:
    """Draw values along `axis` with intervals, or dots for few blocks; arrows where the frame cuts.

    A pointer on one shows it by `form` and in `unit`, as tables do.
    """

    def place(where: Any, values: Any) -> tuple[Any, Any]:
        return (where, values) if axis == "y" else (values, where)

    bare = {"color": style["color"], "zorder": style["zorder"], "ls": "none"}
    dot = {"marker": "o", "markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
    arrow = {"markersize": 4 + 0.4 * style["markersize"], "clip_on": False}
    x, y = place(at, [e.value for e in values])
    drawn = ax.errorbar(x, y, **{f"{axis}err": bars(values), **style})
    for where, e in zip(at, values, strict=True):
        if blocks := dots(e):
            ax.plot(*place([where] * len(blocks), blocks), **bare, **dot)
        name = f"{style['label']}: " if "label" in style else ""
        n = f", n = {e.n}" if e.shown else ""
        name_value(ax, *place(where, e.value), f"{name}{short(e, form)}{unit}{n}")
        for end in cut(e, frame):
            ax.plot(*place([where], [frame[end]]), marker=_ARROWS[axis][end], **bare, **arrow)
    return drawn


def spread(ax: Axes, row: float, values: Sequence[float], style: Style) -> None:
    """Draw single blocks around a row, from top to bottom, so that a drift is seen as a slope."""
    step = 0.6 / max(1, len(values) - 1)
    at = [row - 0.3 + step * i for i in range(len(values))]
    ax.plot(values, at, "o", color=style["color"], markersize=2.6, alpha=0.55, markeredgewidth=0)


def scale_axes(ax: Axes, values: Sequence[int], frame: Extent, log_y: bool) -> None:
    """Put ranks or batches at their true places on the x axis; set ticks and limits of both."""
    log_x = log_y or is_log(values)
    if log_x:
        ax.set_xscale("log", base=2)
    if log_y:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    ax.minorticks_off()
    ax.set_xticks(marks := marks_along(ax, values, log_x), [str(v) for v in marks])
    ax.set_xlim(*ends(values, log_x))
    ax.set_ylim(*frame)


def marks_along(ax: Axes, values: Sequence[int], log: bool) -> list[int]:
    """Choose those of the values for whose marks the axis is long enough."""
    return legible(values, log, letters_in(0.6 * _width(ax) / _columns(ax)))


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name rows from top to bottom on the y axis, and draw a grid for values along the other."""
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")


def legend(
    ax: Axes, values: Mapping[str, str] | None = None, heading: str = "", above: bool = False
) -> None:
    """Draw the legend to the right of the axes or above them, below a narrow figure; `values`,
    which `heading` explains, stand below cells' names.
    """
    figure: Any = ax.get_figure(root=True)
    entries = [each.get_legend_handles_labels() for each in figure.axes]
    handles = {name: handle for both in entries for handle, name in zip(*both, strict=True)}
    names = sorted(handles, key=lambda name: name.startswith("ideal"))
    if not names:
        return
    shown = {name: preset().labels.get(name, name) for name in names}
    texts = [f"{shown[x]}\n{values[x]}" if values and x in values else shown[x] for x in names]
    whole: Any = {"handles": [handles[name] for name in names], "title": heading or None}
    if _width(ax) >= _NARROW_IN:
        place: Any = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "alignment": "left"}
        over: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 4}
        ax.legend(labels=texts, handlelength=2.6, **whole, **(over if above else place))
        return
    letters = letters_in(_width(ax), _SMALL)
    longest = max(len(line) for text in texts for line in text.split("\n"))
    columns = 2 if 2 * (longest + _HANDLE) < letters else 1
    texts = [wrapped(text, _width(ax) * (1 - _HANDLE / letters), _SMALL) for text in texts]
    rows = [texts[i : i + columns] for i in range(0, len(texts), columns)]
    lines = sum(max(text.count("\n") + 1.5 for text in row) for row in rows)
    lines += heading.count("\n") + 2
    figure.set_figheight(figure.get_figheight() + lines * _line_in(_SMALL))
    figure.legend(labels=texts, loc="outside lower center", ncols=columns, **whole)


def add_titles(
    a: Analysis,
    figure: Figure,
    variants: Iterable[Variant],
    title: str,
    subtitle: str,
    notes: Sequence[str],
    counted: str,
) -> None:
    """Write the finding on top, conditions below, at the foot notes, machine and what was counted.

    `variants` are those of all that is drawn: the figure's label is their mark of emulation.
    """
    figure.set_label(emulation(a, variants))
    width, one = 0.97 * figure.get_figwidth(), preset()
    own_title = one.title or (title if one.titled else "")
    title = ": ".join(filter(None, (str(figure.get_label()), own_title)))
    foot = "\n".join(
        wrapped(clean(line, 250), width, _SMALL)
        for line in (*notes, f"{clean(machine(a.loaded.host), 120)}. {counted}.")
    )
    heads: list[tuple[str, float, dict[str, Any]]] = [
        (wrapped(clean(title, 160), width, _BOLD), 1.2, {"fontweight": "bold", "fontsize": "large"})
    ]
    if one.titled:
        heads.append((wrapped(clean(subtitle, 200), width), 1.0, {"color": GREY}))
    narrow = one.width_in is not None and one.width_in < _NARROW_IN
    small: dict[str, Any] = {"color": GREY, "fontsize": "small"}
    if one.titled and narrow:  # the legend is below it
        heads.append((foot, _SMALL, small))
    heights = [size * _line_in() * (text.count("\n") + bool(text)) for text, size, _ in heads]
    height = figure.get_figheight() + sum(heights) - 0.35  # of two lines on a page
    figure.set_figheight(height)
    for i, (text, _, style) in enumerate(heads):
        figure.text(0.01, 1 - (0.06 + sum(heights[:i])) / height, text, va="top", **style)
    if one.titled and not narrow:
        figure.supxlabel(foot, x=0.01, ha="left", **small)
    rect = (0, 0, 1, 1 - (0.1 + sum(heights)) / height)
    figure.get_layout_engine().set(rect=rect)  # type: ignore[union-attr, call-arg]


def caption(
    a: Analysis,
    figure: Figure,
    variants: Iterable[Variant],
    title: str,
    subtitle: str,
    notes: Sequence[str],
    estimates: Estimates,
    frame: Extent,
    unit: str = "launches",
) -> None:
    """Do as `add_titles`; the foot ends with n launches and how to read the bars, over the unit."""
    n = sorted({e.n for e in estimates})
    remarks = [f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    remarks[0] += ": one launch, no interval" if n[-1] == 1 else " launches"
    if any(e.shown for e in estimates):
        remarks.append(f"bars: 95 % Student t interval over {unit}, on logs")
    if any(map(dots, estimates)):
        remarks.append(f"dots: single launches, as fewer than {MIN_BLOCKS} bear no interval")
    if any(cut(e, frame) for e in estimates):
        notes = [*notes, "Arrows: the interval goes on; the tables have its end."]
    add_titles(a, figure, variants, title, subtitle, notes, "; ".join(remarks))


def letters_in(width_in: float, size: float = 1.0) -> int:
    """Estimate how many letters fit, `size` times as large as usual, in a width in inches."""
    return int(72 * width_in / (0.56 * size * preset().letters * _POINTS))


def _line_in(size: float = 1.0) -> float:
    """Estimate how high a line of such letters is, in inches."""
    return 1.25 * size * preset().letters * _POINTS / 72


def wrapped(text: str, width_in: float, size: float = 1.0) -> str:
    """Wrap each line to as many as it needs; '2 %' and both ends of an interval stay together."""
    letters = max(12, letters_in(width_in, size))
    glued = re.sub(r" (?=%|[-\d.,]+\])", "\xa0", text)
    lines = (part for line in glued.split("\n") for part in wrap(line, letters))
    return "\n".join(lines).replace("\xa0", " ")
