"""Collectives: bandwidths and lines on known answers, the options, and real ranks that check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from bench.backends.catalogue import PLAIN, engines, frameworks
from bench.backends.collectives import Collectives
from bench.backends.protocol import Backend
from bench.config import UsageError
from bench.study.collectives import KINDS, Timed, bus_factor, fit, line, read
from bench.tools.collectives.command import COPIES, SIZES, fitting, in_bytes, parse
from bench.tools.collectives.measure import time_one
from bench.train.device import Cpu
from tests.bench.ranks import bench


def test_a_known_bandwidth() -> None:
    """A ring of 8 ranks, 100 MB, 10 us and 10 GB/s a hop (Thakur et al. 2005): 17.64 ms."""
    timed = Timed(kind="all_reduce", bytes=10**8, ranks=8, seconds=(0.02, 0.01764, 0.01))
    assert timed.median_s == 0.01764
    assert timed.bus_bytes_per_s == pytest.approx(9.920634920634921e9)
    factors = [bus_factor(kind, 4) for kind in KINDS]
    assert factors == [1.5, 0.75, 1.0, 0.75], "as nccl-tests has them"


def test_two_regimes_are_found_with_their_latency_and_bandwidth() -> None:
    small = {2**k: 20e-6 + 2**k / 1e9 for k in range(10, 18, 2)}
    large = {2**k: 400e-6 + 2**k / 4e9 for k in range(20, 28, 2)}
    times = {**large, **small}  # in any order
    one, two = fit(list(times), list(times.values()))
    assert (one.first_bytes, one.last_bytes) == (2**10, 2**16)
    assert (two.first_bytes, two.last_bytes) == (2**20, 2**26)
    assert (one.latency_s, one.bytes_per_s) == pytest.approx((20e-6, 1e9))
    assert (two.latency_s, two.bytes_per_s) == pytest.approx((400e-6, 4e9))
    assert one.seconds(2**30) == pytest.approx(20e-6 + 2**30 / 1e9)
    assert max(one.worst, two.worst) < 1e-9


def test_few_sizes_make_one_line_and_no_part_of_it_is_negative() -> None:
    (line,) = fit([1000, 2000, 3000], [3.0, 2.0, 1.0])
    assert (line.s_per_byte, line.bytes_per_s) == (0.0, None)
    assert 1 < line.latency_s < 2
    assert fit([1000], [1.0]) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-6, 10)), min_size=2, max_size=30))
def test_a_line_is_the_least_of_those_without_a_negative_part(
    times: list[tuple[float, float]],
) -> None:
    """As scipy's solver finds it, which takes most of a second to import."""
    x, t = (np.array(values) for values in zip(*times, strict=True))
    columns = np.stack([1 / t, x / t], axis=1)
    _, least = nnls(columns / columns.max(axis=0), np.ones(len(x)))
    cost, lost = line(x.tolist(), t.tolist())
    assert lost == pytest.approx(least**2, rel=1e-6, abs=1e-9)
    assert min(cost.latency_s, cost.s_per_byte) >= 0
    off = (cost.latency_s + cost.s_per_byte * x) / t - 1
    assert np.sum(off**2) == pytest.approx(lost, rel=1e-6, abs=1e-9)


def test_options() -> None:
    options, config = parse([])
    assert (config.cell, options.sizes, options.kinds) == ("ddp/mpi", SIZES, KINDS)
    assert (SIZES[0], SIZES[-1]) == (2**10, 2**28)
    options, config = parse(["--backend", PLAIN, "--sizes", "1MiB,64,2KiB"])
    assert (options.cell(config), config.transport) == (PLAIN, "mpi")
    assert options.sizes == (64, 2048, 2**20)
    assert [in_bytes(size) for size in options.sizes] == ["64 B", "2 KiB", "1 MiB"]
    _, config = parse(["--backend", "horovod", "--transport", "gloo"])
    assert config.cell == "horovod/gloo"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--sizes", "1kb"], "'1kb' is no size such as 4, 64KiB or 256MiB"),
        (["--kinds", "all_to_all"], "'all_to_all' is none of all_reduce, all_gather, broadcast"),
        (
            ["--repetitions", "0"],
            "--repetitions '0': Input should be greater than or equal to 1; see",
        ),
        (["--backend", PLAIN, "--transport", "gloo"], "is MPI alone; leave --transport out"),
        (["--transport", "nccl"], "with device=cpu use --transport mpi or gloo"),
    ],
)
def test_wrong_options_are_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_is_left_out() -> None:
    assert fitting((1, 100, 101), 4, 2 * COPIES * 4 * 100) == (1, 100)


def test_every_framework_has_its_collectives() -> None:
    without = [name for name in frameworks() if name not in engines()]
    # they call MPI's, which are timed as mpi4py
    assert without == ["handwritten", "ps"]


class Alone(Collectives):
    """One rank's broadcast, right the first time and afterwards only if it is asked to be."""

    def __init__(self, right: bool) -> None:
        super().__init__(parse([])[1])
        self._right = right

    def broadcast(self, whole: torch.Tensor) -> torch.Tensor:
        whole[-1] += not self._right
        return whole


@pytest.mark.parametrize("right", [True, False])
def test_one_wrong_number_is_counted(right: bool) -> None:
    found = time_one(Alone(right), "broadcast", 4000, 3, Backend(), Cpu(), 0)
    assert (found.bytes, found.wrong) == (4000, 0 if right else 3)
    assert [len(seconds) for seconds in found.seconds] == [3]


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("backend", "transport", "ranks"), [("ddp", "gloo", 2), ("horovod", "mpi", 3)]
)
def test_real_ranks(tmp_path: Path, backend: str, transport: str, ranks: int) -> None:
    """Three ranks do not divide a kibibyte; a log has what the table says."""
    log = tmp_path / "run.jsonl"
    cell = ["--backend", backend, "--transport", transport, "--world-size", str(ranks)]
    sizes = ["--sizes", "1KiB,64KiB,1MiB", "--repetitions", "3", "--log-path", str(log)]
    done = bench(ranks, "collectives", *cell, *sizes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every result was right" in done.stdout
    found = read(log)
    assert (found.cell, found.ranks) == (f"{backend}/{transport}", ranks)
    assert [len(found.of(kind)) for kind in KINDS] == [3] * 4
    assert found.of("all_reduce")[0].bytes == {2: 1024, 3: 1032}[ranks]
    events: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    assert events[0]["host"]["versions"]["torch"]
    timed = [e for e in events if e["event"] == "collective"]
    assert all([len(s) for s in e["seconds"]] == [3] * ranks for e in timed)


@pytest.mark.parametrize("text", ["", "no JSON", '{"event": "start"}', "[]"])
def test_what_is_no_log_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no log of bench collectives; name one"):
        read(path)
