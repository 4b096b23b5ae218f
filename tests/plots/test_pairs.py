"""What is compared with what: any two cells, named by the study, in every table and figure."""

import json
from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots import logs

CELLS = {"single": 1.0, "ddp/mpi": 1.0, "ddp/gloo": 1.25, "horovod/mpi": 1.25}


def reported(folder: Path, reference: str, candidate: str) -> tuple[str, list[dict[str, object]]]:
    """The page, and the comparisons of summary.json."""
    logs.study(folder, blocks=6, cells=CELLS, sd=0.002)
    logs.study_toml(folder)
    said = f'reference = "{reference}"\ncandidate = "{candidate}"\n'
    (folder / "study.toml").write_text((folder / "study.toml").read_text() + said)
    assert main(["report", str(folder)]) == 0
    return (folder / "report.md").read_text(), json.loads((folder / "summary.json").read_text())[
        "comparisons"
    ]


@pytest.mark.parametrize(
    ("reference", "candidate", "title", "faster"),
    [
        ("ddp/mpi", "ddp/gloo", "ddp/gloo against ddp/mpi", "ddp/mpi"),
        ("horovod", "ddp", "DDP against Horovod", "ddp/mpi"),
    ],
)
def test_tables_figures_and_sentences_follow_the_pair(
    tmp_path: Path, reference: str, candidate: str, title: str, faster: str
) -> None:
    page, compared = reported(tmp_path, reference, candidate)
    assert f"**{title}: " in page
    assert f"## {title}\n" in page
    assert len(compared) == 3
    for c in compared:
        assert str(c["verdict_text"]).startswith(f"{faster} faster by ")
    first, second = reversed(title.split(" against "))
    figure = (tmp_path / "figures" / "ratio.svg").read_text()
    assert f"images/s of {second} over images/s of {first}" in figure
    assert f"{title}: {'DDP' if candidate == 'ddp' else faster} faster at all 3 points" in figure
