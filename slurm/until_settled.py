"""The loop of `slurm run`: waves of launches, until the study's comparison is settled.

Planned launches come first, then two per wave, so that each side of a pair is first once.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.config import UsageError
from bench.study.definition import MAX_SECONDS
from bench.study.looks import STEP
from bench.study.status import count, duration, seconds_left
from slurm import local_run
from slurm.driver.closing import new_session
from slurm.session import Work, open_work, short

# in the environment: the command that goes on with a study, where it is not this one
GO_ON = "STUDY_GO_ON"


@dataclass(frozen=True)
class Standing:
    """How far a study has come: the launches done, wanted and allowed, and the budget left."""

    done: int  # launches that are complete, from the first on
    wanted: int  # launches that are planned or begun
    most: int  # launches up to which more may come; `wanted` where nothing is looked at
    settled: bool = False
    left_s: float | None = None  # of the budget; None: there is none
    launch_s: float | None = None  # that a launch takes; None: nobody knows yet

    def decide(self) -> tuple[int, str]:
        """Return the number of launches to reach, and the reason to stop; '' means go on.

        The wanted launches are done whatever the budget. More are added in twos, within the budget.
        """
        if self.done < self.wanted:
            return self.wanted, ""
        goal = self.done + STEP
        if self.settled:
            return self.done, "settled"
        if goal > self.most:
            return self.done, f"all {self.done} launches are done"
        need_s = (self.launch_s or 0) * STEP
        if self.left_s is not None and (self.left_s <= 0 or need_s > self.left_s):
            return self.done, f"{self._more(goal)}, would not end within the budget"
        return goal, ""

    def say(self, verdict: str = "") -> str:
        """Return a line on the launches so far, the verdict if any, and what comes next."""
        goal, why = self.decide()
        done = f"{self.done} launches" + (f" of {self.wanted}" if self.done < self.wanted else "")
        return "; ".join(filter(None, (done, verdict, f"ends: {why}" if why else self._more(goal))))

    def _more(self, goal: int) -> str:
        time = "" if self.launch_s is None else f", {duration(self.launch_s * (goal - self.done))}"
        return f"{goal - self.done} more{time}"


@dataclass
class RunLoop:
    """One `slurm run`: its budget, the time that a launch takes, and why the run stopped."""

    work: Work
    lock: IO[str]
    budget_s: int | None
    began: float  # time.monotonic() of the command
    launch_s: float | None = None  # as the last wave took
    stopped_by: int | None = None  # a signal
    more: bool = False  # whether another command would go on though all runs are ok
    settled: bool = False  # by the last look

    def go_on(self) -> None:
        """Do waves of launches until `Standing.decide` stops, a run fails, or a signal arrives."""
        session, goal = new_session(), 0
        while self.stopped_by is None:
            self.work = work = open_work(self.work.options, locked=True)
            local_run.require_one_machine(work)
            work.folder.keep_study(work.text)
            done = min((run.config.launch or 0 for run in work.todo), default=work.launches)
            if done < goal:
                return
            verdict, settled = "", False
            if work.looks and not work.todo:
                with local_run.signals_caught() as caught:
                    verdict, settled = look(work.folder.path)
                self.settled, self.more = settled, not settled and done < work.most
                self.stopped_by = next(iter(caught), None)
            used_s = time.monotonic() - self.began
            left_s = None if self.budget_s is None else self.budget_s - used_s
            if (launch_s := self.launch_s) is None:  # estimated until a wave has shown it
                one = [status.run for status in work.statuses if status.run.config.launch == 0]
                launch_s = seconds_left(one, work.statuses, work.study.expected_run_s)
            standing = Standing(done, work.launches, work.most, settled, left_s, launch_s)
            goal, why = standing.decide()
            if verdict or (why and work.todo):
                print(standing.say(verdict), flush=True)
            if why:
                return
            if self.stopped_by is None:
                self._do_wave(open_work(work.options, True, goal), done, session)

    def _do_wave(self, work: Work, done: int, session: str) -> None:
        """Do the runs left in `work` after `done` launches; set `stopped_by` and `launch_s`."""
        for planned in work.todo:
            work.folder.set_aside(planned.log)
        facts = {"site": work.site.name, "launches": work.launches, "runs": len(work.todo)}
        script = work.folder.add_script(work.script(), "")
        work.folder.record_job(script, **facts)
        runs = f"{work.study.name}: {len(work.todo)} runs on {work.site.title}"
        print(f"{runs}, {work.estimate}; {script}", flush=True)
        if self.launch_s is None:
            local_run.warn_if_busy()
        began = time.monotonic()
        self.stopped_by = local_run.execute(script, self.lock, session)
        self.launch_s = (time.monotonic() - began) / (work.launches - done)


def look(folder: Path) -> tuple[str, bool]:
    """Return a line on a study's primary comparison, and if it is settled. Raises UsageError."""
    from bench.study.words import interim  # here: what reads no logs starts without pandas

    return interim(folder)


def seconds(text: str) -> int:
    """Return the seconds of '90s' or '1h30m'. Raises UsageError, also for a number without unit."""
    match = re.fullmatch(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", text)
    parts = [int(part or 0) for part in match.groups()] if match else []
    total = sum(n * unit for n, unit in zip(parts, (86_400, 3600, 60, 1), strict=False))
    if 1 <= total <= MAX_SECONDS:
        return total
    rule = f"is no time with its unit, from 1s to {MAX_SECONDS // 86_400}d"
    raise UsageError(f"--budget {text!r} {rule}; write it as 90s, 15m, 2h or 1h30m")


def close(
    work: Work, again: Sequence[str], stopped_by: int | None = None, more: bool = False
) -> int:
    """Print how runs ended; with runs left or `more`, also how to go on. Return exit status."""
    print(f"{work.study.name}: {count(work.statuses)}")
    for status in work.statuses:
        if status.state not in ("ok", "planned"):
            print(f"  {status.run.id}: {status.state}  {status.reason}".rstrip())
    if work.todo or more:
        start = f"{python()} -m slurm {shlex.join(again)}"
        print(f"go on with: {os.environ.get(GO_ON) or start}")
    return 128 + stopped_by if stopped_by is not None else int(bool(work.todo))


def say_report(work: Work) -> None:
    """Print the command that makes the report, but not for a caller that sets STUDY_GO_ON."""
    if not os.environ.get(GO_ON):
        path = shlex.quote(str(work.folder.path))
        print(f"then, for the answer: {python()} -m plots report {path}")


def python() -> str:
    """Return this Python as a word of a shell: its name if PATH leads to it, else its path."""
    path = Path(sys.executable)
    on_path = shutil.which(path.name) == sys.executable
    return path.name if on_path else shlex.quote(str(short(path, follow=False)))
