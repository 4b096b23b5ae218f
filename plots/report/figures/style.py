"""Look of every figure: size, cells, panels, marks with intervals, rows, legend, title and foot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
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
_LOG_FROM = 4  # above this ratio a linear axis crowds the small values
GREY = "#666666"
_WIDTH_IN = 3.5  # of a column of a paper and of a phone; wider pages show two side by side
_CAPTION_IN, _MACHINE_IN = 1.7, 0.4  # heights of title and foot, and of the machine in it
_NAMES_IN_LINE = 2  # of a legend
STYLE: Any = {  # Any: matplotlib's stubs want each key as a literal
    "svg.hashsalt": "plots",  # without it every drawing has new identifiers
    "svg.fonttype": "none",  # text that can be searched and read aloud
    "font.size": 9,
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
_MARK = "value-"  # begins an identifier, which holds the text that takes its place
_NAMED = re.compile(rf'<g id="{_MARK}([0-9a-f]+)">')


def in_order(cells: Iterable[str]) -> list[str]:
    """Sort distinct cells by transport, then as the catalogue of backends; unknown cells last."""
    names = set(cells)
    known = sorted(catalogue.cells(), key=lambda c: transport_order(catalogue.parts(c).transport))
    return [cell for cell in known if cell in names] + sorted(names - set(known))


def look(cell: str, cells: Sequence[str], marker_size: float | None = None) -> Style:
    """Return a cell's style; if it is not in the catalogue, a spare one by its place in `cells`."""
    spare = [c for c in cells if catalogue.look(c) is None]
    appearance = catalogue.look(cell) or _SPARE[spare.index(cell) % len(_SPARE)]
    backend, transport = catalogue.parts(cell)
    facts = catalogue.CATALOGUE.get(backend)
    size = marker_size or appearance.marker_size
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
    """Check whether an axis of these ranks or batches spans enough to be logarithmic."""
    return max(values) / min(values) > _LOG_FROM


def bars(values: Estimates) -> list[list[float]] | None:
    """Return error bars as [lengths below, lengths above]; None if no value shows an interval."""
    if all(e.shown is None for e in values):
        return None
    lengths = [(e.value - e.shown[0], e.shown[1] - e.value) if e.shown else (0, 0) for e in values]
    return [[below for below, _ in lengths], [above for _, above in lengths]]


def dots(e: Estimate) -> tuple[float, ...]:
    """Return each launch's value if there are several and no interval is shown; else ()."""
    return e.launches if e.shown is None and e.n > 1 else ()


def reach(estimates: Estimates, *others: float) -> Extent:
    """Return limits of an axis, with some room, for estimates, their intervals and `others`."""
    values = [*(v for e in estimates for v in (e.value, *dots(e), *(e.shown or ()))), *others]
    low, high = min(values), max(values)
    room = max(1.02, (high / low) ** 0.06)
    return low / room, high * room


def panels(
    rows: int, columns: int, row_in: float, names: int = 0
) -> tuple[Figure, list[list[Axes]]]:
    """Return (figure, axes[row][column]); a row has `row_in` inches, the legend `names` entries."""
    lines = -(-names // _NAMES_IN_LINE)
    ratios = [row_in] * rows + [0.21 * lines] * bool(lines)
    figure = Figure(figsize=(_WIDTH_IN, sum(ratios) + 0.5 + _CAPTION_IN))
    spec = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
    grid = [[figure.add_subplot(spec[i, j]) for j in range(columns)] for i in range(rows)]
    for line in grid:
        for ax in line[1:]:
            ax.sharey(line[0])
            ax.tick_params(labelleft=False)
    if lines:
        figure.add_subplot(spec[rows, :], label="legend").set_axis_off()
    return figure, grid


def mark(
    ax: Axes,
    at: Sequence[float],
    values: Estimates,
    style: Style,
    form: Callable[[float], str],
    axis: str = "y",
) -> None:
    """Draw `values` along `axis`, at positions `at` of the other axis, with intervals or dots.

    In an SVG, a mark shows its value as `form` writes it when the pointer is on it.
    """

    def place(where: Any, values: Any) -> tuple[Any, Any]:
        return (where, values) if axis == "y" else (values, where)

    bare = {"color": style["color"], "zorder": style["zorder"], "ls": "none"}
    dot = {"marker": "o", "markersize": 0.3 * style["markersize"] + 1.5, "markeredgewidth": 0}
    drawn = ax.errorbar(
        *place(at, [e.value for e in values]), **{f"{axis}err": bars(values), **style}
    )
    drawn.lines[0].set_clip_on(False)  # a marker at the frame is whole
    for where, e in zip(at, values, strict=True):
        if launches := dots(e):
            ax.plot(*place([where] * len(launches), launches), **bare, **dot)
        # unseen, and large enough for a pointer
        n = f", n = {e.n}" if e.shown else ""
        text = clean(f"{style.get('label', '')}: {short(e, form)}{n}".removeprefix(": "))
        unseen: Any = {"s": 120, "color": "black", "alpha": 0}
        ax.scatter(*place([where], [e.value]), gid=_MARK + text.encode().hex(), **unseen)


def with_names(svg: str) -> str:
    """Replace the identifier of each mark in an SVG by a <title>, which browsers show on hover."""
    return _NAMED.sub(lambda m: f"<g><title>{escape(bytes.fromhex(m[1]).decode())}</title>", svg)


def scale_axes(ax: Axes, values: Iterable[int], frame: Extent, log_y: bool) -> None:
    """Set x ticks for `values` (ranks or batches), y limits to `frame`, and the axes' scales."""
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
    """Write each row's (name, value) on two lines above the row; the first row is on top."""
    ax.set_ylim(len(names) - 0.55, -0.95)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(visible=True, axis="x")
    above: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    for row, both in enumerate(names):
        text = "\n".join(filter(None, both))
        ax.annotate(text, (0, row), (0, 10), va="bottom", wrap=True, **above)


def legend(figure: Figure) -> None:
    """Draw one legend for all axes, with each name once, in the figure's last axes."""
    entries = [each.get_legend_handles_labels() for each in figure.axes]
    handles = {name: handle for both in entries for handle, name in zip(*both, strict=True)}
    names = sorted(handles, key=lambda name: name.startswith("ideal"))
    drawn = [handles[name] for name in names]
    figure.axes[-1].legend(drawn, names, loc="center", ncols=_NAMES_IN_LINE)


def caption(
    a: Analysis, figure: Figure, points: Iterable[Any], title: str, notes: Sequence[str]
) -> None:
    """Write the title, which begins with 'Real' or 'Emulated', and the notes at the foot.

    `points` are all that is drawn. The figure's label becomes 'Emulated', 'Emulated in part' or ''.
    """
    mark = emulation(a, points)
    figure.set_label(mark)
    measured = "" if mark else "Measured with real ranks and real compute. "
    foot = measured + " ".join(clean(note, 250) for note in notes)
    inscribe(figure, clean(f"{mark or 'Real'}: {title}", 160), clean(foot, 600))


def inscribe(figure: Figure, title: str, foot: str) -> None:
    """Write a title on top of a figure and a foot below it; both wrap by themselves."""
    with rc_context(STYLE):
        figure.suptitle(title, x=0.01, ha="left", wrap=True, fontweight="bold")
        figure.supxlabel(foot, x=0.01, ha="left", wrap=True, color=GREY)


def complete(a: Analysis, figure: Figure) -> None:
    """Add workload and machine to the foot of a figure that stands without its page."""
    foot = f"{figure.get_supxlabel()} {workload(a)}. {machine(a.loaded.host)}."
    inscribe(figure, figure.get_suptitle(), clean(foot, 700))
    figure.set_figheight(figure.get_figheight() + _MACHINE_IN)


def strip(figure: Figure) -> None:
    """Remove title and foot for a paper, which has a caption, but keep the word 'Emulated'."""
    inscribe(figure, str(figure.get_label()), "")
    figure.set_figheight(figure.get_figheight() - _CAPTION_IN)


def bars_explained(estimates: Estimates, unit: str = "launches") -> str:
    """Say in words what n, bars and dots of a figure are; bars are intervals over `unit`."""
    n = sorted({e.n for e in estimates})
    remarks = [f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    remarks[0] += ": one launch, no interval" if n[-1] == 1 else " launches"
    if any(e.shown for e in estimates):
        remarks.append(f"bars: 95 % intervals over {unit}")
    if any(map(dots, estimates)):
        remarks.append(f"dots: single launches, as fewer than {MIN_LAUNCHES} bear no interval")
    return f"{'; '.join(remarks)}."
