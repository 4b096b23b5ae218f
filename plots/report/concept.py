"""python -m plots.report.write.concept: draw the README's small figure of how data parallelism
works, as plain SVG.
"""

from __future__ import annotations

from pathlib import Path

OUT = Path(__file__).with_name("data-parallelism.svg")
_WIDTH, _HEIGHT = 760, 300
_BLUE, _ORANGE, _GREY, _INK = "#0072B2", "#E69F00", "#F2F2F2", "#222222"  # Okabe-Ito


def draw() -> str:
    """One training step on two ranks, left to right; the exchange in the middle is the only thing
    the backends do.
    """
    parts = [
        _text(
            _WIDTH / 2,
            24,
            "one step of data-parallel training, the same on every rank",
            16,
            weight="bold",
        )
    ]
    for rank, top in enumerate((58, 186)):
        colour = _BLUE if rank == 0 else _ORANGE
        parts += [
            _text(20, top + 38, f"rank {rank}", 14, anchor="start", weight="bold"),
            *_box(82, top, 126, ("its shard of", "the global batch"), colour),
            _arrow(208, top + 33, 232),
            *_box(232, top, 132, ("forward, backward", f"gradient g{_sub(rank)}"), colour),
            _arrow(364, top + 33, 396),
            _arrow(560, top + 33, 592),
            *_box(592, top, 148, ("same SGD update", "weights stay equal"), colour),
        ]
    parts += [
        f'<rect x="396" y="58" width="164" height="194" rx="8" fill="{_GREY}" stroke="{_INK}" '
        f'stroke-width="2"/>',
        _text(478, 92, "all-reduce", 15, weight="bold"),
        _text(478, 118, f"mean = (g{_sub(0)} + g{_sub(1)}) / 2", 14),
        _text(478, 160, "DDP or Horovod", 15, weight="bold"),
        _text(478, 182, "over MPI or Gloo:", 13),
        _text(478, 202, "all that differs", 13),
        _text(478, 222, "in this study", 13),
        _text(
            _WIDTH / 2,
            284,
            "Model, data order, learning rate and clock belong to the loop, and are the same for "
            "both.",
            13,
        ),
    ]
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" '
        f'role="img" aria-label="Two ranks compute gradients on their shards; the all-reduce '
        f'averages them">\n'
        f'  <rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n  {body}\n</svg>\n'
    )


def _sub(number: int) -> str:
    return "₀₁₂₃₄₅₆₇₈₉"[number]


def _text(
    x: float, y: float, words: str, size: int, anchor: str = "middle", weight: str = "normal"
) -> str:
    style = (
        f'font-family="sans-serif" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{_INK}"'
    )
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def _box(x: float, y: float, width: float, lines: tuple[str, str], colour: str) -> list[str]:
    middle = x + width / 2
    frame = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="66" rx="8" fill="white" '
        f'stroke="{colour}" stroke-width="3"/>'
    )
    return [frame, _text(middle, y + 28, lines[0], 13), _text(middle, y + 48, lines[1], 13)]


def _arrow(x: float, y: float, to: float) -> str:
    shape = (
        f"M {x:g} {y:g} H {to - 7:g} M {to - 8:g} {y - 5:g} L {to:g} {y:g} L {to - 8:g} {y + 5:g}"
    )
    return f'<path d="{shape}" fill="none" stroke="{_INK}" stroke-width="2"/>'


if __name__ == "__main__":
    OUT.write_text(draw(), encoding="utf-8")
