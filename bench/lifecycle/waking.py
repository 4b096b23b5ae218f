"""A timer of the kernel's that continues this process while it is stopped: nobody else may live."""

from __future__ import annotations

import ctypes
import os
import signal
import time

_SIGEV_SIGNAL = 0


class _Event(ctypes.Structure):
    """Linux's sigevent, of 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("unused", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """Linux's itimerspec: seconds and nanoseconds between two signals, and until the first."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))


class Waker:
    """Sends this process SIGCONT every `period_s` seconds, from `set` to `clear`.

    Not longer: who stops a process that has its turn, as Slurm's suspend does, wants it to stay.
    """

    def __init__(self, period_s: int) -> None:
        self._period_s = period_s
        self._timer = ctypes.c_void_p()
        loaded = ctypes.CDLL(None, use_errno=True)
        self._library = loaded if hasattr(loaded, "timer_create") else ctypes.CDLL("librt.so.1")
        event = _Event(None, signal.SIGCONT, _SIGEV_SIGNAL, b"")
        _require(
            self._library.timer_create(
                time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)
            )
        )

    def set(self) -> None:
        """Count from now on."""
        self._start(self._period_s)

    def clear(self) -> None:
        """Send nothing more."""
        self._start(0)

    def _start(self, period_s: int) -> None:
        times = ctypes.byref(_Times(period_s, 0, period_s, 0))
        _require(self._library.timer_settime(self._timer, 0, times, None))


def _require(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"no timer: {os.strerror(number)}")
