"""Figures as files, and where their words stand."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from plots.__main__ import main
from plots.analyse.study import Analysis
from plots.report import figures
from plots.report.figures.style import complete
from plots.report.write import analysed
from tests.plots import logs

ROOT = Path(__file__).parents[2]
# one of each kind of figure
SHIPPED = (
    *("emulated", "emulated-cluster", "exposed", "local", "local-transports"),
    *("overlap", "precision", "sync-async"),
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = logs.study(tmp_path_factory.mktemp("study"))
    logs.study_toml(folder)
    return folder


@pytest.mark.parametrize(
    ("ending", "head"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")]
)
def test_the_ending_names_the_format(study: Path, tmp_path: Path, ending: str, head: bytes) -> None:
    path = tmp_path / f"one.{ending}"
    words = ["figure", "ratio", str(study), "-o", str(path), "--preset", "paper"]
    assert main(words) == 0
    first = path.read_bytes()
    assert first.startswith(head)
    assert main(words) == 0
    assert path.read_bytes() == first, "the same logs give the same bytes"
    assert (b"/FontFile2" in first and b"/Type3" not in first) == (ending == "pdf")


def seen(figure: Figure) -> list[tuple[str, Bbox]]:
    """List every drawn text with its place; matplotlib keeps marks beyond an axis's ends."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    axes = [axis for ax in figure.axes if ax.axison for axis in (ax.xaxis, ax.yaxis)]
    every = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    marks = {mark for axis in every for mark in axis.get_ticklabels(which="both")}
    ticks = [tick for axis in axes for tick in axis._update_ticks()]  # type: ignore[union-attr]
    shown = {text for tick in ticks for text in (tick.label1, tick.label2)}
    texts = [x for x in figure.findobj(Text) if x.get_visible() and (x not in marks or x in shown)]
    boxes = [(x.get_text(), x.get_window_extent()) for x in texts if x.get_text()]
    return [(text, box) for text, box in boxes if box.width and box.height]


def apart(figure: Figure) -> list[tuple[str, Bbox]]:
    """List what must not lie on one another: the title, labels of axes and legends."""
    texts = [x for ax in figure.axes for x in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    texts += [x for x in (figure._suptitle,) if x is not None]  # type: ignore[attr-defined]
    legends = [*figure.legends, *(x for ax in figure.axes if (x := ax.get_legend()))]
    found = [(x.get_text(), x.get_window_extent()) for x in texts if x.get_text()]
    return found + [("legend", legend.get_window_extent()) for legend in legends]


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Analysis:
    return analysed(ROOT / "results" / request.param)


def test_nothing_written_is_cut_off_or_covered(shipped: Analysis) -> None:
    for name, figure in figures.draw(shipped).items():
        complete(shipped, figure)
        assert {text.get_fontsize() for text in figure.texts} == {9}
        texts, whole = seen(figure), figure.bbox.padded(1)
        assert texts
        cut = [text for text, box in texts if Bbox.intersection(box, whole) is None or not (
            whole.x0 <= box.x0 and whole.y0 <= box.y0 and box.x1 <= whole.x1 and box.y1 <= whole.y1
        )]  # fmt: skip
        assert not cut, name
        pairs = combinations(apart(figure), 2)
        assert not [(a, b) for (a, at), (b, there) in pairs if at.overlaps(there)], name
        kind = "Emulated" if shipped.emulated() else ""
        assert figure.get_label() == kind
        assert figure.get_suptitle().startswith(kind or "Real: "), name
        assert ("real ranks and real compute" in figure.get_supxlabel()) == (not kind), name
