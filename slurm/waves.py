"""A study that stops when it knows: what comes after a look, more launches or the reason for none.

A launch is one block. Launches come in twos, as each side of a pair is first in one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bench.config import UsageError
from bench.study.limits import MAX_SECONDS
from bench.study.looks import STEP
from bench.study.status import duration


@dataclass(frozen=True)
class Standing:
    """A study whose launches so far have ended well."""

    done: int  # launches that are complete, from the first on
    wanted: int  # launches that are planned or begun
    most: int  # launches up to which more may come; `wanted` where nothing is looked at
    settled: bool = False
    left_s: float | None = None  # of the budget; None: there is none
    launch_s: float | None = None  # that a launch takes; None: nobody knows yet

    def decide(self) -> tuple[int, str]:
        """Choose the launches to go on to: all wanted, then two at a time while the budget lasts.

        Or as many as are done, and why it ends. A budget never ends what comes before the first
        look, without which there is no verdict.
        """
        if self.done < self.wanted:
            return self.wanted, ""
        goal = self.done + STEP
        if self.settled:
            return self.done, "settled"
        if goal > self.most:
            return self.done, f"all {self.done} launches are done"
        need_s = (self.launch_s or 0) * (goal - self.done)
        if self.left_s is not None and (self.left_s <= 0 or need_s > self.left_s):
            return self.done, f"{self._more(goal)}, would not end within the budget"
        return goal, ""

    def say(self, verdict: str = "") -> str:
        """Say in one line the launches so far, the verdict on them if any, and what comes."""
        goal, why = self.decide()
        done = f"{self.done} launches" + (f" of {self.wanted}" if self.done < self.wanted else "")
        return "; ".join(filter(None, (done, verdict, f"ends: {why}" if why else self._more(goal))))

    def _more(self, goal: int) -> str:
        time = "" if self.launch_s is None else f", {duration(self.launch_s * (goal - self.done))}"
        return f"{goal - self.done} more{time}"


def look(folder: Path) -> tuple[str, bool]:
    """Read the verdict on the primary so far, a line, and whether that settles it."""
    from bench.study.words import interim  # here: what reads no logs starts without pandas

    return interim(folder)


def seconds(text: str) -> int:
    """Read '90s' or '1h30m' as seconds; a number alone is seconds to timeout, minutes to srun."""
    match = re.fullmatch(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", text)
    parts = [int(part or 0) for part in match.groups()] if match else []
    total = sum(n * unit for n, unit in zip(parts, (86_400, 3600, 60, 1), strict=False))
    if 1 <= total <= MAX_SECONDS:
        return total
    rule = f"is no time with its unit, from 1s to {MAX_SECONDS // 86_400}d"
    raise UsageError(f"--budget {text!r} {rule}; write it as 90s, 15m, 2h or 1h30m")
