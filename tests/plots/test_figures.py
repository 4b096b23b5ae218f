"""Figures show what the analysis says: looked at as Figure objects, not as files."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from plots.analyse.runs import load
from plots.analyse.study import Analysis, analyse
from plots.report import figures
from plots.report.axes import look, ratio_ticks
from tests.plots import logs

DRAWS_PNG = True


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
    curves = ["weak-throughput", "strong-throughput", "weak-efficiency", "strong-speedup"]
    assert list(drawn) == ["ratio-by-size", "ratio", *curves, "steps"]


def test_the_ratio_against_ranks_has_every_comparison_its_interval_and_the_margin(
    analysis: Analysis, drawn: dict[str, Figure]
) -> None:
    weak, strong = drawn["ratio-by-size"].axes
    assert weak.get_xlabel() == "ranks (weak scaling)"
    assert strong.get_xlabel() == "ranks (strong scaling)"
    assert weak.get_yscale() == "log"
    for ax, curve in ((weak, "weak"), (strong, "strong")):
        rows = [c for c in analysis.comparisons if curve in c.curves]
        rows.sort(key=lambda c: c.world_size)
        (container,) = bars(ax).values()
        assert xs(container.lines[0]) == [c.world_size for c in rows]
        assert values(container) == [c.paired.ratio for c in rows]
        for drawn_ends, c in zip(ends(container), rows, strict=True):
            assert drawn_ends == pytest.approx(c.paired.interval(c.level))
        (band,) = ax.patches
        low, high = band.get_path().get_extents(band.get_patch_transform()).intervaly
        edge = 1 + analysis.loaded.study.margin
        assert (low, high) == pytest.approx((1 / edge, edge))
    assert (
        drawn["ratio-by-size"].axes[0].get_ylabel() == "images/s of Horovod\nover images/s of DDP"
    )


def test_throughput_has_every_point_its_interval_and_the_ideal(
    analysis: Analysis, drawn: dict[str, Figure]
) -> None:
    (ax,) = drawn["weak-throughput"].axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ranks", "throughput (images/s)")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2"]
    assert ax.get_ylim()[0] == 0
    found = bars(ax)
    assert list(found) == ["single", "ddp/mpi", "horovod/mpi"]
    for cell, container in found.items():
        own = [t for t in analysis.throughput if (t.curve, t.point.cell) == ("weak", cell)]
        rows = [t.images_per_s for t in own]
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
        for ax in () if name.startswith("ratio") else figure.axes:
            for cell, container in bars(ax).items():
                line = container.lines[0]
                looks.setdefault(cell, set()).add((str(line.get_color()), str(line.get_marker())))
    assert all(len(found) == 1 for found in looks.values())
    colours, markers = zip(*set.union(*looks.values()), strict=True)
    assert len(set(colours)) == len(set(markers)) == len(looks) == 3


RANKS = (1, 2, 4, 8, 16, 32, 64)
FOUR = ("ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo")
Place = tuple[float, float]


def equal_cells(folder: Path, cells: tuple[str, ...], blocks: int) -> Analysis:
    """Weak, strong and batch curves; in every block all cells are as fast, bit for bit."""
    points = [("weak", p, 16) for p in RANKS] + [("strong", p, 1024 // p) for p in RANKS]
    points += [("batch", 2, batch) for batch in RANKS]
    for block in range(blocks):
        for cell in ("single", *cells):
            for curve, p, batch in points:
                if cell == "single" and p > 1:
                    continue
                short: dict[str, Any] = {"windows": 1, "steps_per_window": 1, "seed": block}
                run = logs.config(cell, p, batch, block, curves=(curve,), **short)
                name = f"{block}-{curve}-{cell.replace('/', '-')}-{p}-{batch}.jsonl"
                seconds = 0.1 * batch / 16 * (1 + 0.02 * math.log2(p)) * (1 + 0.07 * block)
                logs.write(folder / name, run, seconds)
    return analyse(load(folder))


def places(ax: Axes) -> dict[str, list[list[Place]]]:
    """Where everything of each cell is drawn, by colour, in pixels."""
    found: dict[str, list[list[Place]]] = {}
    for line in ax.get_lines():
        at = line.get_transform().transform(np.column_stack([xs(line), ys(line)]))
        found.setdefault(to_hex(line.get_color()), []).append([(float(x), float(y)) for x, y in at])
    for bar in ax.collections:
        if isinstance(bar, PathCollection) and bar.get_alpha() == 0:
            continue  # unseen, for a pointer
        assert isinstance(bar, LineCollection)
        ends = [bar.get_transform().transform(segment) for segment in bar.get_segments()]
        own = found.setdefault(to_hex(tuple(np.ravel(bar.get_color()))), [])
        own += [[(float(x), float(y)) for x, y in end] for end in ends]
    return {colour: sorted(marks) for colour, marks in found.items()}


@pytest.mark.parametrize("blocks", [2, 6], ids=["dots", "bars"])
@pytest.mark.parametrize("cells", [FOUR[:2], FOUR], ids=["two", "four"])
def test_equal_cells_stand_at_the_same_place(
    tmp_path: Path, cells: tuple[str, ...], blocks: int
) -> None:
    """A shift sideways beside a slope of one reads as a difference in speed."""
    drawn = figures.draw(equal_cells(tmp_path, cells, blocks))
    apart = ("ratio", "steps")
    drawn = {name: f for name, f in drawn.items() if not name.startswith(apart)}
    kinds = ["weak-throughput", "strong-throughput", "batch-throughput"]
    kinds += ["weak-efficiency", "strong-speedup"]
    assert [f"{name.split('-')[0]}-{name.split('-')[-1]}" for name in drawn] == kinds
    for name, figure in drawn.items():
        for ax in figure.axes:
            found = places(ax)
            marks = [found[to_hex(look(cell, cells)["color"])] for cell in cells]
            assert all(one == marks[0] for one in marks), name
            # a line, and bars or dots
            assert len(marks[0]) >= 1 + len(RANKS) - (ax is figure.axes[-1]), name
            for at in itertools.chain(*found.get("#000000", [])):  # `single`
                assert any(at in mark for mark in marks[0]), name
            for line in ax.get_lines():
                assert set(xs(line)) <= {*RANKS} or to_hex(line.get_color()) == "#666666", name
            assert ax.get_xscale() == "log"


MANY = (*FOUR, "ddp/nccl", "horovod/nccl", "single")


def test_marks_that_coincide_can_all_be_seen() -> None:
    """What is drawn first is larger, and open where another's filled marker may lie in it."""
    looks = [look(cell, MANY) for cell in MANY]
    for key in ("color", "marker", "markersize", "capsize", "linewidth", "zorder"):
        assert len({one[key] for one in looks}) == len(looks), key
    by_size = sorted(looks, key=lambda one: one["markersize"])
    assert by_size == sorted(looks, key=lambda one: -one["zorder"])
    assert min(np.diff([one["markersize"] for one in by_size])) >= 1
    for cell in MANY:
        assert (look(cell, MANY)["markerfacecolor"] == "none") == cell.startswith("ddp")


def test_half_and_double_are_equally_far_from_one(tmp_path: Path) -> None:
    for world_size, slower in ((1, 2.0), (2, 0.5)):
        for cell, factor in (("ddp/mpi", 1.0), ("horovod/mpi", slower)):
            path = tmp_path / f"{cell[0]}{world_size}.jsonl"
            logs.write(path, logs.config(cell, world_size), 0.1 * factor)
    (ax,) = figures.draw(analyse(load(tmp_path)))["ratio"].axes
    half, one, double = (ax.transData.transform((x, 0))[0] for x in (0.5, 1, 2))
    assert one - half == pytest.approx(double - one)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.5", "0.7", "1", "1.5", "2"]


def test_marks_of_a_ratio_axis() -> None:
    assert ratio_ticks(0.78, 1.03) == [0.8, 0.85, 0.9, 0.95, 1.0]
    assert ratio_ticks(0.97, 1.03) == [0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03]
    assert ratio_ticks(0.2, 5) == [0.25, 0.5, 1, 2, 4]
    assert all(1 in ratio_ticks(1 / x, x) for x in np.linspace(1.02, 30, 50))
    assert ratio_ticks(0.93, 1.07, most=2) == [0.95, 1.0], "one mark gives no scale"
    assert all(len(ratio_ticks(1 / x, x, most=2)) > 1 for x in np.linspace(1.02, 1.7, 50))


def test_no_marker_is_cut_by_the_frame(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        for ax in figure.axes:
            box = ax.get_window_extent()
            for container in bars(ax).values():
                line = container.lines[0]
                at = line.get_transform().transform(np.column_stack([xs(line), ys(line)]))
                inside = box.padded(-line.get_markersize() / 2)
                whole = [inside.contains(x, y) for x, y in at]
                assert all(whole) or not line.get_clip_on(), name
                assert all(box.contains(x, y) for x, y in at), name


def test_efficiency_shows_both_baselines_side_by_side(
    analysis: Analysis, drawn: dict[str, Figure]
) -> None:
    common, own = drawn["weak-efficiency"].axes
    assert "T(1)/T(p)" in common.get_ylabel()
    weak = [s for s in analysis.efficiency if (s.curve, s.kind) == ("weak", "common")]
    expected = {s.point.cell: s.efficiency.value for s in weak if s.point.world_size == 2}
    assert {cell: values(c)[-1] for cell, c in bars(common).items()} == expected
    assert all(values(c)[0] == 1.0 for c in bars(own).values())
    base = f"{weak[0].baseline_images_per_s.value:.1f} images/s"
    said = f"Common baseline: single, 1 rank, 16 images per step: {base}"
    assert said in drawn["weak-efficiency"].get_supxlabel()


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
        (note,) = [t for t in notes if t.startswith(f"{c.paired.ratio:.3f} [")]
        assert "n = 6\nDDP faster" in note
    assert "Horovod against DDP: DDP faster at all 3 points" in words(drawn["ratio"])


def test_every_figure_says_machine_n_and_conditions(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        foot = figure.get_supxlabel()
        assert "Test CPU @ 2 GHz" in foot, name
        counted = (
            "480 timed steps of 24 runs" if name == "steps" else "n = 6 launches; bars: 95 % Stud"
        )
        assert counted in foot, (name, foot)
        assert "resnet50, synthetic data, 32 px, float32" in words(figure), name


def test_nothing_written_overlaps_or_leaves_the_page(drawn: dict[str, Figure]) -> None:
    for name, figure in drawn.items():
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        page = figure.bbox.padded(1)
        texts = (t for ax in figure.axes for t in (*ax.texts, ax.title, ax.xaxis.label))
        written = [t for t in (*figure.texts, *texts) if t.get_text()]
        boxes = [t.get_window_extent(renderer) for t in written]
        for text, box in zip(written, boxes, strict=True):
            assert page.x0 <= box.x0, (name, text)
            assert box.x1 <= page.x1, (name, text)
            assert page.y0 <= box.y0, (name, text)
            assert box.y1 <= page.y1, (name, text)
        for (one, a), (other, b) in itertools.combinations(zip(written, boxes, strict=True), 2):
            assert not a.padded(-1).overlaps(b.padded(-1)), (name, one, other)


def test_one_block_draws_points_without_bars(tmp_path: Path) -> None:
    a = analyse(load(logs.study(tmp_path, blocks=1)))
    drawn = figures.draw(a)
    (ax,) = drawn["weak-throughput"].axes
    assert all(len(c.lines[2]) == 0 for c in bars(ax).values())
    assert "n = 1: one launch, no interval" in drawn["ratio"].get_supxlabel()


def test_many_ranks_are_logarithmic_and_settings_get_a_figure_each(tmp_path: Path) -> None:
    for settings in ("shipped", "matched"):
        for cell in ("single", "ddp/mpi", "ddp/gloo", "horovod/gloo"):
            for p in (1,) if cell == "single" else (1, 2, 4, 8, 16):
                run = logs.config(cell, p, 8, settings=settings)
                name = f"{settings}-{cell.replace('/', '-')}-{p}.jsonl"
                logs.write(tmp_path / name, run, 0.1 + 0.01 * p)
    drawn = figures.draw(analyse(load(tmp_path)))
    kinds = "settings-matched", "settings-shipped"
    names = [f"weak-{kind}-{of}" for of in ("throughput", "efficiency") for kind in kinds]
    steps = [f"steps-{kind}" for kind in kinds]
    by_size = [f"ratio-by-size-{kind}" for kind in kinds[::-1]]  # the primary comparison's first
    assert list(drawn) == [*by_size, "ratio", *names, *steps]
    (ax,) = drawn["weak-settings-shipped-throughput"].axes
    assert ax.get_yscale() == "log"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert list(ax.get_xticks()) == [1, 2, 4, 8, 16]
    assert list(bars(ax)) == ["single", "ddp/mpi", "ddp/gloo", "horovod/gloo"]


def test_the_first_row_is_the_primary_comparison(tmp_path: Path) -> None:
    """Whose variant another one's name may come before."""
    precisions = ("float32", "bf16")
    sizes = 'cells = ["ddp/mpi", "horovod/mpi"]\nscaling = ["weak"]\nworld_sizes = [2]\n'
    variants = "".join(f'[variants.{x}]\nprecision = "{x}"\n' for x in precisions)
    logs.study_toml(tmp_path, more=f"{sizes}[weak]\nbatch_per_rank = 16\n{variants}")
    for block, cell, precision in itertools.product(
        range(6), ("ddp/mpi", "horovod/mpi"), precisions
    ):
        run = logs.config(cell, 2, block=block, seed=block, precision=precision, variant=precision)
        logs.write(tmp_path / f"{block}-{cell.replace('/', '-')}-{precision}.jsonl", run, 0.1)
    a = analyse(load(tmp_path))
    assert a.primary is not None
    assert a.primary.words == ("precision=float32",)
    drawn = figures.draw(a)
    assert next(iter(drawn)) == "ratio"
    rows = [label.get_text() for label in drawn["ratio"].axes[0].get_yticklabels()]
    assert rows == [
        "primary: 2 ranks, 16 per rank\nmpi: weak; precision=float32",
        "2 ranks, 16 per rank\nmpi: weak; precision=bf16",
    ]


def test_lines_join_one_fixed_configuration_only(tmp_path: Path) -> None:
    for batch in (8, 16):
        for p in (1, 2):
            run = logs.config("ddp/mpi", p, batch)
            logs.write(tmp_path / f"{batch}-{p}.jsonl", run, 0.01 * batch)
    drawn = figures.draw(analyse(load(tmp_path)))
    kinds = ("throughput", "efficiency")
    names = [f"weak-{batch}-{kind}" for kind in kinds for batch in (8, 16)]
    assert list(drawn) == [*names, "steps-8", "steps-16"]
    assert [len(xs(c.lines[0])) for c in bars(drawn["weak-8-throughput"].axes[0]).values()] == [2]


def test_batch_sweep(tmp_path: Path) -> None:
    for batch in (4, 8, 32):
        run = logs.config("ddp/mpi", 2, batch, curves=("batch",))
        logs.write(tmp_path / f"{batch}.jsonl", run, 0.05 + 0.01 * batch)
    (ax,) = figures.draw(analyse(load(tmp_path)))["batch-throughput"].axes
    assert ax.get_xlabel() == "images per rank"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["4", "8", "32"]


def test_drawing_again_gives_the_same_bytes(analysis: Analysis, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        figures.save(figures.draw(analysis), tmp_path / folder)
    first = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()}
    assert first == {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}
    assert {p.suffix for p in (tmp_path / "a").iterdir()} == {".svg", ".png"}
    assert all(len(data) > 5000 for name, data in first.items() if name.endswith(".png"))
    assert b"<dc:date>" not in first["ratio.svg"]


def test_below_six_blocks_the_blocks_stand_in_place_of_bars(tmp_path: Path) -> None:
    """Of two blocks of different speed: t intervals would span orders of magnitude."""
    for block, factor in enumerate((1.0, 2.0)):
        for cell in ("ddp/mpi", "horovod/mpi"):
            for p in (1, 2):
                more = factor if cell == "ddp/mpi" else 1.0
                run = logs.config(cell, p, block=block)
                logs.write(tmp_path / f"{block}-{cell[0]}-{p}.jsonl", run, 0.1 * more)
    drawn = figures.draw(analyse(load(tmp_path)))
    (ax,) = drawn["weak-throughput"].axes
    found = bars(ax)["ddp/mpi"]
    assert len(found.lines[2]) == 0
    rings = [line for line in ax.get_lines() if line.get_marker() == "o"]
    dots = [line for line in rings if line.get_linestyle() == "None"]
    at_two = [ys(line) for line in dots if xs(line) == [2, 2]]
    assert at_two[0] == pytest.approx([320, 160])
    assert max(values(found)) < ax.get_ylim()[1] < 2 * 320
    foot = drawn["weak-throughput"].get_supxlabel()
    assert "n = 2 launches; dots: single launches, as fewer than 6 bear no interval" in foot
    assert "Student" not in foot
    title = "Images/s at 2 ranks, weak scaling: n = 2, too few launches for an interval"
    assert title in words(drawn["weak-throughput"]).replace("\n", " ")
    (ax,) = drawn["ratio"].axes
    blocks = [xs(line) for line in ax.get_lines() if line.get_marker() == "o"]
    assert blocks == [pytest.approx([1, 2])] * 2
    assert any(t.get_text().startswith("1.414 (n = 2)\nNot settled") for t in ax.texts)


def test_an_arrow_where_the_frame_cuts_an_interval(tmp_path: Path) -> None:
    for block in range(6):
        for cell in ("ddp/mpi", "horovod/mpi"):
            for p in (1, 2):
                wild = 200.0 if (p, block, cell) == (2, 0, "horovod/mpi") else 1.0
                run = logs.config(cell, p, block=block)
                logs.write(tmp_path / f"{block}-{cell[0]}-{p}.jsonl", run, 0.1 * wild)
    drawn = figures.draw(analyse(load(tmp_path)))
    (ax,) = drawn["ratio"].axes
    arrows = [
        (line.get_marker(), xs(line)) for line in ax.get_lines() if line.get_marker() in (4, 5)
    ]
    assert arrows == [(5, [ax.get_xlim()[1]])]
    (ax,) = drawn["weak-throughput"].axes
    (up,) = [line for line in ax.get_lines() if line.get_marker() == 6]
    assert (xs(up), ys(up)) == ([2], [ax.get_ylim()[1]])
    note = "Arrows: the interval goes on; the tables have its end."
    for name in ("ratio", "weak-throughput"):
        assert note in drawn[name].get_supxlabel()


def test_titles_have_numbers_for_people_and_their_intervals(drawn: dict[str, Figure]) -> None:
    for name in ("weak-throughput", "weak-efficiency", "strong-speedup"):
        title = drawn[name].texts[0].get_text()
        assert len(re.findall(r"\[[\d.,]+, [\d.,]+\]", title)) == 2, title
    for figure in drawn.values():
        legends = [found for ax in figure.axes if (found := ax.get_legend())]
        legend = [t.get_text() for found in legends for t in found.get_texts()]
        for text in [words(figure), figure.get_supxlabel(), *legend]:
            assert not re.search(r"\de[+-]\d", text)


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    """Dollars are no mathematics, and the longest name of a log leaves the page readable."""
    for p in (1, 2):
        ranks = [{"rank": r, "hostname": "n", "cpu": "$\\bad$ \x07"} for r in range(p)]
        run = logs.config("ddp/mpi", p, dataset="x.y:" + "z" * 4000)
        logs.write(tmp_path / f"{p}.jsonl", run, 0.1, provenance=logs.host(p, ranks=ranks))
    drawn = figures.draw(analyse(load(tmp_path)))
    figures.save(drawn, tmp_path)
    assert "$\\bad$ ?" in drawn["weak-throughput"].get_supxlabel()
    assert max(len(line) for figure in drawn.values() for line in words(figure).splitlines()) < 300
