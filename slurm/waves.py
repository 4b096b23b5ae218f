"""A study that stops when it knows: what comes after a look, more launches or the reason for none.

A launch is one block. Launches come in twos, as each side of a pair is first in one of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.config import UsageError
from bench.study.limits import MAX_SECONDS
from bench.study.looks import STEP
from bench.study.status import duration

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Standing:
    """A study whose last launches have ended well."""

    done: int  # launches that are complete, from the first on
    wanted: int  # launches that are planned or begun
    most: int  # launches up to which more may come; `wanted` where nothing is looked at
    settled: bool = False
    left_s: float | None = None  # of the budget; None: there is none
    launch_s: float | None = None  # that a launch takes; None: nobody knows yet


class Next(NamedTuple):
    """Launches to go on to; as many as are done where it ends, and why."""

    launches: int
    why: str = ""


def decide(s: Standing) -> Next:
    """All wanted launches, then two at a time; with a budget two at a time from the start."""
    if s.settled:
        return Next(s.done, "settled")
    goal = s.wanted if s.done < s.wanted else s.done + STEP
    if goal > max(s.most, s.wanted):
        return Next(s.done, f"all {s.done} launches are done")
    if s.left_s is None:
        return Next(goal)
    goal = min(goal, s.done - s.done % STEP + STEP)
    if s.left_s <= 0 or (s.launch_s or 0) * (goal - s.done) > s.left_s:
        more = _more(s, goal)
        return Next(s.done, f"{more}{',' if ',' in more else ''} would not end within the budget")
    return Next(goal)


def _more(s: Standing, goal: int) -> str:
    count = goal - s.done
    return f"{count} more" + (f", {duration(s.launch_s * count)}" if s.launch_s else "")


def say(s: Standing, verdict: str = "") -> str:
    """One line: launches so far, the verdict on them if there is one, and what comes."""
    launches, why = decide(s)
    comes = f"ends: {why}" if why else _more(s, launches)
    done = f"{s.done} launches" + ("" if s.done >= s.wanted else f" of {s.wanted}")
    return "; ".join(filter(None, (done, verdict, comes)))


def look(folder: Path) -> tuple[str, bool]:
    """The verdict on the primary so far, a line, and whether that settles it.

    Raises UsageError where there is none; its reason stands on stderr by then.
    """
    command = [sys.executable, "-m", "plots", "settled", str(folder)]
    # in a session of its own: Ctrl-C lets it come to its end
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        check=False,
    )
    line = " ".join(done.stdout.split())
    if done.returncode not in (0, 1) or not line:
        ended = f"plots settled {folder} ended with exit code {done.returncode}"
        raise UsageError(f"{ended}, so nobody knows whether to go on; its own message is above")
    return line, done.returncode == 0


def seconds(text: str) -> int:
    """'90s', '15m' or '1h30m' as seconds. Raises UsageError."""
    parts = re.findall(r"([0-9]{1,9})([smhd])", text)
    total = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) == text and 1 <= total <= MAX_SECONDS:
        return total
    if text.isdecimal():
        raise UsageError(
            f"--budget {text} names no unit, which timeout reads as seconds and srun -t as minutes;"
            f" write {text}m or {text}s"
        )
    rule = f"is no time from 1s to {MAX_SECONDS // _UNITS['d']}d"
    raise UsageError(f"--budget {text!r} {rule}; write it as 90s, 15m, 2h or 1h30m")
