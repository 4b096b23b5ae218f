"""Pauses: found inside a block, never between blocks, and never where times are not known."""

import math

import pandas as pd
import pytest

from plots.analyse.comparability import NO_BLOCK, Block
from plots.analyse.pauses import find, sentence

# log, block, session, seconds at which it began, seconds that it took
Row = tuple[str, int, str, float, float]


def table(*rows: Row) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["log", "block", "allocation", "began_s", "wall_s"])


def found(*rows: Row) -> list[tuple[Block, float, str, str]]:
    return [(p.block, p.seconds, p.after, p.before) for p in find(table(*rows))]


@pytest.mark.parametrize(
    ("pause", "wall", "flagged"),
    [(600, 15, False), (601, 15, True), (601, 300, False), (901, 300, True)],
)
def test_a_pause_is_longer_than_ten_minutes_and_three_runs(
    pause: float, wall: float, flagged: bool
) -> None:
    rows = [("a", 0, "x", 0.0, wall), ("b", 0, "x", wall + pause, wall)]
    assert found(*rows[::-1]) == [(Block(0, "x"), pause, "a", "b")] * flagged


def test_only_inside_a_block_and_a_session_and_of_known_times() -> None:
    day = 86_400.0
    assert not found(
        ("a", 0, "x", 0, 15),
        ("b", 0, "y", day, 15),
        ("c", 1, "y", 2 * day, 15),
        ("d", 1, "y", math.nan, 15),
        ("e", NO_BLOCK, "", 0, 15),
        ("f", NO_BLOCK, "", day, 15),
    )
    assert not found(("a", 0, "", 0, math.nan), ("b", 0, "", day, math.nan))


def test_it_is_said_in_minutes() -> None:
    rows = pd.DataFrame(
        {
            "log": ["a.jsonl", "b.jsonl"],
            "block": [3, 3],
            "allocation": ["", ""],
            "began_s": [0.0, 7210.0],
            "wall_s": [10.0, 10.0],
        }
    )
    (pause,) = find(rows)
    said = "block 3: 120 min passed between two of its runs, a.jsonl and b.jsonl; more than 10 min"
    assert sentence(pause) == f"{said} are flagged"
