"""A finding: what was looked at, how it stands, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer; `cure` is empty where all is well."""

    name: str
    level: Level
    text: str
    cure: str = ""

    def line(self) -> str:
        """The finding as a person reads it."""
        return f"{self.level:<8} {self.name:<12} {self.text}" + (
            f"; {self.cure}" if self.cure else ""
        )

    def record(self) -> dict[str, str]:
        """The same as plain values."""
        return asdict(self)


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def warning(name: str, text: str, cure: str) -> Finding:
    return Finding(name, "warning", text, cure)


def failure(name: str, text: str, cure: str) -> Finding:
    return Finding(name, "failure", text, cure)


def read(record: Mapping[str, Any]) -> Finding:
    """The finding that `record` was made of."""
    return Finding(**record)


def exit_status(findings: Sequence[Finding]) -> int:
    """0 where everything is fit, warnings included; 1 where something failed."""
    return int(any(finding.level == "failure" for finding in findings))


def merge(by_rank: Mapping[int, Sequence[Finding]]) -> list[Finding]:
    """One list for all ranks: what all of them find is said once, what some find names them."""
    merged: list[Finding] = []
    for name in dict.fromkeys(finding.name for found in by_rank.values() for finding in found):
        same: dict[Finding, list[int]] = {}
        for rank, found in sorted(by_rank.items()):
            for finding in found:
                if finding.name == name:
                    same.setdefault(finding, []).append(rank)
        bad = [finding for finding in same if finding.level != "ok"]
        if not bad:
            merged.append(
                next(iter(same))
            )  # a good answer may differ in words between hosts: rank 0's stands for all
        for finding in bad:
            where = (
                "" if len(same[finding]) == len(by_rank) else f"on rank {_ranges(same[finding])}: "
            )
            merged.append(Finding(name, finding.level, where + finding.text, finding.cure))
    return merged


def _ranges(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> '0-2, 5'."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
