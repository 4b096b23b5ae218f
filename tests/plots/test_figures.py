"""Figures show what the analysis says: looked at as Figure objects, not as files."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from bench.study.frames import load
from plots.analyse.study import Analysis, analyse
from plots.report import figures
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
    """Read the lower and upper end of each drawn interval."""
    (segments,) = container.lines[2]
    return [(float(s[0][1]), float(s[1][1])) for s in segments.get_segments()]


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


def test_lines_join_one_fixed_configuration_only(tmp_path: Path) -> None:
    for batch in (8, 16):
        for p in (1, 2):
            run = logs.config("ddp/mpi", p, batch)
            logs.write(tmp_path / f"{batch}-{p}.jsonl", run, 0.01 * batch)
    drawn = figures.draw(analyse(load(tmp_path)))
    kinds = ("throughput", "efficiency")
    names = [f"weak-{batch}-{kind}" for kind in kinds for batch in (8, 16)]
    assert list(drawn) == names
    assert [len(xs(c.lines[0])) for c in bars(drawn["weak-8-throughput"].axes[0]).values()] == [2]


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
    (ax,) = drawn["ratio"].axes
    blocks = [xs(line) for line in ax.get_lines() if line.get_marker() == "o"]
    assert blocks == [pytest.approx([1, 2])] * 2
