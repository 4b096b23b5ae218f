"""Whether a study's primary comparison is settled: python -m plots.report.settled STUDY.

For a loop that adds launches until it is: a line, and exit code 0 if settled, 1 if not, 2 for bad
input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.shell import reported
from bench.study.frames import load, require
from bench.study.points import ranks, tabulate
from bench.study.verdict import compare
from plots.report.verdicts import prospect, sentence
from plots.require import require_folder


def settled(folder: Path) -> tuple[bool, str]:
    """Tell whether a study is settled, with a line on it. Raises UsageError if no log is usable."""
    loaded = load(folder)
    require(loaded, folder)
    rows = compare(tabulate(loaded.runs), loaded.study, [])
    c = next((c for c in rows if c.primary), None)
    if c is None:
        return False, "Not settled: no launch holds both sides of the primary comparison"
    where = ", ".join(filter(None, [ranks(c.world_size), c.transport, c.arm]))
    words = [f"{sentence(c)} ({where}, n = {c.paired.n})", prospect(c)]
    return c.settled, ". ".join(filter(None, words))


def main(words: list[str]) -> int:
    """Print the line of the study that `words` name; return the exit code."""

    def say() -> int:
        done, text = settled(require_folder(Path(words[0])))
        print(text)
        return 0 if done else 1

    return reported(say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
