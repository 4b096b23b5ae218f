"""Values of a figure's marks, which a browser shows where a pointer rests on one."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import escape
from matplotlib.axes import Axes

from plots.report.format import clean

_MARK = "value-"  # begins an identifier, which holds the text that takes its place
_NAMED = re.compile(rf'<g id="{_MARK}([0-9a-f]+)">')


def name_value(ax: Axes, x: Any, y: Any, text: str) -> None:
    """Put an unseen mark over one that is drawn, large enough for a pointer."""
    text = clean(text)
    ax.scatter([x], [y], s=120, color="black", alpha=0, gid=_MARK + text.encode().hex())


def with_names(svg: str) -> str:
    """Give every named mark of the SVG a <title> in place of its identifier."""
    return _NAMED.sub(lambda m: f"<g><title>{escape(bytes.fromhex(m[1]).decode())}</title>", svg)
