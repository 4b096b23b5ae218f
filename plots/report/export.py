"""Measured numbers for others: one module a format, shipped in `extras` or the user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import factory
from bench.config import UsageError
from bench.study.disk import write_whole
from plots.analyse.study import Analysis

Exporter = Callable[[Analysis, str], tuple[str, list[str]]]  # of a curve: the text, and remarks


def find(form: str) -> Exporter:
    """The exporter of that name, or at package.module:function. Raises UsageError."""
    exporter: Exporter = factory.format_of("plots/report", form, "export")
    if not callable(exporter):
        raise UsageError(f"format {form!r} is a {type(exporter).__name__}; give a function")
    return exporter


def write(a: Analysis, exporter: Exporter, curve: str, path: Path) -> list[str]:
    """Write a study in a format; returns what to tell of it."""
    try:
        text, remarks = exporter(a, curve)
        lines = [*remarks, str(path)]
        data = text.encode()
    except UsageError:
        raise
    except Exception as error:
        raise factory.OwnCodeError("the exporter failed", error) from None
    write_whole(path, data)
    return lines
