"""Turns against separate launches, as shipped: the table is what the logs say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.study.files import read_study
from tests import spread

SHIPPED = Path(__file__).parents[1] / "results" / "spread"


def test_the_shipped_table_is_what_the_logs_say() -> None:
    table = list(spread.rows(SHIPPED))
    with (SHIPPED / spread.TABLE).open(newline="") as file:
        kept = list(csv.DictReader(file))
    launches = {"quiet": 10, "load": 8, "load-10-60s": 8, "quiet-emulated": 10, "quiet-gloo": 10}
    assert [(row["form"], row["load"]) for row in kept] == [
        (form, load) for load in launches for form in spread.FORMS
    ]
    for row, made in zip(kept, table, strict=True):
        n = launches[row["load"]]
        assert (row["form"], row["load"], int(row["n"])) == (made["form"], made["load"], n)
        for name in ("ratio", "sd_log"):
            assert float(row[name]) == pytest.approx(made[name], rel=1e-12)
    sd_log = {(row["form"], row["load"]): float(row["sd_log"]) for row in kept}
    for load in ("quiet", "load-10-60s"):  # bursts shorter than a round of turns are another matter
        assert sd_log["turns", load] < sd_log["apart", load] / 3
    words = list(spread.in_words(spread.pairs(SHIPPED)))
    assert [line.partition(":")[0] for line in words] == [x for x in launches for _ in range(2)]
    assert words[1].endswith("separate launches 0.979: 0.997 [0.972, 1.023]")
    for line in (line for line in words[1::2] if line.startswith("quiet")):  # one ratio, both ways
        low, high = map(float, line.rpartition("[")[2].rstrip("]").split(", "))
        assert low <= 1 <= high


def test_a_condition_names_load_study_and_transport() -> None:
    assert spread.condition(None) == "quiet"
    assert spread.condition(spread.BURST_S) == "load"
    assert spread.condition((10.0, 60.0), spread.LIKE, "gloo") == "load-10-60s-gloo"
    assert spread.condition(None, "emulated") == "quiet-emulated"


def test_both_forms_of_a_study_differ_in_turns_alone(tmp_path: Path) -> None:
    paths = [spread.study("local", form, tmp_path, "quiet-gloo", "gloo") for form in spread.FORMS]
    turns, apart = (read_study(path) for path in paths)
    assert (turns.turns, apart.turns) == (True, False)
    assert turns.cells == ("ddp/gloo", "horovod/gloo")
    assert turns.model_copy(update={"name": apart.name, "turns": False}) == apart


@pytest.mark.parametrize("form", spread.FORMS)
def test_the_shipped_studies_can_be_gone_on_with(tmp_path: Path, form: str) -> None:
    shipped = SHIPPED / "studies" / f"{form}-quiet.toml"
    assert read_study(spread.study("local", form, tmp_path, "quiet")) == read_study(shipped)
