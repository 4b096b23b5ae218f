"""The launches of one `slurm run`: wave after wave with looks between, under the study's lock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import IO

from bench.config import UsageError
from bench.study.status import seconds_left
from slurm import here, waves
from slurm.driver.closing import new_session
from slurm.session import Asked, Work, open_work
from slurm.waves import Standing


@dataclass(frozen=True)
class Ended:
    """How the loop ended: by a signal, or with more launches to come in another command."""

    stopped_by: int | None = None
    more: bool = False
    ran: bool = False


@dataclass
class Loop:
    """One command's time and what it has learnt of a launch's."""

    asked: Asked
    lock: IO[str]
    budget_s: int | None
    began: float  # time.monotonic() of the command
    launch_s: float | None = None  # as the last wave took
    ran: bool = False

    def work(self) -> Ended:
        """Go on until `waves.decide` says why not, a run is not ok, or a signal comes."""
        self.session, goal = new_session(), 0
        while True:
            work = open_work(self.asked, locked=True)
            if why := here.not_one_machine(work):
                raise UsageError(why)
            work.folder.keep_study(work.text)
            done = min((run.config.block or 0 for run in work.todo), default=work.blocks)
            if done < goal:
                return Ended(ran=True)
            verdict, settled = "", False
            if work.looks and not work.todo:
                with here.signals_caught() as caught:
                    verdict, settled = waves.look(work.folder.path)
                if caught:
                    return Ended(caught[0], more=True, ran=self.ran)
            standing = self._standing(work, done, settled)
            goal, why_not = waves.decide(standing)
            if verdict or (why_not and work.todo):
                print(waves.say(standing, verdict), flush=True)
            if why_not:
                return Ended(more=not settled and done < work.most, ran=self.ran)
            work = open_work(self.asked, locked=True, launches=goal)
            if (stopped_by := self._wave(work, done)) is not None:
                return Ended(stopped_by, ran=True)

    def _standing(self, work: Work, done: int, settled: bool) -> Standing:
        """With the time of a launch as the last ones took, else as estimated."""
        left_s = None
        if self.budget_s is not None:
            left_s = self.budget_s - (time.monotonic() - self.began)
        one = [status.run for status in work.statuses if status.run.config.block == 0]
        guess_s = seconds_left(one, work.statuses, work.study.expected_run_s)
        return Standing(done, work.blocks, work.most, settled, left_s, self.launch_s or guess_s)

    def _wave(self, work: Work, done: int) -> int | None:
        """Do what is missing of these launches; what signal stopped it, if any."""
        for planned in work.todo:
            work.folder.set_aside(planned.log)
        facts = {**work.facts, "runs": len(work.todo)}
        script = work.folder.add_job(self.lock, work.script(), **facts)
        what = f"{work.study.name}: {len(work.todo)} runs on {work.site.title}"
        print(f"{what}, {work.estimate}; {script}", flush=True)
        if not self.ran:
            here.warn_if_busy()
        self.ran, began = True, time.monotonic()
        stopped_by = here.execute(script, self.lock, work, self.session)
        self.launch_s = (time.monotonic() - began) / (work.blocks - done)
        return stopped_by
