"""The overhead bench: its interval on known answers,
and that it trains as the study's loop does.
"""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from bench.config import RunConfig
from bench.data import batches, load_images
from bench.tools.overhead.loops import bare_batches
from bench.tools.overhead.summary import log_interval

DDP = (1000, 1012, 985, 1020, 995, 1005, 990, 1015)
HOROVOD = (980, 995, 968, 1001, 979, 985, 975, 996)


def test_the_interval_of_paired_ratios_on_a_worked_example() -> None:
    got = log_interval([h / d for d, h in zip(DDP, HOROVOD, strict=True)])
    assert got == pytest.approx((0.9821815498, 0.9806991458, 0.9836661946), abs=1e-9)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_bare_loop_sees_the_same_samples(rank: int) -> None:
    config = RunConfig(backend="ddp", world_size=2, global_batch=600, dataset="digits")
    ours = islice(
        batches(config, rank, load_images(config)), 4
    )  # two steps an epoch, so this crosses into the second
    for (images, labels), (bare_images, bare_labels) in zip(
        ours, bare_batches(config, rank), strict=False
    ):
        assert torch.equal(images, bare_images)
        assert torch.equal(labels, bare_labels)
