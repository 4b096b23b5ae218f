"""Lines of source and tests of each ability against its budget: python -m tests.abilities."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = ("source", "test")
OVER = 1.1  # times its budget: what an ability may have


class Row(NamedTuple):
    """Lines of one kind that an ability has, and may have."""

    ability: str
    kind: str
    lines: int
    budget: int

    @property
    def over(self) -> bool:
        return self.lines > OVER * self.budget


def count() -> list[Row]:
    """Count the lines of every ability; a file of none is a row of its own, without a budget."""
    words = ["git", "ls-files", "*.py"]
    names = subprocess.check_output(words, cwd=ROOT, text=True).splitlines()
    lines = {n: len((ROOT / n).read_text().splitlines()) for n in names if (ROOT / n).exists()}
    rows = []
    for ability in tomllib.loads((ROOT / "tests" / "abilities.toml").read_text())["ability"]:
        for kind in KINDS:
            patterns = ability.get(f"{kind}_files", ())
            ours = [n for n in lines if any(fnmatchcase(n, pattern) for pattern in patterns)]
            total = sum(lines.pop(name) for name in ours)
            rows.append(Row(ability["name"], kind, total, ability[f"{kind}_lines"]))
    return rows + [Row(name, KINDS[name.startswith("tests/")], lines[name], 0) for name in lines]


def main() -> int:
    """Print all rows; exit code 1 where one is over its budget."""
    rows = count()
    for row in rows:
        over = "  over its budget" if row.over else ""
        print(f"{row.ability:36} {row.kind:6} {row.lines:6} of {row.budget:5}{over}")
    for kind in KINDS:
        print(f"{kind}: {sum(row.lines for row in rows if row.kind == kind)} lines")
    return int(any(row.over for row in rows))


if __name__ == "__main__":
    sys.exit(main())
