"""What tests of reports share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.figure import Figure


def _name(figure: Figure, file: Any, **_: Any) -> None:
    file.write(f"<svg>{figure.get_suptitle()}</svg>".encode())


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Make figures and write their files, but leave out the drawing, which is most of a report's
    time: for modules that test other things.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _name)
        yield


@pytest.fixture(scope="module", autouse=True)
def without_png(request: pytest.FixtureRequest) -> Iterator[None]:
    """Draw figures as SVG alone, half of a report's time: PNG is the same picture. A module that
    looks at one has DRAWS_PNG.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "DRAWS_PNG", False):
            patch.setattr(Figure, "savefig", _but_png)
        yield


_savefig = Figure.savefig


def _but_png(figure: Figure, file: Any, **options: Any) -> None:
    if options.get("format") == "png":
        file.write(b"drawn elsewhere")
    else:
        _savefig(figure, file, **options)
