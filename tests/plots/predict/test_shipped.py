"""Our own studies that were predicted before they were measured: the model still says the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest

from bench.record.archive import logs_in, read_file
from plots.__main__ import main

RESULTS = Path(__file__).parents[3] / "results"
KEYS = ["name", "world_size"]


@pytest.mark.parametrize(
    ("large", "small"),
    [
        ("emulated-large-2048", "emulated-small-2048"),
        ("net-pairs-large", "net-pairs"),
        ("net-pairs-10240-large", "net-pairs-10240"),
    ],
)
def test_the_prediction_of_the_large_study_is_what_the_model_says_of_the_small_one(
    tmp_path: Path, large: str, small: str
) -> None:
    (kept,) = logs_in(RESULTS / large / "predictions", ".csv")
    shipped = pd.read_csv(io.BytesIO(read_file(kept))).set_index(KEYS)
    out = tmp_path / "now.csv"
    words = ["--ranks", "4,8", "--fit-ranks", "2", "--format", "csv", "-o", str(out)]
    assert main(["predict", str(RESULTS / small), *words]) == 0
    now = pd.read_csv(out).set_index(KEYS)
    assert [*now.index] == [*shipped.index]
    for column in ("predicted_efficiency", "low", "high"):
        assert [*now[column]] == pytest.approx([*shipped[column]], abs=0.01)


@pytest.mark.parametrize(
    "study",
    ["emulated-large", "emulated-large-2048", "net-pairs-large", "net-pairs-10240-large"],
)
def test_what_shares_cores_was_in_doubt_before_it_was_measured(study: str) -> None:
    rows = json.loads((RESULTS / study / "summary.json").read_text())["predictions"]
    beyond = {row["world_size"]: row for row in rows if row["use"] == "predicted"}
    assert {*beyond} == {4, 8}
    assert all("wait for its cores" in row["doubt"] for row in beyond.values())


def test_nodes_that_share_a_machine_leave_ddp_in_its_band() -> None:
    rows = json.loads((RESULTS / "net-pairs-large/summary.json").read_text())["predictions"]
    beyond = [row for row in rows if row["cell"] == "ddp/gloo" and row["use"] == "predicted"]
    assert [row["inside"] for row in beyond] == [True, True]


def test_four_ranks_are_within_five_percent() -> None:
    rows = json.loads((RESULTS / "emulated-large-2048/summary.json").read_text())["predictions"]
    four = {row["cell"]: row for row in rows if row["world_size"] == 4}
    assert {*four} == {"ddp/mpi", "horovod/mpi"}
    for row in four.values():
        measured = row["measured_efficiency"]["value"]
        assert row["predicted_efficiency"] == pytest.approx(measured, rel=0.05)
