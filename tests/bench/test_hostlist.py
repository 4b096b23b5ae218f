"""Hostlists: the examples that `scontrol show hostnames` (22.05.8) was asked about."""

from __future__ import annotations

import pytest

from bench.config import UsageError
from bench.launch.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[001-003,7],m1", "n001 n002 n003 n7 m1"),
        ("rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2"),
        ("tux[0-1][0-3]", "tux00 tux01 tux02 tux03 tux10 tux11 tux12 tux13"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[4],n[1-2]", "n4 n1 n2"),
        ("n1*2,n2", "n1*2 n2"),
        ("a-b[1-2],c.d", "a-b1 a-b2 c.d"),
    ],
)
def test_order_and_width_are_kept(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n[1-2]-ib", "'-ib' follows a bracket"),
        ("n[1-10:2]", "'1-10:2' is neither"),
        ("n[3-1]", "rising"),
        ("n[1-010]", "one width"),
        ("a[1]b[2]c[3]", "3 brackets"),
        ("n[1-2", "unpaired bracket"),
        ("n]1", "unpaired bracket"),
        ("n[]", "neither"),
        ("n1,,n2", "nothing readable"),
        ("n[1-99999999999]", "'1-99999999999' counts more than 100000 hosts"),
        ("n[1-200000]", "counts more than 100000 hosts"),
        ("r[1-1000]n[1-1000]", "'r[1-1000]n[1-1000]' counts more than 100000 hosts"),
        ("n1,", "nothing readable"),
        ("", "nothing readable"),
    ],
)
def test_anything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=r"hostlist .*Slurm writes") as error:
        expand(text)
    assert reason in str(error.value)
