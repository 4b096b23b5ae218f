"""A finding: what was looked at, how it stands, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.config import UsageError
from bench.missing import fitting


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer; `cure` is empty where all is well."""

    name: str
    level: Literal["ok", "warning", "failure"]
    text: str
    cure: str = ""

    def line(self) -> str:
        """The finding as a person reads it."""
        cure = f"; {self.cure}" if self.cure else ""
        return fitting(f"{self.level:<8} {self.name:<12} {self.text}{cure}")


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def warning(name: str, text: str, cure: str) -> Finding:
    return Finding(name, "warning", text, cure)


def failure(name: str, text: str, cure: str) -> Finding:
    return Finding(name, "failure", text, cure)


def refused(name: str, error: UsageError) -> Finding:
    """What bench would refuse, in its words."""
    return failure(name, error.text, error.cure)


def merge(by_rank: Mapping[int, Sequence[Finding]]) -> list[Finding]:
    """One list for all ranks: what all of them find is said once, what some find names them."""
    ranks: dict[str, dict[Finding, list[int]]] = {}  # name -> finding -> who has it
    for rank, findings in sorted(by_rank.items()):
        for finding in findings:
            ranks.setdefault(finding.name, {}).setdefault(finding, []).append(rank)
    merged: list[Finding] = []
    for name, same in ranks.items():
        bad = [finding for finding in same if finding.level != "ok"]
        # a good answer may differ in words between hosts: rank 0's stands for all
        merged += [] if bad else [next(iter(same))]
        for finding in bad:
            some = len(same[finding]) < len(by_rank)
            where = f"on rank {ranges(same[finding])}: " if some else ""
            merged.append(Finding(name, finding.level, where + finding.text, finding.cure))
    return merged


def ranges(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> '0-2, 5'."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in spans)
