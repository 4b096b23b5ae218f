"""Standard streams that cannot end a run, whether full or gone."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class _Forgiving(io.FileIO):
    """Drops text that cannot be written: the disk is full, the terminal or launcher is gone."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]  # any buffer
        except OSError:
            return len(data)  # type: ignore[arg-type]


def secure() -> None:
    """Make the process's standard error safe to write to."""
    raw, errors = _Forgiving(2, "w", closefd=False), "backslashreplace"
    sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=True)


def say(text: str) -> None:
    """Print lines for people, control characters as their codes: a terminal would obey them."""
    text = _safe(text)
    sys.stderr.write(f"{text}\n")  # in one write: other ranks say things on the same pipe
    sys.stderr.flush()


def answer(line: str) -> None:
    """Print what a script reads, on standard output; what cannot be written there is dropped."""
    with suppress(AttributeError, OSError, ValueError):  # closed before Python began, or since
        sys.stdout.flush()  # what the user's own code printed stands before it
    with suppress(OSError):
        os.write(1, f"{_safe(line)}\n".encode(errors="backslashreplace"))


def _safe(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
