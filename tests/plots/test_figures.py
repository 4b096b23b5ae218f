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
    folder = logs.study(tmp_path_factory.mktemp("study"), launches=6)
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


def test_the_ratio_has_every_comparison_its_interval_its_launches_and_the_margin(
    analysis: Analysis, drawn: dict[str, Figure]
) -> None:
    (ax,) = drawn["ratio"].axes
    rows = {c.paired.ratio: c for c in analysis.comparisons}
    containers = [c for c in ax.containers if isinstance(c, ErrorbarContainer)]
    assert sorted(xs(c.lines[0])[0] for c in containers) == sorted(rows)
    for container in containers:
        c = rows[xs(container.lines[0])[0]]
        ((segment,),) = [bar.get_segments() for bar in container.lines[2]]
        assert [float(end[0]) for end in segment] == pytest.approx(c.paired.interval(c.level))
        assert any(xs(line) == list(c.paired.ratios) for line in ax.get_lines())
        (row,) = {*ys(container.lines[0])}
        texts = [t.get_text() for t in ax.texts if t.xy[1] == row]  # type: ignore[attr-defined]
        assert any("\nDDP faster: " in text for text in texts), "as decided"
    (band,) = ax.patches
    low, high = band.get_path().get_extents(band.get_patch_transform()).intervalx
    edge = 1 + analysis.loaded.study.margin
    assert (low, high) == pytest.approx((1 / edge, edge))


def test_scaling_has_every_point_its_interval_and_the_ideal(
    analysis: Analysis, drawn: dict[str, Figure]
) -> None:
    top_weak, top_strong, weak, strong, _ = drawn["scaling"].axes
    assert [top_weak.get_ylabel(), weak.get_ylabel()] == ["images/s", "efficiency"]
    for curve, top, bottom in (("weak", top_weak, weak), ("strong", top_strong, strong)):
        assert top.get_title().startswith(f"{curve}: ")
        assert bottom.get_xlabel() == "ranks"
        assert [t.get_text() for t in bottom.get_xticklabels()] == ["1", "2"]
        assert top.get_ylim()[0] == bottom.get_ylim()[0] == 0
        speeds = [t for t in analysis.throughput if t.curve == curve]
        common = [s for s in analysis.efficiency if (s.curve, s.kind) == (curve, "common")]
        for ax, rows, name in ((top, speeds, "images_per_s"), (bottom, common, "efficiency")):
            shown = bars(ax)
            assert {*shown} == {r.point.cell for r in rows}
            for cell, container in shown.items():
                estimates = [getattr(r, name) for r in rows if r.point.cell == cell]
                assert values(container) == [e.value for e in estimates]
                for drawn_ends, e in zip(ends(container), estimates, strict=True):
                    assert drawn_ends == pytest.approx((e.low, e.high))
        single = values(bars(top)["single"])[0]
        (ideal,) = [line for line in top.get_lines() if line.get_label() == "ideal"]
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


def test_lines_join_one_fixed_configuration_only(tmp_path: Path) -> None:
    """Without a plain process efficiency is over each cell's own one rank, where it is 1."""
    for batch in (8, 16):
        for p in (1, 2):
            run = logs.config("ddp/mpi", p, batch)
            logs.write(tmp_path / f"{batch}-{p}.jsonl", run, 0.01 * batch)
    drawn = figures.draw(analyse(load(tmp_path)))
    assert list(drawn) == ["scaling"]
    axes = drawn["scaling"].axes[:4]
    assert [ax.get_title() for ax in axes[:2]] == [f"weak: {n}\nimages per rank" for n in (8, 16)]
    lines = [line for ax in axes for line in bars(ax).values()]
    assert [len(xs(line.lines[0])) for line in lines] == [2] * 4
    assert [values(line) for line in lines[2:]] == [pytest.approx([1, 1], rel=0.02)] * 2


def test_below_six_launches_the_launches_stand_in_place_of_bars(tmp_path: Path) -> None:
    """Of two launches of different speed: t intervals would span orders of magnitude."""
    for launch, factor in enumerate((1.0, 2.0)):
        for cell in ("ddp/mpi", "horovod/mpi"):
            for p in (1, 2):
                more = factor if cell == "ddp/mpi" else 1.0
                run = logs.config(cell, p, launch=launch)
                logs.write(tmp_path / f"{launch}-{cell[0]}-{p}.jsonl", run, 0.1 * more)
    drawn = figures.draw(analyse(load(tmp_path)))
    ax = drawn["scaling"].axes[0]
    found = bars(ax)["ddp/mpi"]
    assert len(found.lines[2]) == 0
    rings = [line for line in ax.get_lines() if line.get_marker() == "o"]
    dots = [line for line in rings if line.get_linestyle() == "None"]
    at_two = [ys(line) for line in dots if xs(line) == [2, 2]]
    assert at_two[0] == pytest.approx([320, 160])
    assert max(values(found)) < ax.get_ylim()[1] < 2 * 320
    (ax,) = drawn["ratio"].axes
    launches = [xs(line) for line in ax.get_lines() if line.get_marker() == "o"]
    assert launches == [pytest.approx([1, 2])] * 2
