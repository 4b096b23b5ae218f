"""What every figure says: finding on top, conditions below, at the foot how to read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.study.stats import MIN_BLOCKS, Estimate
from plots.analyse.points import NO_SETTINGS, ranks
from plots.analyse.scaling import size
from plots.analyse.study import Analysis, machine, workload
from plots.report.axes import cut, dots
from plots.report.figures.style import GREY, Row
from plots.report.format import clean, short


def caption(
    a: Analysis,
    figure: Figure,
    title: str,
    subtitle: str,
    estimates: Sequence[Estimate],
    notes: Sequence[str],
) -> None:
    """As `add_titles`, the foot ending with n and how to read the bars."""
    n = sorted({e.n for e in estimates})
    said = [f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    said[0] += ": one block, no interval" if n[-1] == 1 else " blocks"
    said += (
        ["bars: 95 % Student t interval over blocks, on logs"]
        if any(e.shown for e in estimates)
        else []
    )
    said += (
        [f"dots: single blocks, as fewer than {MIN_BLOCKS} bear no interval"]
        if any(map(dots, estimates))
        else []
    )
    add_titles(
        figure,
        title,
        subtitle,
        [*notes, f"{clean(machine(a.loaded.host), 120)}. {'; '.join(said)}."],
    )


def cut_note(estimates: Sequence[Estimate], frame: tuple[float, float]) -> list[str]:
    """What a figure owes its reader where a bar leaves the frame."""
    return (
        ["Arrows: the interval goes on; the tables have its end."]
        if any(cut(e, *frame) for e in estimates)
        else []
    )


def add_titles(figure: Figure, title: str, subtitle: str, foot: Sequence[str]) -> None:
    """Finding on top, conditions below it, and at the foot what else a reader must know, such as
    machine and n.
    """
    title, subtitle, height = clean(title, 160), clean(subtitle, 200), figure.get_figheight()
    fits = (
        72 * 0.97 * figure.get_figwidth() / (0.64 * len(title))
    )  # a bold letter is 0.64 of its size wide
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=min(11, fits), fontweight="bold")
    fits = 72 * 0.97 * figure.get_figwidth() / (0.53 * len(subtitle))
    figure.text(0.01, 1 - 0.32 / height, subtitle, va="top", fontsize=min(9, fits), color=GREY)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.5 / height))  # type: ignore[union-attr, call-arg]
    figure.supxlabel(
        "\n".join(clean(line, 250) for line in foot), x=0.01, ha="left", fontsize=7, color=GREY
    )


def legend(ax: Axes, values: Mapping[str, str] | None = None, heading: str = "") -> None:
    """To the right of the axes; `values` are written below their cells' names, what they are of in
    the heading.
    """
    axes: list[Axes] = ax.get_figure(root=True).axes  # type: ignore[union-attr]
    there = {
        name: handle
        for each in axes
        for handle, name in zip(*each.get_legend_handles_labels(), strict=True)
    }
    names = sorted(there, key=lambda name: name.startswith("ideal"))
    texts = [f"{name}\n{values[name]}" if values and name in values else name for name in names]
    style: Any = {
        "loc": "center left",
        "bbox_to_anchor": (1.02, 0.5),
        "title": heading or None,
        "alignment": "left",
    }
    ax.legend(
        [there[name] for name in names],
        texts,
        title_fontsize=8,
        fontsize=8,
        handlelength=2.6,
        **style,
    )


def at_last(rows: Sequence[Row], y: Callable[[Row], Estimate]) -> dict[str, Estimate]:
    """Each cell's value at the largest point."""
    last = max(size(r.curve, r.point) for r in rows)
    return {r.point.cell: y(r) for r in rows if size(r.curve, r.point) == last}


def conditions(a: Analysis, curve: str, rows: Sequence[Row]) -> str:
    fixed = rows[0].point.fixed(curve)
    what = {
        "weak": f"{fixed} images per rank",
        "strong": f"{fixed} images per step in all",
        "batch": ranks(fixed),
    }[curve]
    settings = sorted({r.point.settings for r in rows} - {NO_SETTINGS})
    longest: tuple[str, ...] = max(
        (r.point.variant for r in rows), key=len
    )  # that of `single` says nothing of an exchange
    return "; ".join([what, ", ".join([workload(a), *longest]), f"settings: {', '.join(settings)}"])


def finding(last: Mapping[str, Estimate], form: Callable[[float], str]) -> str:
    """Values at the largest point, where all have an interval and no more than two would crowd a
    title.
    """
    if any(e.shown is None for e in last.values()):
        return f": n = {max(e.n for e in last.values())}, too few blocks for an interval"
    return (
        ": " + ", ".join(f"{cell} {short(e, form)}" for cell, e in last.items())
        if len(last) <= 2
        else ""
    )
