"""What is compared with what: any two cells, named by the study, in every table and figure."""

import json
from pathlib import Path

import pytest

from bench.backends.catalogue import CATALOGUE
from plots.__main__ import main
from tests.bench.fourth import FOURTH
from tests.plots import logs

CELLS = {"ddp/mpi": 1.0, "ddp/gloo": 1.25, "horovod/mpi": 1.25, "horovod/gloo": 1.5}
CELLS |= {"single": 1.0, "fourth/gloo": 1.2}


@pytest.fixture(autouse=True)
def _fourth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "fourth", FOURTH)


def reported(folder: Path, reference: str, candidate: str) -> tuple[str, list[dict[str, object]]]:
    """The page, and the comparisons of summary.json."""
    wanted = ("single", reference, candidate)
    measured = {cell: slower for cell, slower in CELLS.items() if cell.startswith(wanted)}
    logs.study(folder, blocks=6, cells=measured, sd=0.002)
    logs.study_toml(folder, more=f'reference = "{reference}"\ncandidate = "{candidate}"\n')
    assert main(["report", str(folder)]) == 0
    compared = json.loads((folder / "summary.json").read_text())["comparisons"]
    return (folder / "report.md").read_text(), compared


@pytest.mark.parametrize(
    ("reference", "candidate", "title", "faster", "side", "points"),
    [
        ("ddp/mpi", "ddp/gloo", "ddp/gloo against ddp/mpi", "ddp/mpi", "ddp/mpi", 3),
        ("horovod", "ddp", "DDP against Horovod", "ddp/", "DDP", 6),
        ("horovod", "fourth", "Fourth against Horovod", "fourth/gloo", "Fourth", 3),
    ],
)
def test_tables_figures_and_sentences_follow_the_pair(
    tmp_path: Path, reference: str, candidate: str, title: str, faster: str, side: str, points: int
) -> None:
    page, compared = reported(tmp_path, reference, candidate)
    assert f"**{title}: {side} faster at all {points} points" in page
    assert f"## {title}\n" in page
    assert "DDP over Gloo: bundled with torch 2.13.0+cpu" in page or candidate == "fourth"
    assert ("Horovod over Gloo: bundled with horovod 0.28.1" in page) == (reference == "horovod")
    assert len(compared) == points
    for c in compared:
        assert str(c["verdict_text"]).startswith(faster)
    first, second = reversed(title.split(" against "))
    figure = (tmp_path / "figures" / "ratio.svg").read_text()
    assert f"images/s of {second} over images/s of {first}" in figure
    assert f"{title}: {side} faster at all {points} points" in figure
    assert ("Horovod" in page + figure) == ("Horovod" in title)
