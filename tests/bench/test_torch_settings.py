"""torch's settings of every rank: as they were asked for, and the same at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from bench.backends.protocol import Backend
from bench.config import UsageError, make_config
from bench.train import torch_settings

CONFIG = make_config({"batch_per_rank": 1, "threads": 1})
# what changes -> how a user's code does it, to what, and back
CHANGES: dict[str, tuple[Callable[[Any], object], Any, Any]] = {
    "threads 1 -> 3": (torch.set_num_threads, 3, 1),
    "default_dtype torch.float32 -> torch.float64": (
        *(torch.set_default_dtype, torch.float64, torch.float32),
    ),
    "grad_enabled True -> False": (torch.autograd.set_grad_enabled, False, True),
    "deterministic False -> True": (torch.use_deterministic_algorithms, True, False),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(change: str) -> None:
    setter, value, before = CHANGES[change]
    begun = torch_settings.require_alike(CONFIG, Backend(), nn.Linear(2, 2))
    kept = {"checks": {"torch_settings_kept": True}, "threads": [1]}
    assert torch_settings.check_kept(begun, Backend()) == kept
    setter(value)
    try:
        found = torch_settings.check_kept(begun, Backend())
    finally:
        setter(before)
    assert found["checks"] == {"torch_settings_kept": False}
    assert found["torch_settings_changed"] == [f"rank 0: {change}"]


def test_threads_that_a_factory_has_set_are_refused() -> None:
    torch.set_num_threads(3)
    wrong = "has set torch's threads to 3; leave them to --threads, which is 1"
    with pytest.raises(UsageError, match=wrong):
        torch_settings.require_alike(CONFIG, Backend(), nn.Linear(2, 2))
