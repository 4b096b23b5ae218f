"""Lines of source and tests of each ability against its budget: python -m tests.abilities."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = ("source", "test")
OVER = 1.1  # times its budget: what an ability may have before the test fails


class Row(NamedTuple):
    """Lines of one kind that an ability has, and may have."""

    ability: str
    kind: str
    lines: int
    budget: int


def count() -> tuple[list[Row], list[str]]:
    """Count the lines of every ability; also returns the files that are in no row."""
    abilities = tomllib.loads((ROOT / "tests" / "abilities.toml").read_text())["ability"]
    words = ["git", "ls-files", "*.py"]
    lines: dict[tuple[str, str], int] = defaultdict(int)
    lost = []
    for name in subprocess.check_output(words, cwd=ROOT, text=True).splitlines():
        if not (ROOT / name).exists():  # removed, and not committed yet
            continue
        kind = KINDS[name.startswith("tests/")]
        for ability in abilities:
            if any(fnmatchcase(name, pattern) for pattern in ability.get(f"{kind}_files", ())):
                lines[ability["name"], kind] += len((ROOT / name).read_text().splitlines())
                break
        else:
            lost.append(name)
    pairs = ((ability, kind) for ability in abilities for kind in KINDS)
    rows = [Row(a["name"], k, lines[a["name"], k], a[f"{k}_lines"]) for a, k in pairs]
    return rows, lost


def problems() -> Iterator[str]:
    """Name every ability that is over its budget, and every file that is in no row."""
    rows, lost = count()
    for row in rows:
        if row.lines > OVER * row.budget:
            yield f"{row.ability}: {row.lines} lines of {row.kind}, budget {row.budget}"
    yield from (f"{name} is in no row of tests/abilities.toml" for name in lost)


def main() -> int:
    """Print all rows; exit code 1 where one is over its budget."""
    rows, _ = count()
    for source, test in zip(rows[::2], rows[1::2], strict=True):
        numbers = f"{source.lines:6} of {source.budget:5} {test.lines:6} of {test.budget:5}"
        print(f"{source.ability:36} {numbers}")
    for kind in KINDS:
        print(f"{kind}: {sum(row.lines for row in rows if row.kind == kind)} lines")
    wrong = [*problems()]
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
