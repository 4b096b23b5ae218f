"""Do a job's runs, or its report: python -m slurm.driver JOB_OPTIONS -- OPTIONS_OF_ALL_RUNS."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench import give_up

try:
    from bench.config import UsageError
    from bench.shell import reported
    from bench.study.folder import StudyFolder
    from slurm.driver.closing import Diary, complain
    from slurm.driver.job import LocalJob, SlurmJob, check_allocation, look_at_runs
    from slurm.driver.script import JobOptions, read_groups
    from slurm.fit import REPORT
except ModuleNotFoundError as absent:
    give_up(absent)


def _here(options: JobOptions, common: list[str]) -> int:
    """Do runs without Slurm, under the study's lock; return exit status. Raises UsageError."""
    program = os.environ.get("MPIRUN", "mpirun")
    if shutil.which(program) is None:
        cure = "run 'make setup' or say where it is: PYTHON=... MPIRUN=..."
        raise UsageError(f"{program} is not found; {cure}")
    folder = StudyFolder(options.study_dir.parent, options.study_dir.name)
    if handed := os.environ.get("STUDY_LOCK_FD"):
        lock = int(handed)
    else:
        held = folder.lock()
        lock = held.fileno()  # mpirun inherits it: a run that outlives a killed job holds it on
    folder.keep_study(options.study)
    return LocalJob(options, common, read_groups(sys.stdin.read()), [lock]).work()


def _in_slurm(options: JobOptions, common: list[str]) -> int:
    groups = read_groups(sys.stdin.read())
    check_allocation(options)
    folder = StudyFolder(options.study_dir.parent, options.study_dir.name)
    folder.check_open()
    for name in ("runs", "jobs"):
        (options.study_dir / name).mkdir(parents=True, exist_ok=True)
    folder.keep_study(options.study)
    job = SlurmJob(options, common, groups, Diary(options.study_dir, options.job))
    code, refused = 1, "broken off"
    try:
        code, refused = job.work(), ""
    except (UsageError, OSError) as error:
        code, refused = 2, str(error)
        raise
    finally:
        job.finish(code, refused)
    return code


def _report(options: JobOptions) -> int:
    """Make the report and return its exit code. If all runs are ok, submit any next launches."""
    if not os.environ.get("SLURM_JOB_ID"):
        cure = f"on this machine: python -m plots report {options.study_dir}"
        raise UsageError(f"this is not a Slurm job; {cure}")
    diary = Diary(options.study_dir, REPORT)
    command = [*options.container, options.python]
    command += ["-m", "plots", "report", str(options.study_dir)]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    folder = StudyFolder(options.study_dir.parent, options.study_dir.name)
    # a job does not submit again what failed
    if options.again and folder.kept() and all(s.state == "ok" for s in look_at_runs(folder)[1]):
        again = ["-m", "slurm", *options.again]
        command = [sys.executable, *again]
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
            complain(f"the next launches, from a login node: {shlex.join(['python', *again])}")
    diary.tell("end", reason=f"no report, exit code {code}" if code else "complete", code=code)
    return code


def main(argv: Sequence[str]) -> int:
    """Do a job and return its exit code.

    0: all done; 1: some runs failed or are left; 2: error, do not retry. Without Slurm, a job that
    signal n ended returns 128 + n.
    """
    at = argv.index("--") if "--" in argv else len(argv)
    common = list(argv[at + 1 :])

    def work() -> int:
        options = JobOptions.read(argv[:at], "python -m slurm.driver")
        if options.report:
            return _report(options)
        return (_in_slurm if options.job else _here)(options, common)

    return reported(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
