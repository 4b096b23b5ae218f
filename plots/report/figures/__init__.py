"""Figures of one study as SVG and PNG: the only files that know matplotlib, and they compute no
number.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench.study.disk import write_whole
from plots.analyse.comparability import without_exchange
from plots.analyse.points import NO_SETTINGS
from plots.analyse.study import Analysis
from plots.report.figures import nodes, ratio, scaling, throughput
from plots.report.figures.style import STYLE, Row

_LONGEST_NAME = 120  # of a file


def draw(a: Analysis) -> dict[str, Figure]:
    """All figures the study has points for, by file name without ending."""
    with matplotlib.rc_context(STYLE):
        figures: dict[str, Figure] = {}
        pages = sorted({(c.variant, c.settings) for c in a.comparisons})
        for page in pages:
            figures[_file_name("ratio", page, pages)] = ratio.draw(
                a, [c for c in a.comparisons if (c.variant, c.settings) == page]
            )
        for name, rows in _groups(a.throughput).items():
            if len({r.point for r in rows}) > 1:
                figures[name + "-throughput"] = throughput.draw(a, rows)
        for name, scaled in _groups(a.efficiency).items():
            weak = scaled[0].curve == "weak"
            figures[name + ("-efficiency" if weak else "-speedup")] = scaling.draw(a, scaled, weak)
        batches = [(n.samples_per_step,) for n in a.calibrated.nodes] if a.calibrated else []
        for batch in dict.fromkeys(batches):
            figures[_file_name("calibration", batch, batches)] = nodes.draw(a, batch[0])
        return figures


def save(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as .svg and .png, without dates, so that the same numbers give the same
    bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in figures.items():
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                data = io.BytesIO()
                figure.savefig(data, format=ending, dpi=200, metadata=metadata)
                written.append(write_whole(folder / f"{name}.{ending}", data.getvalue()))
    return written


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by figure: one curve, one variant, one settings, one fixed batch (or rank count);
    `single` joins every settings.
    """

    def key(r: Row) -> tuple[str, tuple[str, ...], str, int]:
        return r.curve, r.point.variant, r.point.settings, r.point.fixed(r.curve)

    keys = list(dict.fromkeys(key(r) for r in rows if r.point.settings != NO_SETTINGS))
    groups: dict[str, list[Row]] = {}
    for k in keys:
        both = k, (k[0], without_exchange(k[1]), NO_SETTINGS, k[3])
        groups[_file_name(k[0], k[1:], [other[1:] for other in keys if other[0] == k[0]])] = [
            r for r in rows if key(r) in both
        ]
    return groups


def _file_name(name: str, key: tuple[Any, ...], keys: Iterable[tuple[Any, ...]]) -> str:
    """'weak', or with what tells it from the study's other figures of that name:
    'weak-compile-true-matched-16'.
    """
    differing = [
        str(part)
        for part, others in zip(key, zip(*keys, strict=True), strict=True)
        if len(set(others)) > 1
    ]
    slug = "-".join(
        [name, *(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in differing)]
    )
    if len(slug) <= _LONGEST_NAME:
        return slug
    digest = hashlib.sha256(repr(differing).encode(errors="replace")).hexdigest()
    return f"{slug[:_LONGEST_NAME]}-{digest[:8]}"
