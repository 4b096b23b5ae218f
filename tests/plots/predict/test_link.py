"""Links: what was put into sweeps is recovered, the fastest way is taken, bad files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.config import UsageError
from bench.study.collectives import Measured, Timed
from plots.predict.link import Link, Regime, alike, fitted, read

SIZES = [2.0**k for k in range(10, 29)]


def sweep(link: Link, ranks: int, noise: float = 0.0, ranks_per_node: int = 1) -> Measured:
    generator = np.random.default_rng(ranks)
    timed = []
    for size in SIZES:
        seconds = float(link.seconds(size, np.array([float(ranks)]))[0])
        times = tuple(seconds * np.exp(noise * generator.standard_normal(5)))
        timed.append(Timed(kind="all_reduce", bytes=int(size), ranks=ranks, seconds=times))
    return Measured(
        cell="ddp/mpi",
        ranks=ranks,
        machine="CPU",
        timed=tuple(timed),
        ranks_per_node=ranks_per_node,
    )


def plain(latency: float, rate: float, *algorithms: str) -> Link:
    regime = Regime(latency_seconds=latency, bytes_per_s=rate)
    return Link(source="made up", algorithms=algorithms or ("ring",), regimes=(regime,))


def test_fifty_microseconds_and_three_gigabytes_are_recovered() -> None:
    truth = plain(50e-6, 3e9)
    link = fitted([sweep(truth, 8)])
    for regime in link.regimes:
        assert regime.latency_seconds == pytest.approx(50e-6)
        assert regime.bytes_per_s == pytest.approx(3e9)
    assert np.abs(link.relative_errors([sweep(truth, 64)])).max() < 1e-9, "eight times the ranks"
    assert "ddp/mpi on 8 ranks of CPU" in link.source


@pytest.mark.parametrize("rate", [1e9, 1e15])
def test_two_regimes_meet_where_steps_have_equal_bytes(rate: float) -> None:
    """Also where the bytes of small messages cost nothing."""
    small = Regime(latency_seconds=5e-6, bytes_per_s=rate)
    large = Regime(latency_seconds=40e-6, bytes_per_s=4e9, first_step_bytes=40e3)
    truth = Link(source="made up", algorithms=("ring",), regimes=(small, large))
    link = fitted([sweep(truth, 2), sweep(truth, 4)])
    assert [r.latency_seconds for r in link.regimes] == pytest.approx([5e-6, 40e-6])
    assert [r.bytes_per_s for r in link.regimes] == pytest.approx([rate, 4e9], rel=1e-3)
    first = link.regimes[1].first_step_bytes
    assert 2**15 < first < 2**16, "between the sizes on both sides of 40 kB"
    assert np.abs(link.relative_errors([sweep(truth, 32)])).max() < 1e-6


TWO_LEVELS = Regime(
    latency_seconds=20e-6,
    bytes_per_s=1e9,
    node_latency_seconds=2e-6,
    node_bytes_per_s=1e10,
)


@pytest.mark.parametrize("way", ["ring", "rabenseifner"])
def test_sweeps_of_one_node_and_of_several_tell_two_levels(way: str) -> None:
    truth = Link(source="made up", algorithms=(way,), ranks_per_node=4, regimes=(TWO_LEVELS,))
    inside, over = ([sweep(truth, n, 0, min(n, 4)) for n in each] for each in ((2, 4), (8, 16)))
    link = fitted([*inside, *over], ("ring", "rabenseifner"))
    assert link.algorithms == (way,)
    assert link.ranks_per_node == 4
    for regime in link.regimes:
        for name, value in TWO_LEVELS.model_dump(exclude={"first_step_bytes"}).items():
            assert getattr(regime, name) == pytest.approx(value), name
    beyond = [sweep(truth, n) for n in (3, 64)]
    assert np.abs(link.relative_errors(beyond)).max() < 1e-6
    for one_level in (inside, over):
        assert fitted(one_level).ranks_per_node == 1
        assert np.abs(fitted(one_level).relative_errors(beyond)).max() > 0.05, "the other is none"


def test_a_node_of_which_nothing_is_left_does_not_spoil_the_network() -> None:
    """One node, of busy cores, took longer than two of them."""
    slow, quick = plain(1e-3, 1e8), plain(1e-4, 1e9)
    link = fitted([sweep(slow, 2, 0, 2), sweep(quick, 4, 0, 2)])
    seconds = link.seconds(np.array([1e3, 1e8]), np.array([8.0, 8.0]))
    assert np.all((seconds > 0) & (seconds < 10 * slow.seconds(1e8, np.array([8.0]))))


def test_sweeps_of_another_layout_are_left_out() -> None:
    truth = plain(1e-6, 1e9)
    pair, four, spread, eight = (
        sweep(truth, n, 0, of) for n, of in ((2, 2), (4, 4), (4, 1), (8, 2))
    )
    assert alike([pair, four, spread, eight]) == [pair, eight]
    assert alike([pair, four, spread, eight], 1) == [spread]
    assert alike([pair, four]) == [pair, four], "one node alone"
    assert alike([pair, eight], 1) == [], "a study of one rank on each node has no sweep"


def test_two_numbers_of_ranks_tell_the_algorithm() -> None:
    ways = ("ring", "recursive_doubling")
    doubling = plain(20e-6, 2e9, "recursive_doubling")
    assert fitted([sweep(doubling, 2), sweep(doubling, 8)], ways).algorithms == ways[1:]
    assert fitted([sweep(doubling, 8)], ways).algorithms == ways[:1], "one cannot"
    noisy = [sweep(doubling, ranks, noise=0.05) for ranks in (2, 4, 8)]
    link = fitted(noisy, ways)
    assert link.algorithms == ways[1:]
    assert np.abs(link.relative_errors([sweep(doubling, 64)])).max() < 0.1


def test_the_fastest_of_algorithms_and_protocols_is_taken() -> None:
    quick = Regime(latency_seconds=1e-6, bytes_per_s=5e9)
    bulk = Regime(latency_seconds=14e-6, bytes_per_s=10e9)
    both = Link(source="made up", algorithms=("ring", "tree"), regimes=(quick, bulk))
    ranks = np.array([2.0, 64.0, 1024.0])
    for size in (1e3, 1e6, 1e9):
        each = [
            Link(source="made up", algorithms=(name,), regimes=(regime,)).seconds(size, ranks)
            for name in both.algorithms
            for regime in both.regimes
        ]
        assert both.seconds(size, ranks) == pytest.approx(np.min(each, axis=0))


STATED = """
source = "A switch's data sheet"
algorithms = ["ring", "two_level"]
ranks_per_node = 4
[[regimes]]
latency_seconds = 10e-6
bytes_per_s = 10e9
node_latency_seconds = 5e-6
node_bytes_per_s = 50e9
"""


def test_a_stated_link(tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.write_text(STATED)
    assert read(path).seconds(100e6, np.array([8.0])) == pytest.approx([5.55e-3])


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"ring"', '"rings"', "'rings' is none of ring, "),
        ("bytes_per_s = 10e9", "bytes_per_s = 0", "should be greater than 0"),
        ("bytes_per_s = 10e9", "bytes_per_s = nan", "bytes_per_s"),
        ("latency_seconds = 10e-6", "latency_secs = 10e-6", "unknown key 'regimes.0.latency_secs'"),
        ("node_bytes_per_s", "first_step_bytes = 1\nnode_bytes_per_s", "leave first_step_bytes"),
        ("ranks_per_node = 4", "ranks_per_node = ", "Invalid value"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "link.toml"
    path.write_text(STATED.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)


def test_sweeps_that_tell_nothing_are_refused() -> None:
    one = sweep(plain(1e-6, 1e9), 1)
    with pytest.raises(UsageError, match="no all-reduce of two or more ranks"):
        fitted([one])
    timed = tuple(
        Timed(kind="all_reduce", bytes=size, ranks=2, seconds=(1e-3,)) for size in (8, 16, 32)
    )
    flat = Measured(cell="ddp/mpi", ranks=2, machine="CPU", timed=timed)
    with pytest.raises(UsageError, match="from 4 bytes a step on tell no bandwidth; sweep"):
        fitted([flat])
