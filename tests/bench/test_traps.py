"""Horovod's traps on two real ranks: each is shown without its cure, and then with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.ranks import together

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Provide what each rank saw, trap by trap."""
    out = tmp_path_factory.mktemp("traps") / "out.json"
    done = together(2, "tests.bench.trap_worker", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(Path(out).read_text())
    assert len(found) == 2
    return found


def test_channels_last(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["channels_last"] for rank in ranks):
        assert "required to be contiguous" in seen["raw"]
        assert "required to be contiguous" in seen["raw_broadcast"]
        assert seen["equal"]
        assert seen["layout_kept"]


def test_bfloat16(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["bf16"] for rank in ranks):
        assert "BFloat16Tensor is not supported" in seen["raw"]
        assert "BFloat16Tensor is not supported" in seen["raw_broadcast"]
        assert seen["equal"]
        assert seen["types"] == ["torch.bfloat16"]


def test_set_to_none(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["set_to_none"] for rank in ranks):
        assert "unexpected keyword argument 'set_to_none'" in seen["raw"]
        assert seen["cleared"]


def test_clipping_before_the_exchange_is_over(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["clipping"] for rank in ranks):
        assert not seen["raw_equal"], "clipped in a race with the exchange, ranks part"
        assert seen["equal"]
        assert len(set(seen["norms"])) == 1


def test_lost_defaults(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["lost_defaults"] for rank in ranks):
        assert seen["raw"] == {"lr": 0.001, "momentum": 0, "weight_decay": 0}
        assert seen["cured"] == {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


def test_unused_parameters(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["unused_parameters"] for rank in ranks):
        assert seen["raw"] == {"used.weight": True, "idle.weight": True, "sometimes.weight": True}
        assert seen["cured"] == {**seen["raw"], "idle.weight": False}
        assert seen["equal"]


def test_a_model_that_leaves_parameters_out_is_refused_unless_asked_for(
    ranks: list[dict[str, Any]],
) -> None:
    for seen in (rank["refused_unused"] for rank in ranks):
        assert "left 4 parameter(s) without gradient, such as idle.weight" in seen["message"]
        assert "--unused-parameters" in seen["message"]


def test_hooks_on_a_step_run_once(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["step_hooks"] for rank in ranks):
        assert (seen["raw"], seen["cured"]) == (2, 1)


def test_broadcasting_fresh_optimiser_state_trains(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["optimizer_state"] for rank in ranks):
        assert seen["raw_moved"]
        assert not seen["moved"]


def test_accumulation(ranks: list[dict[str, Any]]) -> None:
    for seen in (rank["accumulation"] for rank in ranks):
        assert "more than backward_passes_per_step times" in seen["raw"]
        assert seen["equal"]
