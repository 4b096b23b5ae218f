"""A drawn figure for another place: a column of a paper, or a slide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from textwrap import wrap

import matplotlib
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from bench.config import UsageError
from plots.report.figures.style import (
    STYLE,
    letters_in,
    marked_title,
    set_title,
    shrink_to,
    wrapped,
)

LEAST_POINTS = 6.0  # a smaller letter is not read in print
_LEGEND_POINTS = 8.0  # of a legend that went below its figure, before they change


@dataclass(frozen=True)
class Preset:
    """Width of the figure, and how its letters change."""

    width_in: float
    letters: float  # times as large
    titled: bool  # with title, conditions and foot; a paper has them in its caption


PRESETS = {
    "page": None,  # as in a report
    "paper": Preset(width_in=3.5, letters=0.8, titled=False),
    "phone": Preset(width_in=4.0, letters=0.9, titled=False),
    "slide": Preset(width_in=12.0, letters=1.6, titled=True),
}


def fit(
    figure: Figure, preset: Preset | None, width_in: float | None = None, title: str = ""
) -> None:
    """Change the figure in place; what stood to the right of a narrow one goes below it.

    `width_in` takes the place of the preset's, `title` that of the figure's own.
    """
    if title:
        set_title(figure, title)
    width, height = figure.get_size_inches()
    if preset is None:
        return
    preset = replace(preset, width_in=width_in or preset.width_in)
    if not preset.titled:
        _strip(figure, title, preset.width_in)
    for artist in figure.findobj():
        if isinstance(artist, Line2D):
            artist.set_markersize(preset.letters * artist.get_markersize())
        elif isinstance(artist, Text):
            artist.set_fontsize(max(LEAST_POINTS, preset.letters * float(artist.get_fontsize())))
    # a narrow figure keeps its rows readable, a wide one its shape
    height *= max(preset.width_in / width, 0.75)
    if preset.width_in < width:
        with matplotlib.rc_context(STYLE):
            height += sum(_legends_below(figure, preset))
    _wrap_labels(figure, preset.width_in)
    figure.set_size_inches(preset.width_in, height)
    if preset.titled:
        _place_titles(figure, preset.letters)
    _thin_ticks(figure)


def _place_titles(figure: Figure, letters: float) -> None:
    """Finding and conditions in whole lines from the top, and the foot on as many as it needs."""
    width, height = figure.get_size_inches()
    rect = (0, 0, 1, 1 - 0.5 * letters / height)  # a page has them in its first half inch
    figure.get_layout_engine().set(rect=rect)  # type: ignore[union-attr, call-arg]
    *heads, foot = figure.texts
    for line, text in enumerate(heads):
        text.set_y(1 - (0.08 + 0.24 * line) * letters / height)
        shrink_to(text, 0.97 * width)
    foot.set_text(wrapped(foot.get_text(), letters_in(0.97 * width, foot)))


def _wrap_labels(figure: Figure, width_in: float) -> None:
    """Labels and titles of axes on as many lines as their panel is narrow."""
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        room_in = 0.8 * width_in / (spec.get_gridspec().ncols if spec else 1)
        for label, room in ((ax.title, room_in), (ax.xaxis.label, room_in), (ax.yaxis.label, 2.0)):
            label.set_text(wrapped(label.get_text(), max(12, letters_in(room, label))))


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


def _strip(figure: Figure, title: str, width_in: float) -> None:
    """Leave what a caption says to the caption; the mark of emulated runs stays."""
    for text in list(figure.texts):
        text.remove()
    figure.supxlabel("")
    if kept := marked_title(figure, title):
        lines = wrap(kept, int(12 * width_in))  # bold letters of an inch
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9, fontweight="bold")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1))  # type: ignore[union-attr, call-arg]


def rename(figure: Figure, labels: Mapping[str, str]) -> None:
    """Other names in the legends. Raises UsageError for one that no legend has."""
    legends = [legend for ax in figure.axes if (legend := ax.get_legend()) is not None]
    texts = [text for legend in legends for text in legend.get_texts()]
    names = dict.fromkeys(text.get_text().split("\n")[0] for text in texts)
    if unknown := [name for name in labels if name not in names]:
        has = ", ".join(names) or "no legend"
        raise UsageError(f"--label {unknown[0]}=...: the figure's legend has {has}")
    for text in texts:  # a value may stand below a name
        name, *rest = text.get_text().split("\n")
        text.set_text("\n".join([labels.get(name, name), *rest]))
    for ax in figure.axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handle.set_label(labels.get(name, name))


def _legends_below(figure: Figure, preset: Preset) -> Iterator[float]:
    """In two columns, else in one, else in one of shorter lines: whole in every width.

    Yields how many inches each of them is high.
    """
    size = max(LEAST_POINTS, preset.letters * _LEGEND_POINTS)
    letters = int(72 * preset.width_in / (0.6 * size)) - 6  # 6: the line before a name
    both = [ax.get_legend_handles_labels() for ax in figure.axes]
    drawn = {name: handle for pair in both for handle, name in zip(*pair, strict=True)}
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        texts = [text.get_text() for text in legend.get_texts()]
        names = [text.split("\n")[0] for text in texts]  # a value may stand below it
        title = legend.get_title().get_text()
        legend.remove()
        below = {"title": title or None, "fontsize": size, "title_fontsize": size}
        handles = [drawn[name] for name in names]
        ways = [(2, texts), (1, texts), (1, [wrapped(text, letters) for text in texts])]
        while ways:
            ncols, written = ways.pop(0)
            placed = figure.legend(
                handles, written, loc="outside lower center", ncols=ncols, **below
            )
            renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
            box = placed.get_window_extent(renderer)
            if box.width <= preset.width_in * figure.dpi or not ways:
                yield box.height / figure.dpi
                break
            placed.remove()
