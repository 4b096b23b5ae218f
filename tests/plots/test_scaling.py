"""True ratios put into synthetic logs come back; what may not be compared is not."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.study import comparability, looks, stats, words
from bench.study.comparison import Comparison
from bench.study.definition import Point
from bench.study.frames import load, name_sessions
from plots.analyse import scaling
from plots.analyse.scaling import Efficiency
from plots.analyse.study import Analysis, analyse
from tests.plots import logs


def analysed(folder: Path) -> Analysis:
    return analyse(load(folder))


def near(e: stats.Estimate, truth: float) -> bool:
    """Check an estimate to 1 %: four standard errors of eight pairs with 0.5 % of noise a run."""
    assert e.low is not None
    assert e.high is not None
    assert 0 < e.high / e.low - 1 < 0.03
    return e.value == pytest.approx(truth, rel=0.01)


def compared(a: Analysis, world_size: int = 2) -> Comparison:
    size = (world_size, 16)
    (found,) = [c for c in a.comparisons if (c.world_size, c.batch_per_rank) == size]
    return found


def scaled(a: Analysis, cell: str, kind: str = "common", curve: str = "weak") -> Efficiency:
    wanted = (curve, cell, kind, 2)
    rows = [((s.curve, s.point.cell, s.kind, s.point.world_size), s) for s in a.efficiency]
    (found,) = [s for names, s in rows if names == wanted]
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysed(logs.study(tmp_path_factory.mktemp("study"), launches=8, sd=0.005))


def test_the_true_ratio_comes_back(study: Analysis) -> None:
    """Launch noise of 10 % drowns the 10 % effect unless it is paired away."""
    c = compared(study)
    assert near(c.paired.estimate, 1.05 / 1.155)
    assert c.half_width is not None
    assert c.half_width < 0.02
    assert (c.paired.n, c.verdict, c.curves) == (8, "faster", ("weak", "strong"))
    assert re.fullmatch(r"DDP faster: 9\.9 % \[9\.\d, 10\.\d\]", words.sentence(c))
    low, high = c.paired.interval(c.level) or (0, 0)
    assert low < 1.05 / 1.155 < high
    assert replace(c, median_ratio=c.paired.ratio * 1.03).skewed
    assert not replace(c, median_ratio=c.paired.ratio * 1.01).skewed


def test_true_efficiency_comes_back(study: Analysis) -> None:
    weak, own = scaled(study, "ddp/mpi"), scaled(study, "ddp/mpi", "own")
    assert near(weak.efficiency, 1 / (1.05 * 1.5))
    assert near(own.efficiency, 1 / 1.5)
    assert weak.baseline == Point("single", "", 1, 16)
    assert own.baseline == Point("ddp/mpi", "", 1, 16)
    for s in (weak, own):  # the baseline's absolute value is that of its own row
        (row,) = [t for t in study.throughput if (t.curve, t.point) == ("weak", s.baseline)]
        assert s.baseline_images_per_s == row.images_per_s
    assert weak.paired
    # the launch noise is 10 %
    assert weak.step_overhead_seconds == pytest.approx(0.1 * (1.05 * 1.5 - 1), rel=0.15)
    strong = scaled(study, "horovod/mpi", curve="strong")
    assert strong.baseline == Point("single", "", 1, 32)
    assert near(strong.speedup, 2 / (1.155 * 1.5))
    assert near(strong.efficiency, 1 / (1.155 * 1.5))
    assert strong.step_overhead_seconds is None


def test_throughput_is_per_launch_and_on_time(tmp_path: Path) -> None:
    """Repeats of 0.1 and 0.3 s are 0.2 s, 80 images/s; the mean of rates would be 106.7."""
    for launch, repeats in enumerate(((0.1, 0.3), (0.2, 0.2))):
        for i, seconds in enumerate(repeats):
            logs.write(
                tmp_path / f"{launch}-{i}.jsonl", logs.config("single", launch=launch), seconds
            )
    (t,) = scaling.throughput(analysed(tmp_path).table)
    assert (t.images_per_s.n, t.runs) == (2, 4)
    assert t.images_per_s.value == pytest.approx(80.0)
    assert t.step_seconds.value == pytest.approx(0.2)
    assert t.images_per_s.high == pytest.approx(80.0)


def test_below_six_launches_there_is_no_verdict_and_of_one_no_interval(tmp_path: Path) -> None:
    for launches in (1, 5):
        a = analysed(logs.study(tmp_path / str(launches), launches=launches, sd=0.005))
        c = compared(a)
        assert words.sentence(c) == "Not settled: needs 6 launches"
        assert (c.paired.interval() is None) == (launches == 1)
        assert words.prospect(c) == ""
        ends = {(t.images_per_s.low is None, t.images_per_s.n) for t in a.throughput}
        assert ends == {(launches == 1, launches)}


def test_unequal_work_is_not_compared_and_the_field_is_named(tmp_path: Path) -> None:
    logs.study(tmp_path, launches=6, sd=0.005)
    for path in (tmp_path / "runs").glob("*-horovod-mpi-2.jsonl"):
        logs.edit(path, "2.13.0+cpu", "2.12.1+cpu")
    a = analysed(tmp_path)
    assert [c.world_size for c in a.comparisons] == [1, 1]
    assert compared(a, 1).paired.n == 6
    reason = "versions.torch: 2.12.1+cpu, 2.13.0+cpu"
    blocked = [n for n in a.not_compared if n.reason == reason]
    assert "ddp/mpi, 2 ranks, 16 images per rank against horovod/mpi, launch 2" in [
        n.pair for n in blocked
    ]
    assert scaled(a, "ddp/mpi").efficiency.n == 6
    assert {s.point.world_size for s in a.efficiency if s.point.cell == "horovod/mpi"} == {1}
    assert a.varying == [reason]


def test_two_cells_must_have_called_one_nccl_and_taken_one_transport() -> None:
    """The file of the library may lie elsewhere, and headers are one framework's."""
    sides = []
    took = {"nccl": "2.27.3", "nccl library sha256": "a1", "nccl transport": "P2P/CUMEM"}
    for more in ({}, {"nccl headers": "2.18.3"}, {"nccl library sha256": "b2"}):
        place = logs.host(2, versions={**took, **more})
        ranks = [{**rank, "nccl_library": str(more)} for rank in place["ranks"]]
        sides.append(comparability.facts(logs.config("ddp/gloo", 2), {**place, "ranks": ranks}, {}))
    usual, elsewhere, another = sides
    assert comparability.differences([usual, elsewhere]) == []
    assert comparability.differences([usual, another]) == ["versions.nccl library sha256: a1, b2"]
    alone = usual | {"versions.nccl transport": "none"}
    assert len(comparability.differences([usual, alone])) == 1
    # one rank takes no transport and two take one: the same cell all the same
    assert comparability.differences([usual, alone], comparability.OF_THE_POINT) == []


def test_seeds_must_agree_inside_a_launch_only(tmp_path: Path) -> None:
    a = analysed(logs.study(tmp_path / "right", launches=2))  # the seed is the launch's number
    assert not [n for n in a.not_compared if "seed" in n.reason]
    for cell, seed in (("ddp/mpi", 1), ("horovod/mpi", 2)):
        logs.write(tmp_path / "wrong" / f"{seed}.jsonl", logs.config(cell, 2, seed=seed), 0.1)
    a = analysed(tmp_path / "wrong")
    assert a.comparisons == []
    assert [n.reason for n in a.not_compared if "against horovod/mpi, launch 0" in n.pair] == [
        "seed: 1, 2"
    ]


def test_the_primary_comparison_is_decided_at_the_full_error(tmp_path: Path) -> None:
    named = 'primary = { curve = "weak", world_size = 1, batch_per_rank = 16 }\n'
    logs.study_toml(logs.study(tmp_path, launches=6), more=named)
    a = analysed(tmp_path)
    assert a.primary is not None
    assert (a.primary.world_size, a.primary.batch_per_rank) == (1, 16)
    levels = {c.primary: c.level for c in a.comparisons}
    own = looks.schedule(6, 20)
    assert levels == {True: stats.nominal_level(own), False: stats.nominal_level(own, 0.025)}
    assert a.notes == []


def test_unnamed_the_primary_is_of_most_ranks_on_the_first_transport(tmp_path: Path) -> None:
    cells = {"ddp/gloo": 1.0, "horovod/gloo": 1.1, "ddp/mpi": 1.0, "horovod/mpi": 1.1}
    folder = logs.study(tmp_path, launches=6, cells=cells)
    sizes = "scaling = ['weak']\nworld_sizes = [1, 2]\n[weak]\nbatch_per_rank = 16\n"
    for listed in (list(cells), list(cells)[::-1]):
        more = f"cells = {listed}\n{sizes}".replace("'", '"')
        logs.study_toml(folder, more=more)
        a = analysed(folder)
        assert a.primary is not None
        first = listed[0].partition("/")[2]
        assert (a.primary.transport, a.primary.world_size) == (first, 2)
        assert "weak" in a.primary.curves
        assert sum(c.primary for c in a.comparisons) == 1


@pytest.mark.parametrize(
    ("launches", "first", "last", "level", "verdict"),
    [
        (6, 6, 20, 0.0131, "faster"),
        (6, 6, 6, 0.05, "faster"),
        (7, 8, 20, 0.0154, "not settled"),
    ],
)
def test_a_verdict_is_read_at_the_level_of_the_plan_from_the_first_look_on(
    tmp_path: Path, launches: int, first: int, last: int, level: float, verdict: str
) -> None:
    folder = logs.study(tmp_path, launches=launches, sd=0.005)
    logs.study_toml(folder, launches=first, more=f"max_launches = {last}\n")
    a = analysed(folder)
    assert a.primary is not None
    assert a.primary.level == pytest.approx(level, abs=5e-4)
    assert a.primary.verdict == verdict
    if verdict == "not settled":
        assert words.sentence(a.primary) == "Not settled: needs 8 launches"


def test_a_session_ends_with_a_boot_with_other_nodes_and_after_three_hours() -> None:
    night, hour = datetime(2026, 11, 22, 23, tzinfo=UTC).timestamp(), 3600
    runs: list[tuple[str, str, float, str]] = [
        ("session 2026-11-23T04:59:59Z boot a", "x", 6 * hour, "2026-11-23 05:00 boot a"),
        ("session 2026-11-22T22:59:59Z boot a", "x", 0, "2026-11-22 23:00 boot a"),
        ("session 2026-11-23T00:00:00Z boot a", "x", 2.9 * hour, "2026-11-22 23:00 boot a"),
        ("session 2026-11-22T23:00:00Z boot b", "x", 0, "2026-11-22 23:00 boot b"),
        ("job 77, restart 1", "ab", 0, "2026-11-22 23:00 on a, b"),
        ("job 78", "ab", 2 * hour, "2026-11-22 23:00 on a, b"),
        ("job 79", "ac", 2 * hour, "2026-11-23 01:00 on a, c"),
        ("job 80", "ab", math.nan, ""),
        ("job 81", "", 0, ""),
    ]
    rows: list[dict[str, Any]] = [
        {"allocation": allocation, "hosts": hosts, "began_s": night + after_s}
        for allocation, hosts, after_s, _ in runs
    ]
    name_sessions(rows)
    assert [row["session"] for row in rows] == [name for *_, name in runs]


def test_a_baseline_of_another_environment_is_named(tmp_path: Path) -> None:
    """It may lack what carries gradients, and not what computes."""
    logs.study(tmp_path, launches=2)
    for path in (tmp_path / "runs").glob("*-single-*"):
        logs.edit(path, '"OMP_NUM_THREADS": "1"', '"OMP_NUM_THREADS": "1", "UCX_TLS": "tcp"')
    assert analyse(load(tmp_path)).varying == []
    for path in (tmp_path / "runs").glob("*-single-*"):
        logs.edit(path, '"UCX_TLS": "tcp"', '"ONEDNN_MAX_CPU_ISA": "SSE41"')
    assert analyse(load(tmp_path)).varying == ["env.ONEDNN_MAX_CPU_ISA: SSE41, unset"]


def test_who_ran_first_is_told_by_its_place(tmp_path: Path) -> None:
    """Whoever ran first was 1.1 times as fast, so the ratio is 1 and the factor 1.1."""
    for launch in range(6):
        for cell in ("ddp/mpi", "horovod/mpi"):
            position = (launch + (cell == "horovod/mpi")) % 2
            run = logs.config(cell, 2, launch=launch, seed=launch, position=position)
            seconds = (0.1 if position == 0 else 0.11) * (1 + 0.001 * launch)
            logs.write(tmp_path / f"{launch}-{cell[:3]}.jsonl", run, seconds)
    (c,) = analysed(tmp_path).comparisons
    assert c.paired.role is not None
    assert c.paired.role.value == pytest.approx(1.1)
    assert c.paired.ratio == pytest.approx(1.0)
