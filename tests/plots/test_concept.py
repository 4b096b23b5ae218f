"""The README's small figure is what its script draws."""

from __future__ import annotations

from xml.etree import ElementTree

from plots.report.concept import OUT, draw


def test_the_committed_figure_is_current_and_well_formed() -> None:
    assert OUT.read_text(encoding="utf-8") == draw()
    words = [
        text.text
        for text in ElementTree.fromstring(draw()).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "all-reduce" in words
    assert "rank 1" in words
