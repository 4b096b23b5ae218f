"""What a run checks at its end: samples, losses, torch's settings; and the operations it counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError, make_config
from bench.train import checks
from bench.train.loop import Input


@pytest.mark.parametrize(
    ("losses", "window", "classes", "bounded"),
    [
        ([2.3, 6.0, 25.0, 3.0, 8.0, 2.0], 3, 10, True),  # the first steps overshoot
        ([0.01, 2.3, 2.3, 2.3], 3, 10, True),  # it began by luck below a guess
        ([60.0, 500.0, 450.0, 590.0], 3, 10, True),  # it began far off
        ([2.3, 1e6, 2.3, 2.3], 2, 10, True),  # what happened before the last window has passed
        ([2.3, 2.3, 24.0, 24.0], 2, 10, False),
        ([2.3, 2.3, math.nan, math.nan], 2, 10, False),
        ([2.3, 2.3, 2.3, 100.0], 2, 10, False),
        ([2.3, 2.3, 2.3, 100.0], 2, 1000**2, True),  # a guess among many classes loses more
    ],
)
def test_the_loss_of_the_last_window_is_bounded_by_the_first_or_a_guess(
    losses: list[float], window: int, classes: int, bounded: bool
) -> None:
    assert checks.loss_bounded(losses, window, classes) is bounded


@pytest.mark.parametrize(
    ("sizes", "complete"), [([4] * 4, True), ([4, 4, 4, 3], False), ([8, 4, 4], False)]
)
def test_a_run_whose_samples_are_not_complete_is_not_ok(sizes: list[int], complete: bool) -> None:
    config = RunConfig(batch_per_rank=4, warmup_steps=3, windows=1, steps_per_window=1)
    batches = iter([(torch.ones(n, 3, 8, 8), torch.arange(n)) for n in sizes])
    samples = Input(config, batches, torch.device("cpu"))
    for _ in sizes:
        samples.step()
    facts = checks.check_samples(samples, Backend(), config)
    assert facts == {"checks": {"samples_per_step": complete}, "samples": sum(sizes)}


@pytest.mark.parametrize("exchange", ["on", "off"])
def test_ranks_that_exchange_end_alike_and_others_apart(
    exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"backend": "ddp", "transport": "gloo", "world_size": 2, "exchange": exchange}
    config = make_config({"batch_per_rank": 4, **fields})
    name = "parameters_equal" if exchange == "on" else "parameters_differ"
    backend = Backend()
    for other, alike in (("", True), ("another digest", False)):
        monkeypatch.setattr(
            backend, "gather", lambda digest, other=other: [digest, other or digest]
        )
        facts = checks.check_emulation(config.steps, backend, config, nn.Linear(2, 2))
        assert facts["checks"] == {"gradients_averaged": True, name: alike == (exchange == "on")}


CONFIG = RunConfig(batch_per_rank=4, image_size=8, threads=1)


def test_a_changed_setting_of_torch_is_found() -> None:
    torch.set_num_threads(1)
    begun = checks.require_alike(CONFIG, Backend(), nn.Linear(2, 2))
    with torch.no_grad():
        facts = checks.check_kept(begun, Backend())
    assert facts["checks"] == {"torch_settings_kept": False}
    assert facts["torch_settings_changed"] == ["rank 0: grad_enabled True -> False"]


def test_threads_that_a_factory_has_set_are_refused() -> None:
    torch.set_num_threads(3)
    try:
        with pytest.raises(UsageError, match="set torch's threads to 3; leave them to --threads"):
            checks.require_alike(CONFIG, Backend(), nn.Linear(2, 2))
    finally:
        torch.set_num_threads(1)


def test_multiply_adds_count_as_two_forward_and_backward() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 10))
    # forward, weights' gradients, and of the second layer its input's
    by_hand = 2 * (2 * 192 * 16) + 3 * (2 * 16 * 10)
    model.compile(backend=lambda *_: pytest.fail("it is compiled again"))
    assert checks.flops_per_image(model, CONFIG) == by_hand
    assert checks.flops_per_image(nn.Conv2d(1, 1, 3), CONFIG) is None, "what torch cannot count"
