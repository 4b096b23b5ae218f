"""One published table: two parameters are fitted to two models, and the third is predicted.

Horovod's README of September 2017: 4 nodes of 4 Pascal GPUs, 25 Gb/s RoCE, TensorFlow, synthetic
images, batch 64, 64 MiB fusion and a cycle of 5 ms; NCCL over RDMA.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.optimize import brentq

from bench.instrument import timeline
from bench.tools.timeline import main
from plots.predict.link import Link, Regime
from plots.predict.step import Profile, predict
from plots.predict.stream import Cycles

# images/s of one GPU, of sixteen, and pixels
TABLE = {
    "inception_v3": (134.4, 2022.6, 299),
    "resnet101": (119.4, 1746.2, 224),
    "vgg16": (130.9, 1787.4, 224),
}
CYCLES = Cycles(cycle_s=5e-3, fusion_bytes=64 * 2**20)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """Steps of one GPU as `python -m bench timeline` derives them: even intervals."""
    folder = tmp_path_factory.mktemp("timelines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        for model, (one, _, pixels) in TABLE.items():
            words = ["--model", model, "--batch-per-rank", "64", "--image-size", str(pixels)]
            words += ["--images-per-s", str(one), "--source", "Horovod's README of 2017."]
            assert main(["--out", str(folder / model), *words]) == 0
    return {model: Profile.of(timeline.read(folder / model)[0]) for model in TABLE}


def images_per_s(profile: Profile, latency_s: float, gb_per_s: float, slowdown: float) -> float:
    """Of sixteen GPUs."""
    regime = Regime(latency_seconds=latency_s, bytes_per_s=gb_per_s * 1e9, node_bytes_per_s=10e9)
    link = Link(source="fitted", algorithms=("ring",), ranks_per_node=4, regimes=(regime,))
    times = predict(profile, link, CYCLES, np.array([16.0]), np.array([slowdown]))
    return float(16 * 64 / times.step_s[0])


@pytest.mark.parametrize("latency_s", [0.0, 10e-6, 50e-6])
def test_the_third_model_is_within_three_percent(
    profiles: dict[str, Profile], latency_s: float
) -> None:
    """Whatever the latency, which the table does not tell."""
    slowdown = 1.0
    for _ in range(6):
        gb_per_s = brentq(
            lambda rate, slow=slowdown: (
                images_per_s(profiles["vgg16"], latency_s, rate, slow) - TABLE["vgg16"][1]
            ),
            *(0.5, 20),
        )
        slowdown = brentq(
            lambda slow, rate=gb_per_s: (
                images_per_s(profiles["resnet101"], latency_s, rate, slow) - TABLE["resnet101"][1]
            ),
            *(0.8, 2),
        )
    assert slowdown == pytest.approx(1.091, abs=0.015)
    assert 2.5 < gb_per_s < 3.5, "of a link of 25 Gb/s"
    third = images_per_s(profiles["inception_v3"], latency_s, gb_per_s, slowdown)
    assert third == pytest.approx(TABLE["inception_v3"][1], rel=0.03)
