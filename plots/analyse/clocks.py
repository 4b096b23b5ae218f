"""At which clock GPUs ended windows, and in how many windows power or heat had lowered it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.record import Run

LOWERED = 0.01  # share of a window from which on its clock counts as lowered
_CAUSES = {
    "power": ("power_ns", "hw_power_brake_ns"),
    "heat": ("thermal_ns", "hw_thermal_ns"),
}


@dataclass(frozen=True)
class WindowClocks:
    """Of one run: the GPUs' clocks when windows ended, in MHz, and by cause how many windows of how
    many had the clock of some GPU lowered.
    """

    mhz: tuple[int, ...]
    windows: int
    lowered: dict[str, int]


def of_run(run: Run) -> WindowClocks | None:
    """None where no log tells: without NVML, and before it was read."""
    windows = [window for window in run.windows if window.get("clocks")]
    if not windows:
        return None
    mhz = [pair[1] for w in windows for rank in w["clocks"] if (pair := rank.get("sm_mhz"))]
    lowered = {
        cause: sum(
            any(
                _seconds(rank.get(name)) > LOWERED * window["seconds"]
                for rank in window["clocks"]
                for name in names
            )
            for window in windows
        )
        for cause, names in _CAUSES.items()
    }
    return WindowClocks(tuple(m for m in mhz if m is not None), len(windows), lowered)


def _seconds(edges: list[int | None] | None) -> float:
    """Between two readings in nanoseconds; 0 where one is missing."""
    before, after = edges or (None, None)
    return 0.0 if before is None or after is None else (after - before) / 1e9
