"""What the exchange costs: known parts of steps in, the three numbers and both figures out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bench.record import read_run
from bench.record.proof import LOADED
from plots.analyse.breakdown import parts_of
from plots.analyse.exchange import Exchange
from plots.analyse.runs import load
from plots.analyse.study import Analysis, analyse
from plots.report import figures
from tests.plots import logs

Parts = dict[str, tuple[float, float]]
# Of ranks 0 and 1, seconds. Rank 1 has its last gradient 4 ms later; both are ready 10 ms after.
ON: Parts = {
    "begin": (50.0, 50.001),
    "input": (0.001, 0.001),
    "forward": (0.020, 0.020),
    "backward": (0.040, 0.043),
    "exposed": (0.014, 0.010),
    "optimiser": (0.005, 0.005),
}
OFF: Parts = ON | {"backward": (0.030, 0.031), "exposed": (0.0, 0.0)}
STUDY = """\
cells = ["ddp/mpi"]
scaling = ["weak"]
world_sizes = [2]
[weak]
batch_per_rank = 16
"""
FOUR = """\
[variants.a]
exchange = "on"
[variants.b]
exchange = "off"
[variants.c]
exchange = "on"
observe = "breakdown"
[variants.d]
exchange = "off"
observe = "breakdown"
"""
APART = dict.fromkeys(("parameters_differ", "loss_finite", "loss_bounded", "parity"), True)
PARTED = {"checks": APART | dict.fromkeys(LOADED, True)}


def run(
    folder: Path, block: int, seconds: float, parts: Parts | None = None, **fields: Any
) -> Path:
    config = logs.config("ddp/mpi", 2, 16, block, seed=block, **fields)
    name = f"{block}-{len(list(folder.glob('*')))}.jsonl"
    end = PARTED if config.ranks_part else {}
    return logs.write(folder / name, config, seconds, parts=parts, end=end)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("exposed")
    for block in range(6):
        slower = 1 + 0.01 * (block % 2)
        observed: dict[str, Any] = {"observe": "breakdown"}
        run(folder, block, 0.080 * slower)
        run(folder, block, 0.060 * slower, exchange="off")
        run(folder, block, 0.090, ON, **observed)
        run(folder, block, 0.070, OFF, exchange="off", **observed)
    logs.study_toml(folder, more=STUDY + FOUR)
    return analyse(load(folder))


@pytest.fixture(scope="module")
def found(analysis: Analysis) -> Exchange:
    assert analysis.exchange is not None
    return analysis.exchange


def test_three_numbers(found: Exchange) -> None:
    (cost,) = found.costs
    assert cost.point.words == ("exchange=on",)
    numbers = (cost.exposed_seconds, cost.inflation_seconds, cost.difference_seconds)
    exposed, inflation, difference = [number for number in numbers if number is not None]
    assert exposed.value == pytest.approx(0.012), "mean over ranks"
    assert inflation.value == pytest.approx(0.0415 - 0.0305)
    assert difference.value == pytest.approx(0.020 * 1.005)
    assert difference.low == pytest.approx(0.0201 - 2.5706 * 0.0001 * (6 / 5) ** 0.5 / 6**0.5, 1e-4)
    assert {e.n for e in (exposed, inflation, difference)} == {6}


def test_the_parts_are_the_whole_step(found: Exchange) -> None:
    on, off = sorted(found.breakdowns, key=lambda b: "exchange=off" in b.point.words)
    assert on.waiting_seconds.value == pytest.approx(0.002), "rank 0 waits 4 ms, rank 1 does not"
    assert on.reducing_seconds.value == pytest.approx(0.010)
    assert on.step_seconds.value == pytest.approx(0.001 + 0.020 + 0.0415 + 0.012 + 0.005)
    assert on.undisturbed_seconds is not None
    assert on.undisturbed_seconds.value == pytest.approx(0.0804, rel=1e-3)
    assert off.waiting_seconds.value == 0, "nobody waits where nothing is exchanged"


def test_observed_runs_count_nowhere_else(analysis: Analysis) -> None:
    assert len(analysis.loaded.runs) == 12
    assert len(analysis.loaded.observed) == 12
    assert [t.images_per_s.value for t in analysis.throughput] == pytest.approx(
        [32 / 0.0603, 32 / 0.0804], rel=1e-3
    )
    assert analysis.gaps == [], "and are no points of a curve"
    assert analysis.loaded.unusable == ()


@pytest.mark.parametrize("ahead", [0.0, 7.5])
def test_clocks_of_two_hosts_are_set_by_the_end_of_the_exchange(
    tmp_path: Path, ahead: float
) -> None:
    config = logs.config("ddp/mpi", 2, observe="breakdown")
    ranks = [{"rank": r, "hostname": f"n{r}", "cpu": "x", "threads": 1} for r in range(2)]
    begin = {"begin": (50.0, 50.001 + ahead)}
    path = logs.write(
        tmp_path / "a.jsonl", config, 0.09, parts=ON | begin, provenance=logs.host(2, ranks=ranks)
    )
    assert parts_of(read_run(path))["waiting"] == pytest.approx(0.002)


def test_overlap_is_held_against_blocking(tmp_path: Path) -> None:
    for block in range(6):
        run(tmp_path, block, 0.080, settings="matched")
        run(tmp_path, block, 0.100, settings="matched", overlap="off")
    a = analyse(load(tmp_path))
    assert a.exchange is not None
    (overlap,) = a.exchange.overlaps
    assert overlap.ratio.value == pytest.approx(1.25)
    assert a.exchange.costs == []


def test_the_stack_is_as_long_as_the_step(analysis: Analysis, found: Exchange) -> None:
    drawn: dict[str, Figure] = figures.draw(analysis)
    (ax,) = drawn["breakdown"].axes
    bars: list[Any] = list(ax.patches)
    longest = [
        max(p.get_x() + p.get_width() for p in bars if abs(p.get_y() + 0.31 - i) < 0.1)
        for i in range(2)
    ]
    on, off = sorted(found.breakdowns, key=lambda b: "exchange=off" in b.point.words)
    assert longest == pytest.approx([on.step_seconds.value, off.step_seconds.value])
    hatches = {(str(p.get_facecolor()), p.get_hatch()) for p in ax.patches}
    assert len(hatches) == len({hatch for _, hatch in hatches}) == 6, "told apart without colours"
    (beside,) = ax.texts
    assert beside.get_text().startswith("exposed 12.0 [12.0, 12.0] ms\ninflation 11.0")


def test_observed_runs_of_another_environment_have_no_undisturbed_step_beside_them(
    tmp_path: Path,
) -> None:
    for block in range(2):
        run(tmp_path, block, 0.080)
        path = run(tmp_path, block, 0.090, ON, observe="breakdown")
        logs.edit(path, '"OMP_NUM_THREADS": "1"', '"OMP_NUM_THREADS": "1", "OMPI_MCA_btl": "tcp"')
    analysis = analyse(load(tmp_path))
    assert analysis.exchange is not None
    (breakdown,) = analysis.exchange.breakdowns
    assert breakdown.undisturbed_seconds is None
    said = {n.pair: n.reason for n in analysis.not_compared}
    what = "ddp/mpi, 2 ranks, 16 images per rank, observed, against the same undisturbed"
    assert said[what] == "env.OMPI_MCA_btl: tcp, unset"
