"""The clock: with a made-up clock every second is accounted for, and the device is synced at the edges only."""

from __future__ import annotations

from bench.timing import HostStopwatch, time_steps


def test_windows_and_steps_on_a_made_up_clock() -> None:
    now, calls = [0.0], []

    def step() -> None:
        calls.append("step")
        now[0] += len(calls)  # later steps take longer

    class Watch(HostStopwatch):
        def now(self) -> float:
            calls.append("sync")
            now[0] += 100.0
            return super().now()

    timed = time_steps(step, 3, Watch(lambda: now[0]))
    assert calls == ["sync", "step", "step", "step", "sync"]
    assert timed.step_seconds == [2.0, 3.0, 4.0]
    assert timed.seconds == 2 + 3 + 4 + 100, "the closing sync belongs to the window, the opening one does not"


def test_laps_start_anew_with_every_window() -> None:
    ticks = iter(range(100))
    watch = HostStopwatch(lambda: float(next(ticks)))
    assert [len(time_steps(lambda: None, steps, watch).step_seconds) for steps in (3, 2)] == [3, 2]
