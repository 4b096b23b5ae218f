"""Collectives: bandwidths on known answers, the options, and real ranks that check."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.backends.protocol import Backend
from bench.config import UsageError
from bench.launch.world import Launch
from bench.study.collectives import Timed, read
from bench.tools.collectives import SIZES, in_bytes, parse, time_one
from bench.train.device import Cpu
from tests.bench.ranks import bench


def test_a_known_bandwidth() -> None:
    """A ring of 8 ranks, 100 MB, 10 us and 10 GB/s a hop (Thakur et al. 2005): 17.64 ms."""
    timed = Timed(bytes=10**8, ranks=8, seconds=(0.02, 0.01764, 0.01))
    assert timed.median_s == 0.01764
    assert timed.bus_bytes_per_s == pytest.approx(9.920634920634921e9)


def test_options() -> None:
    options, config = parse([])
    assert (config.cell, options.sizes) == ("ddp/mpi", SIZES)
    options, config = parse(["--backend", "horovod", "--sizes", "64,2KiB,1MiB"])
    assert config.cell == "horovod/mpi"
    assert [in_bytes(size) for size in options.sizes] == ["64 B", "2.0 KiB", "1.0 MiB"]
    with pytest.raises(UsageError, match="--sizes '1xx': could not interpret byte unit: xx; see"):
        parse(["--sizes", "1xx"])


def test_one_wrong_number_is_counted() -> None:
    launch, backend = Launch("none", 0, 1, 0, 1, "alone"), Backend()
    good = time_one(4000, 3, backend, Cpu(), launch)
    assert (good["bytes"], good["wrong"]) == (4000, 0)
    assert [len(seconds) for seconds in good["seconds"]] == [3]
    last, one = torch.tensor([999]), torch.tensor([1.0])
    vars(backend)["all_reduce"] = lambda tensor: tensor.index_add_(0, last, one)
    assert time_one(4000, 3, backend, Cpu(), launch)["wrong"] == 3


@pytest.mark.ranks
def test_real_ranks(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    cell = ["--backend", "horovod", "--transport", "mpi", "--world-size", "3"]
    sizes = ["--sizes", "1KiB,64KiB,1MiB", "--repetitions", "3", "--log-path", str(log)]
    done = bench(3, "collectives", *cell, *sizes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every result was right" in done.stdout
    measured = read(log)
    assert (measured.cell, measured.ranks) == ("horovod/mpi", 3)
    assert [one.bytes for one in measured.timed] == [1024, 2**16, 2**20]
