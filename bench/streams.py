"""Standard streams that cannot end a run: closed ones are opened on nothing, and what standard
error cannot take is dropped.
"""

from __future__ import annotations

import io
import os
import sys


class _Forgiving(io.FileIO):
    """Counts as written what a full disk, a closed terminal or a launcher that is gone does not
    take.
    """

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]  # any buffer
        except OSError:
            return len(data)  # type: ignore[arg-type]


def secure() -> None:
    """Make the process's streams safe to write to; call before any file is opened.

    A file that took the number of a closed standard error would be written into by every library
    that complains.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    errors = _Forgiving(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        errors, encoding="utf-8", errors="backslashreplace", write_through=True
    )


def say(text: str) -> None:
    """Lines for people. What a terminal would obey, and an exception of the user's may hold, is
    shown as its code.
    """
    print(
        "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text),
        file=sys.stderr,
        flush=True,
    )


def show_cursor() -> None:
    """Show it again on a terminal where a progress bar has hidden it."""
    if sys.stderr.isatty():
        print("\x1b[?25h", end="", file=sys.stderr, flush=True)
