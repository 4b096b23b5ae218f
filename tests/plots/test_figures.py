"""Figures show what the analysis says: looked at through the Figure objects, not through the existence of files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from plots import figures
from plots.analysis import Analysis, analyse
from plots.load import load
from tests.plots import logs


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = logs.study(tmp_path_factory.mktemp("study"), blocks=6)
    logs.study_toml(folder, margin=0.03)
    return analyse(load(folder))


@pytest.fixture(scope="module")
def drawn(analysis: Analysis) -> dict[str, Figure]:
    return figures.draw(analysis)


def bars(ax: Axes) -> dict[str, ErrorbarContainer]:
    return {str(c.get_label()): c for c in ax.containers if isinstance(c, ErrorbarContainer)}


def xs(line: Any) -> list[float]:
    return [float(v) for v in line.get_xdata()]


def ys(line: Any) -> list[float]:
    return [float(v) for v in line.get_ydata()]


def values(container: ErrorbarContainer) -> list[float]:
    return ys(container.lines[0])


def ends(container: ErrorbarContainer) -> list[tuple[float, float]]:
    """Lower and upper end of each drawn interval."""
    (segments,) = container.lines[2]
    return [(float(s[0][1]), float(s[1][1])) for s in segments.get_segments()]


def words(figure: Figure) -> str:
    texts = [*figure.texts, *(t for ax in figure.axes for t in ax.texts)]
    return "\n".join(t.get_text() for t in texts)


def test_names_and_order(drawn: dict[str, Figure]) -> None:
    assert list(drawn) == ["ratio", "weak-throughput", "strong-throughput", "weak-efficiency", "strong-speedup"]


def test_throughput_has_every_point_its_interval_and_the_ideal(analysis: Analysis, drawn: dict[str, Figure]) -> None:
    (ax,) = drawn["weak-throughput"].axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ranks", "throughput (images/s)")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2"]
    assert ax.get_ylim()[0] == 0
    found = bars(ax)
    assert list(found) == ["single", "ddp/mpi", "horovod/mpi"]
    for cell, container in found.items():
        rows = [t.images_per_s for t in analysis.throughput if t.curve == "weak" and t.point.cell == cell]
        assert values(container) == [e.value for e in rows]
        for drawn_ends, e in zip(ends(container), rows, strict=True):
            assert drawn_ends == pytest.approx((e.low, e.high))
    single = values(found["single"])[0]
    (ideal,) = [line for line in ax.get_lines() if line.get_label() == "ideal"]
    assert ys(ideal) == [single, 2 * single]
    assert xs(ideal) == [1, 2]  # a true scale, on which the ideal is straight


def test_markers_and_colours_are_the_same_in_every_figure(drawn: dict[str, Figure]) -> None:
    looks: dict[str, set[tuple[str, str]]] = {}
    for name, figure in drawn.items():
        for ax in figure.axes if name != "ratio" else ():
            for cell, container in bars(ax).items():
                line = container.lines[0]
                looks.setdefault(cell, set()).add((str(line.get_color()), str(line.get_marker())))
    assert all(len(found) == 1 for found in looks.values())
    unique = set.union(*looks.values())
    assert len({colour for colour, _ in unique}) == len({marker for _, marker in unique}) == len(looks) == 3


def test_intervals_do_not_hide_each_other(drawn: dict[str, Figure]) -> None:
    (ax,) = drawn["weak-throughput"].axes
    at = sorted(xs(c.lines[0])[0] for c in bars(ax).values())
    assert min(np.diff(at)) > 0.02
    assert all(abs(x - 1) < 0.5 for x in at)


def test_efficiency_shows_both_baselines_side_by_side(analysis: Analysis, drawn: dict[str, Figure]) -> None:
    common, own = drawn["weak-efficiency"].axes
    assert "T(1)/T(p)" in common.get_ylabel()
    expected = {
        s.point.cell: s.efficiency.value
        for s in analysis.efficiency
        if s.curve == "weak" and s.point.world_size == 2 and s.kind == "common"
    }
    assert {cell: values(c)[-1] for cell, c in bars(common).items()} == expected
    assert all(values(c)[0] == 1.0 for c in bars(own).values())
    base = next(s for s in analysis.efficiency if s.curve == "weak" and s.kind == "common").baseline_images_per_s.value
    assert f"Common baseline: single, 1 rank, 16 images per step: {base:.4g} images/s" in drawn["weak-efficiency"].get_supxlabel()


def test_speedup_has_an_ideal_of_p(drawn: dict[str, Figure]) -> None:
    for ax in drawn["strong-speedup"].axes:
        (ideal,) = [line for line in ax.get_lines() if line.get_label() == "ideal"]
        assert ys(ideal) == [1, 2]


def test_ratio_marks_one_and_the_margin(analysis: Analysis, drawn: dict[str, Figure]) -> None:
    (ax,) = drawn["ratio"].axes
    (band,) = ax.patches
    edges = band.get_extents().transformed(ax.transData.inverted())
    assert (edges.x0, edges.x1) == (pytest.approx(1 / 1.03), pytest.approx(1.03))
    assert any(xs(line) == [1, 1] for line in ax.get_lines())
    assert len(ax.containers) == len(analysis.comparisons) == 3
    notes = [t.get_text() for t in ax.texts if isinstance(t, Annotation)]
    for c in analysis.comparisons:
        assert any(t.startswith(f"{c.paired.ratio:.3f} [") and "n = 6\nDDP faster" in t for t in notes)
    assert "Horovod against DDP: DDP faster at all 3 points" in words(drawn["ratio"])


def test_every_figure_says_machine_n_and_conditions(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        foot = figure.get_supxlabel()
        assert "Test CPU @ 2 GHz" in foot, name
        assert "n = 6 blocks; bars: 95 % Student t interval" in foot, name
        assert "resnet50, synthetic data, 32 px, float32; settings: shipped" in words(figure), name


def test_nothing_written_overlaps_or_leaves_the_page(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        page = figure.bbox.padded(1)
        written = [
            t for t in [*figure.texts, *(t for ax in figure.axes for t in (*ax.texts, ax.title, ax.xaxis.label))] if t.get_text()
        ]
        boxes = [t.get_window_extent(renderer) for t in written]
        for text, box in zip(written, boxes, strict=True):
            assert page.x0 <= box.x0, (name, text)
            assert box.x1 <= page.x1, (name, text)
            assert page.y0 <= box.y0, (name, text)
            assert box.y1 <= page.y1, (name, text)
        for i, a in enumerate(boxes):
            for j in range(i):
                assert not a.padded(-1).overlaps(boxes[j].padded(-1)), (name, written[i], written[j])


def test_one_block_draws_points_without_bars(tmp_path: Path) -> None:
    a = analyse(load(logs.study(tmp_path, blocks=1)))
    drawn = figures.draw(a)
    (ax,) = drawn["weak-throughput"].axes
    assert all(len(c.lines[2]) == 0 for c in bars(ax).values())
    assert "n = 1: one block, no interval" in drawn["ratio"].get_supxlabel()


def test_many_ranks_are_logarithmic_and_settings_get_a_figure_each(tmp_path: Path) -> None:
    for settings in ("shipped", "matched"):
        for cell in ("single", "ddp/mpi", "ddp/gloo", "horovod/gloo"):
            for p in (1,) if cell == "single" else (1, 2, 4, 8, 16):
                run = logs.config(cell, p, 8, settings=settings)
                logs.write(tmp_path / f"{settings}-{cell.replace('/', '-')}-{p}.jsonl", run, 0.1 + 0.01 * p)
    drawn = figures.draw(analyse(load(tmp_path)))
    assert list(drawn) == [
        "ratio-matched",
        "ratio-shipped",
        "weak-matched-throughput",
        "weak-shipped-throughput",
        "weak-matched-efficiency",
        "weak-shipped-efficiency",
    ]
    (ax,) = drawn["weak-shipped-throughput"].axes
    assert ax.get_yscale() == "log"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert list(ax.get_xticks()) == [math.log2(p) for p in (1, 2, 4, 8, 16)]
    assert list(bars(ax)) == ["single", "ddp/mpi", "ddp/gloo", "horovod/gloo"]


def test_lines_join_one_fixed_configuration_only(tmp_path: Path) -> None:
    for batch in (8, 16):
        for p in (1, 2):
            logs.write(tmp_path / f"{batch}-{p}.jsonl", logs.config("ddp/mpi", p, batch), 0.01 * batch)
    drawn = figures.draw(analyse(load(tmp_path)))
    assert list(drawn) == ["weak-8-throughput", "weak-16-throughput", "weak-8-efficiency", "weak-16-efficiency"]
    assert [len(xs(c.lines[0])) for c in bars(drawn["weak-8-throughput"].axes[0]).values()] == [2]


def test_batch_sweep(tmp_path: Path) -> None:
    for batch in (4, 8, 32):
        logs.write(tmp_path / f"{batch}.jsonl", logs.config("ddp/mpi", 2, batch, curves=("batch",)), 0.05 + 0.01 * batch)
    (ax,) = figures.draw(analyse(load(tmp_path)))["batch-throughput"].axes
    assert ax.get_xlabel() == "images per rank"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["4", "8", "32"]


def test_drawing_again_gives_the_same_bytes(analysis: Analysis, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        figures.save(figures.draw(analysis), tmp_path / folder)
    first = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()}
    assert first == {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}
    assert {p.suffix for p in (tmp_path / "a").iterdir()} == {".svg", ".png"}
    assert b"<dc:date>" not in first["ratio.svg"]


def test_endless_bars_do_not_flatten_the_values(tmp_path: Path) -> None:
    """Two blocks of different speed: t intervals of one degree of freedom span orders of magnitude."""
    for block, factor in enumerate((1.0, 2.0)):
        for p in (1, 2):
            logs.write(tmp_path / f"{block}-{p}.jsonl", logs.config("ddp/mpi", p, block=block), 0.1 * factor)
    figure = figures.draw(analyse(load(tmp_path)))["weak-throughput"]
    (ax,) = figure.axes
    points = values(bars(ax)["ddp/mpi"])
    assert ends(bars(ax)["ddp/mpi"])[0][1] > 10 * max(points)
    assert max(points) < ax.get_ylim()[1] < 2 * max(points)
    assert "Bars that leave the frame are cut" in figure.get_supxlabel()
