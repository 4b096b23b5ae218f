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
