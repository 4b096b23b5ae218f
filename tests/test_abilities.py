"""Every file belongs to an ability, and no ability outgrows its budget."""

from __future__ import annotations

from tests import abilities


def test_no_ability_outgrows_its_budget() -> None:
    print(*abilities.count()[0], sep="\n")
    assert [*abilities.problems()] == []
