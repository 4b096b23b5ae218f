"""Error that a run ended with, and words on standard error."""

from __future__ import annotations

import sys
from pathlib import Path


def first_error(out: Path) -> str:
    """Find the first error that a run printed; '' where it printed none."""
    lines = out.read_text(errors="replace").splitlines()
    return next((line[7:] for line in lines if line.startswith("error: ")), "")


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
