"""How numbers are written in a report: rounding happens only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from plots.stats import Estimate


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def interval(e: Estimate, form: Callable[[float], str]) -> str:
    """'64.7 % [62.3, 67.2]', or the value and why it has no interval."""
    if e.low is None or e.high is None:
        return f"{form(e.value)} (n={e.n}, no interval)"
    return f"{form(e.value)} [{form(e.low)}, {form(e.high)}]".replace(" %,", ",").replace(" %]", "]")


def rate(x: float) -> str:
    return f"{x:.1f}" if x < 1000 else f"{x:.0f}"


def ratio(x: float) -> str:
    return f"{x:.3f}"


def percent(x: float) -> str:
    return f"{100 * x:.1f} %"


def ms(x: float) -> str:
    return f"{1000 * x:.1f}"


def p_value(x: float | None) -> str:
    return "" if x is None else "<0.0001" if x < 1e-4 else f"{x:.4f}"


def or_dash(x: object) -> str:
    return "-" if x is None or x == "" else str(x)
