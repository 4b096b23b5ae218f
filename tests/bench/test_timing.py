"""The clock: with a made-up clock every second is accounted for, and the device is synced at the edges only."""

from __future__ import annotations

from bench.timing import time_steps


def test_windows_and_steps_on_a_made_up_clock() -> None:
    now, calls = [0.0], []

    def step() -> None:
        calls.append("step")
        now[0] += len(calls)  # later steps take longer

    def sync() -> None:
        calls.append("sync")
        now[0] += 100.0

    timed = time_steps(step, 3, lambda: now[0], sync)
    assert calls == ["sync", "step", "step", "step", "sync"]
    assert timed.step_seconds == [2.0, 3.0, 4.0]
    assert timed.seconds == 2 + 3 + 4 + 100, "the closing sync belongs to the window, the opening one does not"
