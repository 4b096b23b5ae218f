"""The same memory behaviour for every run: the C library keeps what a step frees for the next."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# By default glibc gives freed memory back to the kernel in some processes and not in others: it
# depends on the order of their first large allocations. The former fault it in again in every step.
_THRESHOLDS = {  # as mallopt(3) numbers them; bytes
    "trim_threshold": (-1, 2**30),
    "mmap_threshold": (-3, 2**25),  # the most that glibc takes
}
_USERS_OWN = ("MALLOC_", "GLIBC_TUNABLES")  # variables by which a user sets the same

_outcome = "left alone: not asked for"


def keep_freed(env: Mapping[str, str]) -> None:
    """Set glibc's thresholds for this process, before torch loads, unless the user did."""
    global _outcome
    if user_variables := sorted(name for name in env if name.startswith(_USERS_OWN)):
        _outcome = f"left alone: {', '.join(user_variables)} set"
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        _outcome = "left alone: the C library is not glibc"
        return
    refused = [name for name, words in _THRESHOLDS.items() if libc.mallopt(*words) != 1]
    set_to = " ".join(f"{name}={size}" for name, (_, size) in _THRESHOLDS.items())
    _outcome = f"left alone: mallopt refused {', '.join(refused)}" if refused else set_to


def kept() -> str:
    """Tell the log what `keep_freed` did: 'trim_threshold=... mmap_threshold=...', or why not."""
    return _outcome
