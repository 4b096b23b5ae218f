"""Command line python -m slurm COMMAND STUDY, which renders, runs, submits or follows a study."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, ClassVar

from bench import give_up

try:
    from pydantic import BeforeValidator

    from bench.config import UsageError
    from bench.options import Shown, option
    from bench.shell import Group, call
    from bench.study.status import count, table
    from slurm import local_run, new_site, states, submit
    from slurm.cost import lines
    from slurm.fit import REPORT, job_name
    from slurm.session import OF_JOBS, ClusterOptions, StudyOptions, Work, open_work
    from slurm.states import JobState
    from slurm.until_settled import RunLoop, Standing, close, look, say_report, seconds
except ModuleNotFoundError as absent:
    give_up(absent)


class Render(StudyOptions):
    """Print the job script of the runs left to do; on a cluster, only of the job with most nodes.

    The runs left are those that are not ok, and those compared with them. The command changes
    nothing. It prints the number of runs, and their time or node-hours, to stderr.
    """

    hidden: ClassVar[tuple[str, ...]] = ()

    def run(self) -> None:
        work = open_work(self)
        _say(f"{work.study.name}: {work.launches_planned}, {count(work.statuses)}")
        if work.site.scheduler == "none" and work.todo:
            _say(f"this script: {len(work.todo)} runs, {work.estimate}")
            print(work.script(), end="")
        elif work.site.scheduler == "slurm" and work.jobs:
            largest = max(work.jobs, key=lambda job: (job.nodes, -job.launch))
            script = work.batch_script(largest)
            _say("\n".join([*lines(work), f"this script: {largest.id}"]))
            print(script, end="")


class RunHere(StudyOptions):
    """Do the study's runs here, launch after launch, until the study is settled.

    A launch measures every framework and setting once. The comparison is judged after the study's
    `launches`, then after every two more, up to `max_launches` or the budget. Runs that are not ok
    are done again, with those compared with them; earlier logs are kept as ID.attempt-1.jsonl. Exit
    status: 0 all runs are ok, settled or not; 1 some are not; 2 wrong input; 3 not settled, with
    --require-settled; 128 + n: stopped by signal n.
    """

    budget: Annotated[int | None, BeforeValidator(seconds)] = option(
        None,
        "begin no launch after the first look that would end beyond it: 15m, 1h30m",
        shown=Shown(metavar="TIME"),
    )
    require_settled: bool = option(False, "end with 3 where every run is ok and nothing is settled")

    def run(self) -> int:
        began = time.monotonic()
        work = open_work(self)  # every mistake comes out before anything is made
        if work.site.scheduler != "none":
            cure = f"use: python -m slurm submit {self.study} --site {self.site}"
            raise UsageError(f"site {self.site!r} hands out its nodes through Slurm; {cure}")
        local_run.require_checkout()
        local_run.find_hosts(work.site.hostfile)
        with work.folder.lock() as lock:
            work.folder.check_way(slurm=False)
            loop = RunLoop(work, lock, self.budget, began)
            loop.go_on()
        work = open_work(self)  # a run that outlived its job holds the study
        if loop.launch_s is None and not (work.todo or loop.more):
            print(f"{count(work.statuses)}; nothing to do")
            say_report(work)
            return 0 if loop.settled or not self.require_settled else 3
        code = close(work, ["run", *self.words()], loop.stopped_by, loop.more)
        if not work.todo:
            say_report(work)
        return code or (3 if self.require_settled and not loop.settled else 0)


class Submit(ClusterOptions):
    """Submit a job for each launch and node count with runs left to do; repeat it to resume.

    If all runs are ok but their comparison is not settled, two more launches are submitted, up to
    max_launches; the report job, which waits for all others, does this too. You may repeat the
    command at any time: no job is submitted twice.
    """

    hidden: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "python -m slurm submit smoke --site mine.toml --dry-run"
    dry_run: bool = option(False, "print jobs and price only")
    no_report: bool = option(False, "submit no report job")

    def run(self) -> None:
        work = open_work(self)
        submit.scripts(work)  # every mistake comes out before anything is made
        if not self.dry_run:
            local_run.require_checkout()
        if work.looks and not work.todo:
            answer, settled = look(work.folder.path)
            standing = Standing(work.launches, work.launches, work.most, settled)
            print(standing.say(answer))
            work = open_work(self, launches=standing.decide()[0])
        if work.jobs:
            print(*lines(work), sep="\n")
        if self.dry_run:
            print(f"dry run: nothing submitted; {count(work.statuses)}")
            return
        for line in submit.submit_missing(work, not self.no_report):
            with suppress(OSError):  # a reader that has gone must not stop the submission
                print(line, flush=True)


class Cancel(ClusterOptions):
    """Take the study's waiting jobs off the queue; tell running jobs to log their end and stop."""

    hidden: ClassVar[tuple[str, ...]] = (*OF_JOBS, "launches", "time_limit_s")

    def run(self) -> None:
        print(*submit.cancel_all(open_work(self)), sep="\n")


class Status(StudyOptions):
    """Print the state of every run, and at a site with Slurm also of every job.

    A run is planned, running, ok, failed, timed out, interrupted, out of memory, node lost or wrong
    world (its ranks are not those asked for). It is ok only if its own log proves it. Below a run
    that went wrong are the last messages of its ranks.
    """

    follow: bool = option(False, "until no job is in the queue; exit code 0: every run is ok")
    poll_s: float = option(10, "seconds between looks at the queue, with --follow", ge=0.1)

    def run(self) -> int:
        if self.follow:
            return self._follow()
        self._say_states(open_work(self))
        return 0

    def _follow(self) -> int:
        """Wait for the jobs, print their report or what went wrong; return 0 if all runs are ok."""
        work = states.wait_for_jobs(self, self.poll_s)
        jobs = states.all_states(work)
        report = jobs.get(REPORT)
        if work.todo:  # why, as far as the jobs know
            _say_jobs(jobs)
        elif report is not None and report.state == states.REPORTED:
            output = work.folder.path / "jobs" / f"{job_name(work.study, REPORT)}-{report.id}.out"
            if output.exists():
                print(output.read_text(encoding="utf-8", errors="replace"), end="")  # the answer
        elif report is not None:
            print(f"{REPORT}  job {report.id}  {states.no_report(work, report)}")
        return close(work, ["submit", *self.words()])

    def _say_states(self, work: Work) -> None:
        statuses = work.statuses
        if work.site.scheduler == "slurm":
            jobs = states.all_states(work)
            statuses = states.look_at_jobs(work, jobs)
            _say_jobs(jobs)
        for run_id, state, rest, words in table(statuses):
            padding = " " * (15 - len(state)) if rest else ""
            print(f"{run_id}  {state}{padding}{rest}")
            for line in words:
                print(f"{' ' * (len(run_id) + 17)}{line}")
        print(f"{work.study.name}: {work.launches_planned}, {count(statuses)}")
        if all(status.state == "planned" for status in statuses):
            print(f"no runs in {work.folder.path} yet; --results names another folder")


def _say_jobs(jobs: Mapping[str, JobState]) -> None:
    for name, job in sorted(jobs.items()):
        print(f"{name}  job {job.id}  {job.state}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


PROGRAM = Group(
    "Turn a study into job scripts; run or submit them, and follow them.",
    example="python -m slurm run local",
    render=Render,
    run=RunHere,
    submit=Submit,
    cancel=Cancel,
    status=Status,
    site=Group("Describe a cluster: site new NAME.", new=new_site.NewSite),
)


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv`, by default sys.argv, and return its exit code.

    0: done; 1: some runs are not ok; 2: wrong input; 3: not settled; 128 + n: ended by signal n.
    """
    return call("python -m slurm", PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
