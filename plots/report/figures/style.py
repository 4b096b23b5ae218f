"""What every figure looks like and says: marks with intervals, axes, legend, titles and foot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from bench.study.stats import MIN_BLOCKS
from plots.analyse.study import Analysis, machine
from plots.analyse.variants import Variant
from plots.report.answer import emulation
from plots.report.axes import Estimates, Frame, Style, bars, cut, dots, ends, is_log
from plots.report.format import clean

GREY = "#666666"
STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "svg.fonttype": "none",  # text that can be searched and read aloud
    "font.size": 9,
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


def mark(
    ax: Axes, at: Sequence[float], values: Estimates, frame: Frame, style: Style, axis: str = "y"
) -> ErrorbarContainer:
    """Values along `axis` with intervals, or dots for few blocks; arrows where the frame cuts."""

    def place(where: Sequence[float], values: Sequence[float]) -> tuple[Any, Any]:
        return (where, values) if axis == "y" else (values, where)

    bare = {"color": style["color"], "zorder": style["zorder"], "ls": "none"}
    dot = {"marker": "o", "markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
    arrow = {"markersize": 4 + 0.4 * style["markersize"], "clip_on": False}
    x, y = place(at, [e.value for e in values])
    drawn = ax.errorbar(x, y, **{f"{axis}err": bars(values), **style})
    for where, e in zip(at, values, strict=True):
        if blocks := dots(e):
            ax.plot(*place([where] * len(blocks), blocks), **bare, **dot)
        for end in cut(e, frame):
            ax.plot(*place([where], [frame[end]]), marker=_ARROWS[axis][end], **bare, **arrow)
    return drawn


def spread(ax: Axes, row: float, values: Sequence[float], style: Style) -> None:
    """Values of single blocks around a row, from top to bottom: a drift is seen as a slope."""
    step = 0.6 / max(1, len(values) - 1)
    at = [row - 0.3 + step * i for i in range(len(values))]
    ax.plot(values, at, "o", color=style["color"], markersize=2.6, alpha=0.55, markeredgewidth=0)


def scale_axes(ax: Axes, values: Sequence[int], frame: Frame, log_y: bool) -> None:
    """Ranks or batches at their true places on the x axis; ticks and limits of both."""
    log_x = log_y or is_log(values)
    if log_x:
        ax.set_xscale("log", base=2)
    if log_y:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    ax.minorticks_off()
    marks = sorted(set(values))
    ax.set_xticks(marks, [str(v) for v in marks])
    ax.set_xlim(*ends(values, log_x))
    ax.set_ylim(*frame)


def name_rows(ax: Axes, names: Sequence[str], **style: Any) -> None:
    """Rows from top to bottom on the y axis, and a grid for values along the other."""
    ax.set_yticks(range(len(names)), names, **style)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=True, axis="x")
    ax.grid(visible=False, axis="y")


def legend(ax: Axes, values: Mapping[str, str] | None = None, heading: str = "") -> None:
    """To the right of the axes; `values`, which `heading` explains, stand below cells' names."""
    axes: list[Axes] = ax.get_figure(root=True).axes  # type: ignore[union-attr]
    entries = [each.get_legend_handles_labels() for each in axes]
    handles = {name: handle for both in entries for handle, name in zip(*both, strict=True)}
    names = sorted(handles, key=lambda name: name.startswith("ideal"))
    texts = [f"{name}\n{values[name]}" if values and name in values else name for name in names]
    place: Any = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "alignment": "left"}
    size: Any = {"title_fontsize": 8, "fontsize": 8, "handlelength": 2.6}
    ax.legend([handles[name] for name in names], texts, title=heading or None, **place, **size)


def add_titles(
    a: Analysis,
    figure: Figure,
    variants: Iterable[Variant],
    title: str,
    subtitle: str,
    notes: Sequence[str],
    counted: str,
) -> None:
    """Finding on top, conditions below it, at the foot notes, the machine and what was counted.

    `variants` are those of all that is drawn: the figure's label is their mark of emulation.
    """
    figure.set_label(emulation(a, variants))
    subtitle, height = clean(subtitle, 200), figure.get_figheight()
    figure.text(0.01, 1 - 0.08 / height, "", va="top", fontweight="bold")
    set_title(figure, title)
    below = figure.text(0.01, 1 - 0.32 / height, subtitle, va="top", fontsize=9, color=GREY)
    shrink_to(below, 0.97 * figure.get_figwidth())
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.5 / height))  # type: ignore[union-attr, call-arg]
    foot = [*notes, f"{clean(machine(a.loaded.host), 120)}. {counted}."]
    text = "\n".join(clean(line, 250) for line in foot)
    label = figure.supxlabel(text, x=0.01, ha="left", fontsize=7, color=GREY)
    label.set_text(wrapped(text, letters_in(0.97 * figure.get_figwidth(), label)))


def set_title(figure: Figure, title: str) -> None:
    """Write the finding of a figure that has one, behind the figure's mark."""
    line = figure.texts[0]
    line.set_text(clean(marked_title(figure, title), 160))
    line.set_fontsize(11)
    shrink_to(line, 0.97 * figure.get_figwidth())


def shrink_to(text: Text, width_in: float) -> None:
    """Make letters smaller until the text is not wider; whole pixels make that no rule of three."""
    figure: Figure = text.get_figure(root=True)  # type: ignore[assignment]
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    while text.get_window_extent(renderer).width > width_in * figure.dpi:
        text.set_fontsize(0.98 * float(text.get_fontsize()))


def marked_title(figure: Figure, title: str) -> str:
    """A title behind the figure's mark of emulation, if it has one."""
    return ": ".join(filter(None, (str(figure.get_label()), title)))


def caption(
    a: Analysis,
    figure: Figure,
    variants: Iterable[Variant],
    title: str,
    subtitle: str,
    notes: Sequence[str],
    estimates: Estimates,
    frame: Frame,
    unit: str = "launches",
) -> None:
    """As `add_titles`, the foot ending with n launches and how to read the bars, over the unit."""
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


def letters_in(width_in: float, text: Text) -> int:
    """About how many letters of this text's size fit."""
    return int(72 * width_in / (0.5 * float(text.get_fontsize())))


def wrapped(text: str, letters: int) -> str:
    """Each line of it on as many as it needs."""
    return "\n".join(part for line in text.split("\n") for part in wrap(line, letters))
