"""The clock: every second is accounted for, and the device is synced at the edges only."""

from __future__ import annotations

import pytest

from bench.config import RunConfig
from bench.launch.world import discover
from bench.lifecycle.ending import Pulse
from bench.record import RunLog
from bench.run import run
from bench.train import device
from bench.train.device import Stopwatch, time_steps


def test_windows_and_steps_on_a_made_up_clock() -> None:
    now, calls = [0.0], []

    def step() -> None:
        calls.append("step")
        now[0] += len(calls)  # later steps take longer

    class Watch(Stopwatch):
        def now(self) -> float:
            calls.append("sync")
            now[0] += 100.0
            return super().now()

    timed = time_steps(step, 3, Watch(lambda: now[0]))
    assert calls == ["sync", "step", "step", "step", "sync"]
    assert timed.step_seconds == [2.0, 3.0, 4.0]
    assert timed.seconds == 2 + 3 + 4 + 100, "the closing sync belongs to the window"


class _CountedSyncs(Stopwatch):
    """The host's stopwatch, counting the calls that would sync a GPU."""

    syncs = 0

    def now(self) -> float:
        self.syncs += 1
        return super().now()


@pytest.mark.parametrize("steps_per_window", [1, 10])
def test_the_device_is_synced_twice_a_window_whatever_its_steps(
    monkeypatch: pytest.MonkeyPatch, steps_per_window: int
) -> None:
    """Over a whole run as `python -m bench` makes it: loop, input, warm-up and windows."""
    watch = _CountedSyncs()
    monkeypatch.setattr(device.Cpu, "stopwatch", lambda self: watch)
    tiny = {"model": "tests.bench.tiny:plain", "dataset": "digits", "batch_per_rank": 2}
    config = RunConfig(**tiny, warmup_steps=10, windows=2, steps_per_window=steps_per_window)
    assert run(config, discover({}), RunLog(None), Pulse(shown=False))
    assert watch.syncs == 2 * (2 + config.windows), "at the edges of warm-up's parts and windows"
