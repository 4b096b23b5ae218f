"""A drawn figure for another place: a column of a paper, or a slide."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

import matplotlib
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from plots.report.figures.style import STYLE

LEAST_POINTS = 6.0  # a smaller letter is not read in print


@dataclass(frozen=True)
class Preset:
    """Width of the figure, and how its letters change."""

    width_in: float
    letters: float  # times as large
    titled: bool  # with title, conditions and foot; a paper has them in its caption


PRESETS = {
    "page": None,  # as in a report
    "paper": Preset(width_in=3.5, letters=0.8, titled=False),
    "slide": Preset(width_in=12.0, letters=1.6, titled=True),
}


def fit(figure: Figure, preset: Preset | None) -> None:
    """Change the figure in place; what stood to the right of a narrow one goes below it."""
    if preset is None:
        return
    width, height = figure.get_size_inches()
    if not preset.titled:
        _strip(figure)
    if preset.width_in < width:
        with matplotlib.rc_context(STYLE):
            _legends_below(figure)
    for artist in figure.findobj():
        if isinstance(artist, Line2D):
            artist.set_markersize(preset.letters * artist.get_markersize())
        elif isinstance(artist, Text):
            artist.set_fontsize(max(LEAST_POINTS, preset.letters * float(artist.get_fontsize())))
    _wrap_labels(figure, preset.width_in)
    # a narrow figure keeps its rows readable, a wide one its shape
    shrunk = height * max(preset.width_in / width, 0.75)
    figure.set_size_inches(preset.width_in, shrunk)
    if preset.titled:  # its places are counted from the top in inches of the page
        figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.5 * preset.letters / shrunk))  # type: ignore[union-attr, call-arg]
        for line, text in enumerate(figure.texts[:2]):
            text.set_y(1 - (0.08 + 0.24 * line) * preset.letters / shrunk)
            fits = 72 * 0.97 * preset.width_in / (0.64 * len(text.get_text()))
            text.set_fontsize(max(LEAST_POINTS, min(float(text.get_fontsize()), fits)))
    _thin_ticks(figure)


def _wrap_labels(figure: Figure, width_in: float) -> None:
    """Labels of axes on as many lines as their panel is narrow."""
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        room_in = 0.8 * width_in / (spec.get_gridspec().ncols if spec else 1)
        for label, room in ((ax.xaxis.label, room_in), (ax.yaxis.label, 2.0)):
            letters = max(12, int(72 * room / (0.55 * float(label.get_fontsize()))))
            lines = (wrap(line, letters) for line in label.get_text().split("\n"))
            label.set_text("\n".join(part for line in lines for part in line))


def _thin_ticks(figure: Figure) -> None:
    """Leave out every second mark of an axis whose marks run together; 1 stays."""
    canvas = FigureCanvasAgg(figure)
    for _ in range(3):
        canvas.draw()  # type: ignore[no-untyped-call]
        crowded = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis) if _crowded(axis)]
        for axis in crowded:
            marks = axis.get_ticklocs()
            one = next((i for i, mark in enumerate(marks) if mark == 1), 0)
            kept = [i for i in range(len(marks)) if i % 2 == one % 2]
            texts = [text.get_text() for text in axis.get_ticklabels()]
            axis.set_ticks([marks[i] for i in kept], [texts[i] for i in kept])
        if not crowded:
            return


def _crowded(axis: Axis) -> bool:
    shown = [text for text in axis.get_ticklabels() if text.get_text()]
    boxes = [text.get_window_extent() for text in shown]
    return any(a.padded(1).overlaps(b) for a, b in pairwise(boxes))


def _strip(figure: Figure) -> None:
    for text in list(figure.texts):
        text.remove()
    figure.supxlabel("")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1))  # type: ignore[union-attr, call-arg]


def _legends_below(figure: Figure) -> None:
    both = [ax.get_legend_handles_labels() for ax in figure.axes]
    drawn = {name: handle for found in both for handle, name in zip(*found, strict=True)}
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        texts = [text.get_text() for text in legend.get_texts()]
        names = [text.split("\n")[0] for text in texts]  # a value may stand below it
        title = legend.get_title().get_text()
        legend.remove()
        figure.legend(
            [drawn[name] for name in names],
            texts,
            title=title or None,
            loc="outside lower center",
            ncols=2,
            fontsize=8,
            title_fontsize=8,
        )
