"""Every shipped study trains at its learning rates: the largest world's rate in one small process,
over a few steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from bench.train.checks import loss_bounded
from bench.train.input import Input
from bench.train.loop import Loop
from slurm.cost import steep
from slurm.fit import fit
from slurm.load import find_study, read_site

ROOT = Path(__file__).parents[2]
STUDIES = sorted(
    path.stem
    for path in (ROOT / "slurm/studies").glob("*.toml")
    if "emulate" not in read_study(path).fields  # there nothing is trained
)
SITES = sorted(path.stem for path in (ROOT / "slurm/sites").glob("*.toml"))
STEPS, BATCH, PART = 40, 8, 10
SAME = (
    "model",
    "model_width",
    "precision",
    "memory_format",
    "weight_decay",
    "nesterov",
    "lr_warmup_steps",
)


def largest(name: str) -> Iterator[RunConfig]:
    """The study's runs at the largest world of each curve, on every shipped site."""
    for site in SITES:
        study = fit(read_study(find_study(name)), read_site(site), (), find_study(name))
        runs: list[PlannedRun] = plan(study, 1, ROOT)[0]
        for curve in study.scaling:
            through = [run for run in runs if curve in run.point.curves]
            most = max(run.config.world_size for run in through)
            yield from (run.config for run in through if run.config.world_size == most)


def emulated(name: str) -> dict[tuple[tuple[str, Any], ...], float]:
    """What these runs train in one process, digits in place of large data and in few images:
    settings -> the highest learning rate.
    """
    rates: dict[tuple[tuple[str, Any], ...], float] = {}
    for config in largest(name):
        settings: tuple[tuple[str, Any], ...] = (
            *((field, getattr(config, field)) for field in SAME),
            ("batch_per_rank", min(BATCH, config.samples_per_step)),
            ("dataset", "digits"),
        )
        if config.model == "mlp":  # small enough for all that it is trained on
            whole = {"batch_per_rank": config.samples_per_step, "dataset": config.dataset}
            settings = tuple({**dict(settings), **whole, "image_size": config.image_size}.items())
        rates[settings] = max(rates.get(settings, 0.0), config.peak_learning_rate)
    return rates


@cache
def losses(settings: tuple[tuple[str, Any], ...], rate: float) -> list[float]:
    """Loss of each of STEPS steps."""
    fields = {
        **dict(settings),
        "warmup_steps": STEPS - 1,
        "windows": 1,
        "steps_per_window": 1,
    }
    config = RunConfig(**fields, base_lr=rate * 256 / fields["batch_per_rank"])
    assert math.isclose(config.peak_learning_rate, rate)
    torch.set_num_threads(config.threads)
    images = data.load_images(config)
    network = models.build_model(config, images.classes)
    batches = Input(config, data.batches(config, 0, images), torch.device("cpu"))
    loop = Loop(config, Backend(), network, batches)
    for _ in range(config.steps):
        loop.step()
    return list(loop.losses.tolist())


@pytest.mark.parametrize("name", STUDIES)
def test_no_rate_of_the_largest_world_is_steep(name: str) -> None:
    configs = list(largest(name))
    assert steep(configs) == []
    steeper = {"max_lr": None, "base_lr": 100.0, "lr_warmup_steps": 0}
    unheld = [config.model_copy(update=steeper) for config in configs]
    assert steep(unheld)[0].startswith(f"warning: {len(unheld)} runs, up to ")


@pytest.mark.parametrize("name", STUDIES)
def test_the_largest_world_trains_with_a_falling_loss(name: str) -> None:
    for settings, rate in emulated(name).items():
        found = losses(settings, rate)
        told = (
            f"{name}: learning rate {rate:g}, {dict(settings)}: "
            f"{[round(loss, 3) for loss in found]}"
        )
        assert all(map(math.isfinite, found)), told
        assert loss_bounded(found, PART, 10), told
        assert sum(found[-PART:]) < sum(found[:PART]), told
