"""The overhead bench: its bar on known answers, and that it trains on the study's samples."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

from bench.config import RunConfig
from bench.data import batches, load_images
from tests.overhead import __main__ as overhead
from tests.overhead.measure import bare_batches


def test_the_bare_loop_sees_the_same_samples() -> None:
    config = RunConfig(backend="ddp", world_size=2, global_batch=600, dataset="digits")
    images = load_images(config)
    # two steps an epoch, so this crosses into the second
    for rank in range(2):
        bare = bare_batches(config, rank, images)
        for ours, by_hand in zip(islice(batches(config, rank, images), 4), bare, strict=False):
            assert all(map(torch.equal, ours, by_hand))


@pytest.mark.parametrize(
    ("ours_seconds", "holds"),
    [
        ((2.0, 2.0, 2.0), True),
        ((1.0, 1.0, 1.0), True),
        ((2.0, 2.1, 1.9), False),  # the interval is too wide
        ((2.1, 2.1, 2.1), False),  # 5 % slower
    ],
)
def test_the_bar(tmp_path: Path, ours_seconds: tuple[float, ...], holds: bool) -> None:
    ratios = []
    for seconds in ours_seconds:
        pairs = [{"ours": seconds * x, "bare": 2.0 * x} for x in (0.5, 2)]
        events = [{"event": "start"}, *({"event": "pair", "seconds": pair} for pair in pairs)]
        (tmp_path / "log").write_text("".join(json.dumps(event) + "\n" for event in events))
        ratios.append(overhead.ratio_in(tmp_path / "log"))
    assert overhead.holds("ddp/mpi", ratios) == holds
