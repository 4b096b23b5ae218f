"""One figure by itself: its format, its preset, and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from plots.__main__ import main
from plots.analyse.runs import load
from plots.analyse.study import analyse
from plots.report import figures
from plots.report.figures import presets
from tests.plots import logs

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("preset", ["paper", "slide"])
def test_a_preset_has_its_width_and_letters_and_loses_no_name(study: Path, preset: str) -> None:
    for name, figure in figures.draw(analyse(load(study))).items():
        both = [ax.get_legend_handles_labels()[1] for ax in figure.axes]
        wanted = {label for labels in both for label in labels}
        presets.fit(figure, asked := presets.PRESETS[preset])
        assert asked is not None
        assert figure.get_figwidth() == asked.width_in
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        legends = [ax.get_legend() for ax in figure.axes] + figure.legends
        texts = [t.get_text() for legend in legends if legend for t in legend.get_texts()]
        assert {text.split("\n")[0] for text in texts} == wanted, name
        written = [x for x in figure.findobj() if isinstance(x, Text) and x.get_text()]
        assert min(float(x.get_fontsize()) for x in written) >= presets.LEAST_POINTS
        assert any(text.get_text() for text in figure.texts) == asked.titled
        whole = figure.bbox.padded(1)
        axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
        every_mark = {mark for axis in axes for mark in axis.get_ticklabels(which="both")}
        for text in set(written) - every_mark:
            box = text.get_window_extent(renderer)
            assert whole.x0 <= box.x0, (name, text.get_text())
            assert whole.y0 <= box.y0, (name, text.get_text())
            assert box.x1 <= whole.x1, (name, text.get_text())
            assert box.y1 <= whole.y1, (name, text.get_text())
        for axis in axes:
            marks = [m.get_window_extent() for m in axis.get_ticklabels() if m.get_text()]
            assert not any(a.overlaps(b) for a, b in pairwise(marks)), (name, axis)


def test_marks_that_would_run_together_are_thinned() -> None:
    """Seven marks of a ratio axis on a column of a paper; 1 stays."""
    drawn = figures.draw(analyse(load(ROOT / "results" / "emulated")))
    before = [mark.get_text() for mark in drawn["ratio"].axes[0].get_xticklabels()]
    presets.fit(drawn["ratio"], presets.PRESETS["paper"])
    FigureCanvasAgg(drawn["ratio"]).draw()  # type: ignore[no-untyped-call]
    marks = drawn["ratio"].axes[0].get_xticklabels()
    after = [mark.get_text() for mark in marks]
    assert set(after) < set(before)
    assert "1" in after
    boxes = [mark.get_window_extent() for mark in marks]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_what_is_not_there_is_one_line(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "overlap", str(study), "-o", "/tmp/x.svg"]) == 2
    assert (
        "has no figure 'overlap'; it has ratio-by-size, ratio, weak-throughput"
        in capsys.readouterr().err
    )
    assert main(["figure", "ratio", str(study), "-o", "/tmp/x.gif"]) == 2
    assert "figures are written as .svg, .png, .pdf; name one" in capsys.readouterr().err
