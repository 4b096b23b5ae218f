"""Devices, as far as a machine without a GPU can tell: which GPU is whose, and none is shared."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.config import RunConfig, UsageError
from bench.launch.world import Launch
from bench.train import device
from bench.train.device import time_steps

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def launch(local_rank: int = 0, local_size: int = 1) -> Launch:
    return Launch("srun", local_rank, local_size, local_rank, local_size, "key")


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [(4, 2, 2), (8, 3, 3), (1, 3, 0)],
    ids=["all seen", "more than ranks", "one chosen by the launcher"],
)
def test_which_gpu_is_mine(visible: int, local_rank: int, index: int) -> None:
    assert device.gpu_index(visible, launch(local_rank, 4)) == index


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="4 ranks on this node see 3 GPUs"):
        device.gpu_index(3, launch(0, 4))


def rank(number: int, host: str, uuid: str) -> dict[str, Any]:
    return {"rank": number, "hostname": host, "gpu_uuid": uuid}


def test_a_shared_gpu_is_refused() -> None:
    pair = [rank(0, "a", "x"), rank(1, "a", "y")]
    device.require_own_gpus([*pair, rank(2, "b", "x"), {"rank": 3, "hostname": "a"}])
    with pytest.raises(UsageError, match="ranks 0 and 2 on a share GPU x"):
        device.require_own_gpus([*pair, rank(2, "a", "x")])


@pytest.mark.parametrize(("precision", "mode"), [("float32", "ieee"), ("tf32", "tf32")])
def test_every_operation_of_a_gpu_gets_the_precision_that_is_asked_for(
    precision: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In torch 2.11 convolutions kept TF32 when cuDNN's common setting said ieee."""
    operations: list[Any] = [torch.backends.cuda.matmul]
    operations += [getattr(torch.backends.cudnn, name) for name in ("conv", "rnn")]
    before = [one.fp32_precision for one in operations]
    for name, value in {"is_available": True, "device_count": 1, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    config = RunConfig(device="cuda", precision=precision, batch_per_rank=4)
    try:
        for one in operations:
            one.fp32_precision = "tf32" if mode == "ieee" else "ieee"
        device.choose(config, launch())
        assert [one.fp32_precision for one in operations] == [mode] * 3
    finally:
        for one, value in zip(operations, before, strict=True):
            one.fp32_precision = value


def test_a_step_on_a_gpu_is_timed_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With made-up events: nobody waits inside the window, and milliseconds become seconds."""
    calls: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            calls.append("record")
            self.at = float(len(calls))

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: calls.append("sync"))
    watch = device._EventStopwatch(torch.device("cuda", 0))
    timed = time_steps(lambda: calls.append("step"), 2, watch)
    assert calls == ["sync", "record", "step", "record", "step", "record", "sync"]
    assert timed.step_seconds == [2.0, 2.0]
    watch.mark()
    watch.mark()
    watch.remark()
    assert watch.times() == [6.0, 8.0], "from the first mark of all, by an event's last record"


@needs_no_gpu
def test_cuda_without_a_gpu_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"torch sees no GPU.*--device cpu"):
        device.choose(RunConfig(batch_per_rank=1, device="cuda"), launch())
