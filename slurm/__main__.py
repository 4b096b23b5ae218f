"""python -m slurm COMMAND STUDY: from a study to run logs, and what has become of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from bench import give_up

try:
    from pydantic import BeforeValidator

    from bench.config import UsageError
    from bench.options import Shown, option
    from bench.shell import Group, call
    from bench.study.disk import write_whole
    from bench.study.status import count, table
    from slurm import local_run, new_site, states, submit
    from slurm.directives import REPORT, job_name, report_minutes
    from slurm.session import OF_JOBS, PREVIEW, ClusterOptions, StudyOptions, Work, open_work
    from slurm.states import JobState
    from slurm.until_settled import RunLoop, close, say_report, seconds
except ModuleNotFoundError as absent:
    give_up(absent)

_COLOURS = {"ok": 32, "running": 36, "planned": 39, "interrupted": 33}  # of a terminal, else red


class Render(StudyOptions):
    """Print the job script of what is left to do.

    That is all runs which are not ok yet. Nothing is changed; the count, and an estimate or the
    price, go to stderr.
    """

    hidden: ClassVar[tuple[str, ...]] = ()
    out: Path | None = option(None, "folder for all jobs of a cluster")
    job: str | None = option(None, "as n004-launch00; default: the largest")

    def run(self) -> None:
        work = open_work(self)
        local = work.site.scheduler == "none"
        if local and (self.out or self.job):
            rule = "--out and --job are for a cluster's jobs"
            raise UsageError(f"{rule}, and site {self.site!r} has one script; leave them out")
        _say(f"{work.study.name}: {work.launches_planned}, {count(work.statuses)}")
        if work.preview:
            _say(PREVIEW)
        if local and work.todo:
            _say(f"this script: {len(work.todo)} runs, {work.estimate}")
            print(work.script(), end="")
        elif not local and work.jobs:
            self._render_jobs(work)

    def _render_jobs(self, work: Work) -> None:
        from slurm.cost import lines

        jobs = {job.id: job for job in work.jobs}
        largest = max(jobs.values(), key=lambda job: (job.nodes, -job.launch))
        chosen = jobs.get(self.job) if self.job else largest
        if chosen is None:
            choice = ", ".join(jobs)
            rule = f"no such job is left to do; choose one of {choice}"
            raise UsageError(f"--job {self.job}: {rule}")
        wanted = jobs.values() if self.out else [chosen]
        scripts = {job.id: work.batch_script(job) for job in wanted}
        if self.out:
            scripts[REPORT] = work.report_script()
        _say("\n".join(lines(work)))
        if self.out is None:
            _say(f"this script: {chosen.id}; --job names another, --out FOLDER writes all")
            print(scripts[chosen.id], end="")
            return
        self.out.mkdir(parents=True, exist_ok=True)
        for name, script in scripts.items():
            write_whole(self.out / f"{work.study.name}-{name}.sh", script)
        _say(f"{len(scripts)} scripts in {self.out}")


class RunHere(StudyOptions):
    """Do the study's runs here, one after the other, and more launches until it is settled.

    After its `launches` launches, and then after every two more, the verdict is looked at, until it
    is settled, `max_launches` or the budget is reached. What failed, timed out or was interrupted is
    done again, with what it is compared with; earlier logs are kept as ID.attempt-1.jsonl. Exit
    status: 0 every run is ok, settled or not, 1 one is not, 2 the input was wrong, 3 not settled
    with --require-settled.
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
        if why := local_run.not_checkout():
            raise UsageError(why)
        work.folder.check_own()
        work.folder.check_way(slurm=False)
        local_run.find_launcher(work.site.hostfile)
        with work.folder.lock() as lock:
            work.folder.check_way(slurm=False)  # somebody may have submitted it meanwhile
            loop = RunLoop(work, lock, self.budget, began)
            loop.go_on()
        work = open_work(self, earlier=loop.work)  # a run that outlived its job holds the study
        if loop.launch_s is None and not (work.todo or loop.more):
            print(f"{count(work.statuses)}; nothing to do")
            say_report(work)
            return 0 if loop.settled or not self.require_settled else 3
        code = close(work, ["run", *self.words()], loop.stopped_by, loop.more)
        if not work.todo:
            say_report(work)
        return code or (3 if self.require_settled and not loop.settled else 0)


class Submit(ClusterOptions):
    """Submit a job for every launch and node count of which runs are missing; also resumes.

    Where none is missing and a look does not settle the study, those of two more launches. The
    last job reports and does the same. Jobs in the queue are left alone, so the same command may be
    given again at any time.
    """

    hidden: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "python -m slurm submit smoke --site mine.toml --dry-run"
    dry_run: bool = option(False, "print jobs and price only")
    no_report: bool = option(False, "submit no report job")

    def run(self) -> None:
        work = open_work(self)
        not_shared = submit.not_shared(work.site, work.folder.path)
        reasons = [work.request.lacks_account, local_run.not_checkout(), not_shared]
        refusals = list(filter(None, reasons))
        if refusals and not self.dry_run:
            raise UsageError(refusals[0])
        priced = replace(work.request, account=self.account or "ACCOUNT") if self.dry_run else None
        # a forbidden option comes out all the same
        submit.scripts(replace(work, request=priced or work.request))
        launches, why = submit.next_wave(work)
        if why:
            print(why)
            work = open_work(self, launches=launches, earlier=work)
        self._say_price(work)
        if not self.dry_run:
            for line in submit.submit_missing(work, not self.no_report):
                with suppress(OSError):  # a reader that has gone must not stop the submission
                    print(line, flush=True)
            return
        for why in refusals:
            print(f"it would be refused: {why}")
        if work.preview:
            print(PREVIEW)
        print(f"dry run: nothing submitted; {count(work.statuses)}")

    def _say_price(self, work: Work) -> None:
        from slurm.cost import lines

        if work.jobs:
            print(*lines(work), sep="\n")
            if not self.no_report:
                price = f"1 node, at most {report_minutes(work.site)} min"
                print(f"then, when all have ended, the report: {price} (--no-report leaves it out)")


class Cancel(ClusterOptions):
    """Take the study's jobs out of the queue; running ones record where they stop."""

    hidden: ClassVar[tuple[str, ...]] = (*OF_JOBS, "launches", "time_limit_s")

    def run(self) -> None:
        print(*submit.cancel_all(open_work(self)), sep="\n")


class Status(StudyOptions):
    """Print the state of every run, and under Slurm of every job.

    A run is planned, running, ok, failed, timed out, interrupted, out of memory, node lost or wrong
    world; it is ok if its own log proves it, and only then. Below a run that went wrong stand the
    last words of its ranks.
    """

    follow: bool = option(False, "until no job is in the queue; exit code 0: every run is ok")
    poll_s: float = option(10, "seconds between looks at the queue, with --follow", ge=0.1)

    def run(self) -> int:
        if self.follow:
            return self._follow()
        self._say_states(open_work(self))
        return 0

    def _follow(self) -> int:
        """Follow the jobs, print the answer; it may be ended and started again at any time."""
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
            print(f"{run_id}  {_coloured(state)}{padding}{rest}")
            for line in words:
                print(f"{' ' * (len(run_id) + 17)}{line}")
        print(f"{work.study.name}: {work.launches_planned}, {count(statuses)}")
        if work.preview:
            print(PREVIEW)
        if work.site.scheduler == "none" and (why := local_run.not_one_machine(work)):
            print(f"note: {why}")
        if all(status.state == "planned" for status in statuses):
            print(f"no runs in {work.folder.path} yet; --results names another folder")


def _coloured(state: str) -> str:
    return f"\033[{_COLOURS.get(state, 31)}m{state}\033[0m" if sys.stdout.isatty() else state


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
    """Exit code: 0 done, 1 some runs are not ok, 2 the user's mistake, 128 + n by signal n."""
    return call("python -m slurm", PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
