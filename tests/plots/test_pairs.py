"""What is compared with what: any two cells, named by the study, in every table and figure."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import Analysis, analyse
from tests.plots import logs

CELLS = {"ddp/mpi": 1.0, "ddp/gloo": 1.25, "horovod/mpi": 1.25, "horovod/gloo": 1.5}
CELLS |= {"single": 1.0, "fourth/gloo": 1.2}


@pytest.mark.parametrize(
    ("reference", "candidate", "title", "side", "points"),
    [
        ("ddp/mpi", "ddp/gloo", "ddp/gloo against ddp/mpi", "ddp/mpi", 3),
        ("horovod", "ddp", "DDP against Horovod", "DDP", 6),
    ],
)
def test_tables_figures_and_sentences_follow_the_pair(
    tmp_path: Path, reference: str, candidate: str, title: str, side: str, points: int
) -> None:
    require_pair(tmp_path, reference, candidate, title, side, points)


def require_pair(
    folder: Path, reference: str, candidate: str, title: str, side: str, points: int
) -> None:
    """Check a pair's report; tests/test_doors.py does so too, for a backend of a user's module."""
    wanted = ("single", reference, candidate)
    measured = {cell: slower for cell, slower in CELLS.items() if cell.startswith(wanted)}
    logs.study(folder, launches=6, cells=measured, sd=0.002)
    logs.study_toml(folder, more=f'reference = "{reference}"\ncandidate = "{candidate}"\n')
    assert main(["report", str(folder)]) == 0
    page = logs.page(folder)
    compared = json.loads((folder / "summary.json").read_text())["comparisons"]
    assert f"{side} faster at {points} of {points} points" in page
    assert f"## {title}\n" in page
    assert "DDP over Gloo: bundled with torch 2.13.0+cpu" in page or candidate == "fourth"
    assert ("Horovod over Gloo: bundled with horovod 0.28.1" in page) == (reference == "horovod")
    assert len(compared) == points
    for c in compared:
        assert str(c["verdict_text"]).startswith(f"{side} faster: ")
    figure = (folder / "figures" / "ratio.svg").read_text()
    assert f">images/s of {' over '.join(title.split(' against '))}<" in figure
    assert f">{side} faster: " in figure or f"<!-- {side} faster: " in figure
    assert ("Horovod" in page + figure) == ("Horovod" in title)


def arms(folder: Path, **of_slow: object) -> Analysis:
    """Analyse a cell and an arm of it that takes 1.2 times as long, with these fields."""
    noise = np.random.default_rng(0)
    for launch in range(6):
        for arm, seconds, fields in (("plain", 0.1, {}), ("slow", 0.12, of_slow)):
            run = logs.config(f"ddp/mpi@{arm}", 2, 16, launch, seed=launch, **fields)
            path = folder / "runs" / f"{launch}-{arm}.jsonl"
            logs.write(path, run, seconds * np.exp(noise.normal(0, 0.002)))
    sides = 'cells = ["ddp/mpi"]\nreference = "ddp/mpi"\ncandidate = "ddp/mpi"\n'
    sides += 'scaling = ["weak"]\nworld_sizes = [2]\n[weak]\nbatch_per_rank = 16\n'
    slow = '[arms.plain]\n[arms.slow]\nover = "plain"\ninject_ms = 20.0\n'
    logs.study_toml(folder, more=sides + slow)
    return analyse(load(folder))


def test_what_one_arm_alone_was_set_is_named_and_no_hindrance(tmp_path: Path) -> None:
    found = arms(tmp_path, inject_ms=20.0)
    (compared,) = found.comparisons
    assert compared.verdict == "faster"
    assert compared.paired.ratio == pytest.approx(1 / 1.2, abs=0.01)
    assert found.notes == []
    assert found.digests[1].groups == 6  # a sleep changes no parameter
    page = logs.page(tmp_path)
    assert "inject_ms=20.0" in page
    assert "ddp/mpi (slow) over ddp/mpi (plain)" in page


def test_an_arm_differs_in_nothing_that_the_study_does_not_set(tmp_path: Path) -> None:
    found = arms(tmp_path, inject_ms=20.0, weight_decay=0.5)
    assert not found.comparisons
    assert "weight_decay: 0.0001, 0.5" in found.not_compared[0].reason
