"""Look of every figure: size, cells, panels, marks with intervals, rows, legend, title and foot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from markupsafe import escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.backends import catalogue
from bench.backends.facts import Look
from bench.study.stats import MIN_LAUNCHES, Estimate
from plots.analyse.study import Analysis, machine, workload
from plots.report.format import clean, short
from plots.report.labels import emulation, transport_order

Estimates = Sequence[Estimate]
Extent = tuple[float, float]  # both ends of an axis
Style = dict[str, Any]  # as matplotlib takes it
_SPARE = (  # for cells without a look of their own in the catalogue of backends
    Look(colour="#999933", marker="h", marker_size=9.5, line_width=2.2),
    Look(colour="#882255", marker="*", marker_size=7.5, line_width=1.9),
    Look(colour="#44AA99", marker="p", marker_size=6.0, line_width=1.7),
)
_LINES: dict[str, Any] = {"gloo": (0, (5, 2)), "nccl": (0, (5, 1.5, 1, 1.5))}  # by transport
# times the largest value (or 1 over it, of the smallest): how far a bar may stretch an axis
_LONGEST = 1.8
_LOG_FROM = 4  # above this ratio a linear axis crowds the small values
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


@dataclass(frozen=True)
class Preset:
    """How wide a figure is drawn, with which letters and how much text."""

    width_in: float
    letters: float = 1.0  # times 9 points, markers too
    titled: bool = True  # with title and foot; a paper has them in its caption
    alone: bool = False  # with workload and machine, which a page says once

    @property
    def narrow(self) -> bool:
        """Whether a line holds fewer than some 60 letters."""
        return self.width_in / self.letters < 4.5


PRESETS = {  # a page shows a figure in the size in which it is drawn
    "page": Preset(width_in=5.75),  # two beside one another on 1200 pixels
    "phone": Preset(width_in=3.6),  # 346 pixels
    "paper": Preset(width_in=3.5, letters=0.85, titled=False),
    "slide": Preset(width_in=12.0, letters=1.6),
}
_PRESET: ContextVar[Preset] = ContextVar("preset", default=PRESETS["page"])
preset = _PRESET.get


@contextmanager
def drawn_as(one: Preset) -> Iterator[None]:
    """Provide this width and these letters for all that is drawn inside."""
    token = _PRESET.set(one)
    try:
        with rc_context({**STYLE, "font.size": one.letters * _POINTS}):
            yield
    finally:
        _PRESET.reset(token)


def in_order(cells: Iterable[str]) -> list[str]:
    """Sort cells as the catalogue lists them, transport by transport, then those not known."""
    names = set(cells)
    known = sorted(catalogue.cells(), key=lambda c: transport_order(catalogue.parts(c).transport))
    return [cell for cell in known if cell in names] + sorted(names - set(known))


def look(cell: str, cells: Sequence[str], marker_size: float | None = None) -> Style:
    """Choose the look of a cell's line, markers and bars: its own, or else a spare one."""
    spare = [c for c in cells if catalogue.look(c) is None]
    appearance = catalogue.look(cell) or _SPARE[spare.index(cell) % len(_SPARE)]
    backend, transport = catalogue.parts(cell)
    facts = catalogue.CATALOGUE.get(backend)
    size = preset().letters * (marker_size or appearance.marker_size)
    return {
        "color": appearance.colour,
        "marker": appearance.marker,
        "markersize": size,
        "markerfacecolor": appearance.colour if facts is None or facts.filled_marker else "none",
        "markeredgewidth": 1.0,  # of caps as well
        "linestyle": _LINES.get(transport.partition(" ")[0], "-"),
        "linewidth": appearance.line_width,
        "elinewidth": 0.9,
        "capsize": 0.5 * size,  # wider than a marker that lies inside
        "zorder": 3 - appearance.marker_size / 20,
    }


def is_log(values: Sequence[int]) -> bool:
    """Check whether an axis of these ranks or batches is logarithmic."""
    return max(values) / min(values) > _LOG_FROM


def bars(values: Estimates) -> list[list[float]] | None:
    """Measure lengths below and above each value; None where no value has an interval to show."""
    if all(e.shown is None for e in values):
        return None
    lengths = [(e.value - e.shown[0], e.shown[1] - e.value) if e.shown else (0, 0) for e in values]
    return [[below for below, _ in lengths], [above for _, above in lengths]]


def dots(e: Estimate) -> tuple[float, ...]:
    """List the single launches, where they are too few for an interval."""
    return e.launches if e.shown is None and e.n > 1 else ()


def reach(estimates: Estimates, *others: float) -> Extent:
    """Return low and high limits of a log axis for all values; long intervals are cut."""
    values = [*(v for e in estimates for v in (e.value, *dots(e))), *others]
    low = min([*values, *(e.shown[0] for e in estimates if e.shown)])
    high = max([*values, *(e.shown[1] for e in estimates if e.shown)])
    low, high = max(low, min(values) / _LONGEST), min(high, max(values) * _LONGEST)
    room = max(1.02, (high / low) ** 0.06)
    return low / room, high * room


def cut(e: Estimate, frame: Extent) -> list[int]:
    """Name the ends of the frame that cut an estimate's bar: 0 is the low one, 1 the high one."""
    if e.shown is None:
        return []
    return [end for end, out in enumerate((e.shown[0] < frame[0], e.shown[1] > frame[1])) if out]


def panels(
    rows: int, columns: int, row_in: float, names: int = 0, share_y: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """Make axes in rows and columns, as wide as the preset; a row of them is `row_in` high.

    `names`: legend entries to leave room for. Heights are inches at `letters` = 1.
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
