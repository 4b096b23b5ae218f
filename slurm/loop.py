"""The launches of one `slurm run`: wave after wave with looks between, under the study's lock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import IO

from bench.config import UsageError
from bench.study.status import seconds_left
from slurm import here
from slurm.driver.closing import new_session
from slurm.session import Work, open_work
from slurm.waves import Standing, look


@dataclass
class RunLoop:
    """One command: its time, what it has learnt of a launch's, and how it ended."""

    work: Work
    lock: IO[str]
    budget_s: int | None
    began: float  # time.monotonic() of the command
    launch_s: float | None = None  # as the last wave took
    stopped_by: int | None = None  # a signal
    more: bool = False  # whether another command would go on though all runs are ok

    def go_on(self) -> None:
        """Go on until `decide` says why not, a run is not ok, or a signal comes."""
        session, goal = new_session(), 0
        while self.stopped_by is None:
            self.work = work = self._open()
            if why := here.not_one_machine(work):
                raise UsageError(why)
            work.folder.keep_study(work.text)
            done = min((run.config.block or 0 for run in work.todo), default=work.blocks)
            if done < goal:
                return
            verdict, settled = "", False
            if work.looks and not work.todo:
                with here.signals_caught() as caught:
                    verdict, settled = look(work.folder.path)
                self.more, self.stopped_by = (
                    not settled and done < work.most,
                    next(iter(caught), None),
                )
            standing = self._standing(work, done, settled)
            goal, why = standing.decide()
            if verdict or (why and work.todo):
                print(standing.say(verdict), flush=True)
            if why:
                return
            if self.stopped_by is None:
                self._wave(self._open(goal), done, session)

    def _open(self, launches: int | None = None) -> Work:
        return open_work(self.work.options, True, launches, self.work)

    def _standing(self, work: Work, done: int, settled: bool) -> Standing:
        """Describe the standing; a launch takes as long as the last ones did, else as estimated."""
        used_s = time.monotonic() - self.began
        left_s = None if self.budget_s is None else self.budget_s - used_s
        one = [status.run for status in work.statuses if status.run.config.block == 0]
        guess_s = seconds_left(one, work.statuses, work.study.expected_run_s)
        return Standing(done, work.blocks, work.most, settled, left_s, self.launch_s or guess_s)

    def _wave(self, work: Work, done: int, session: str) -> None:
        """Do what is missing of these launches."""
        for planned in work.todo:
            work.folder.set_aside(planned.log)
        script = work.folder.add_job(self.lock, work.script(), **work.facts, runs=len(work.todo))
        runs = f"{work.study.name}: {len(work.todo)} runs on {work.site.title}"
        print(f"{runs}, {work.estimate}; {script}", flush=True)
        if self.launch_s is None:
            here.warn_if_busy()
        began = time.monotonic()
        self.stopped_by = here.execute(script, self.lock, work, session)
        self.launch_s = (time.monotonic() - began) / (work.blocks - done)
