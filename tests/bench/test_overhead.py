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
