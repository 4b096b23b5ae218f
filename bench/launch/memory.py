"""The same memory behaviour for every run: the C library keeps what a step frees for the next."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# Left alone, glibc gives freed memory back to the kernel in some processes and not in others, as
# the order of their first large allocations has it; those then fault it in again in every step.
_THRESHOLDS = {  # as mallopt(3) numbers them; bytes
    "trim_threshold": (-1, 2**30),
    "mmap_threshold": (-3, 2**25),  # the most that glibc takes
}
_USERS_OWN = ("MALLOC_", "GLIBC_TUNABLES")  # variables by which a user sets the same

_done = "left alone: not asked for"


def keep_freed(env: Mapping[str, str]) -> None:
    """Set glibc's thresholds for this process, before torch loads, unless the user did."""
    global _done
    if own := sorted(name for name in env if name.startswith(_USERS_OWN)):
        _done = f"left alone: {', '.join(own)} set"
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        _done = "left alone: the C library is not glibc"
        return
    refused = [name for name, words in _THRESHOLDS.items() if libc.mallopt(*words) != 1]
    set_to = " ".join(f"{name}={size}" for name, (_, size) in _THRESHOLDS.items())
    _done = f"left alone: mallopt refused {', '.join(refused)}" if refused else set_to


def kept() -> str:
    """What `keep_freed` did, for the log: 'trim_threshold=... mmap_threshold=...', or why not."""
    return _done
