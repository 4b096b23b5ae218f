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
        bare = bare_batches(config, rank)
        for ours, by_hand in zip(islice(batches(config, rank, images), 4), bare, strict=False):
            assert all(map(torch.equal, ours, by_hand))


@pytest.mark.parametrize(
    ("ours_seconds", "word"),
    [
        ((2.0, 2.0, 2.0), "ratio 1.0000 [1.0000, 1.0000]"),
        ((1.0, 1.0, 1.0), "ratio 2.0000 [2.0000, 2.0000]"),
        ((2.0, 2.1, 1.9), "DOES NOT HOLD"),  # the interval is too wide
        ((2.1, 2.1, 2.1), "DOES NOT HOLD"),  # 5 % slower
    ],
)
def test_the_bar(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ours_seconds: tuple[float, ...],
    word: str,
) -> None:
    ratios = []
    for seconds in ours_seconds:
        pairs = [{"ours": seconds * x, "bare": 2.0 * x} for x in (0.5, 2)]
        events = [{"event": "start"}, *({"event": "pair", "seconds": pair} for pair in pairs)]
        (tmp_path / "log").write_text("".join(json.dumps(event) + "\n" for event in events))
        ratios.append(overhead.ratio_in(tmp_path / "log"))
    assert overhead.holds("ddp/mpi", ratios, 9) == (word != "DOES NOT HOLD")
    assert word in capsys.readouterr().out.replace("throughput of ours / bare", "ratio")
