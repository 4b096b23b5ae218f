"""One NVIDIA GPU as its driver's library NVML knows it: energy, clock, and what held that back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from bench.launch.gpu import full_name
from bench.record.host import MOST_INTEGER

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1  # NVML_CLOCK_SM
# name -> field of nvml.h: nanoseconds since the driver was loaded in which the clock was lowered,
# NVML_FI_DEV_PERF_POLICY_POWER and _THERMAL, and NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_*
_LOWERED = {"power_ns": 74, "thermal_ns": 75, "hw_thermal_ns": 252, "hw_power_brake_ns": 253}
_DOUBLE = 0  # a type of a field's value; all others are integers

ClockEdge = dict[str, int | None]  # by name, at one edge of a window; None: could not be read


class _Field(ctypes.Structure):
    """nvmlFieldValue_t; of its union the largest integer, into which the others are written."""

    _fields_ = (
        *(("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("at_us", ctypes.c_longlong)),
        *(("latency_us", ctypes.c_longlong), ("kind", ctypes.c_int), ("code", ctypes.c_int)),
        ("value", ctypes.c_ulonglong),
    )


class Nvml:
    """The library and one GPU. All raise OSError where either is not there, or has it not."""

    def __init__(self, gpu_uuid: str) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        uuid = full_name(gpu_uuid).encode()
        self._call("nvmlDeviceGetHandleByUUID", uuid, ctypes.byref(self._device))

    def energy_mj(self) -> int:
        """Since the driver was loaded."""
        count = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(count))
        return count.value

    def sm_mhz(self) -> int:
        """The clock of the multiprocessors now."""
        clock = ctypes.c_uint()
        self._call("nvmlDeviceGetClockInfo", self._device, _SM_CLOCK, ctypes.byref(clock))
        return clock.value

    def field(self, number: int) -> int:
        """An integer that nvml.h lists as NVML_FI_DEV_*."""
        field = _Field(field=number)
        self._call("nvmlDeviceGetFieldValues", self._device, 1, ctypes.byref(field))
        if field.code or field.kind == _DOUBLE:
            raise OSError(field.code, f"field {number} is not known of this GPU")
        return int(field.value)

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:  # an old library, or a stub
            raise OSError(f"{function} is not in {_LIBRARY}") from None
        if code:
            raise OSError(code, f"{function} returned {code}")


class Clocks:
    """The SM clock of one GPU, and for how long power or heat has lowered it, where NVML tells."""

    def __init__(self, gpu_uuid: str | None) -> None:
        readers: dict[str, Callable[[], int]] = {}
        if gpu_uuid is not None:
            with suppress(OSError):
                nvml = Nvml(gpu_uuid)
                readers["sm_mhz"] = nvml.sm_mhz
                readers |= {name: partial(nvml.field, n) for name, n in _LOWERED.items()}
        self._readers = {n: read for n, read in readers.items() if _value(read) is not None}

    def edge(self) -> ClockEdge:
        """All values now; never fails, as no run should for them."""
        return {name: _value(read) for name, read in self._readers.items()}

    def since(self, begin: ClockEdge) -> dict[str, list[int | None]]:
        """[before, after] by name."""
        return {name: [begin[name], value] for name, value in self.edge().items()}


def _value(read: Callable[[], int]) -> int | None:
    try:
        value = read()
    except OSError:
        return None
    return value if value < MOST_INTEGER else None  # what a log takes
