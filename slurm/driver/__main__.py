"""python -m slurm.driver OPTIONS -- COMMON: runs the lines `run ID RANKS OPTIONS` of a job."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.missing import give_up

try:
    from bench.config import UsageError
    from bench.study.folder import StudyFolder
    from bench.study.plan import plan
    from bench.study.status import look
    from slurm.directives import REPORT
    from slurm.driver.allocation import SlurmJob, check_allocation
    from slurm.driver.closing import Diary, NoRoom
    from slurm.driver.job import Job
    from slurm.driver.launches import read_launches
    from slurm.driver.options import JobOptions
    from slurm.driver.outputs import complain
except ModuleNotFoundError as absent:
    give_up(absent)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _own_env(text: str) -> tuple[str, list[str]]:
    backend, *words = shlex.split(text)
    return backend, words


def _parse(argv: Sequence[str]) -> JobOptions:
    parser = argparse.ArgumentParser(prog="python -m slurm.driver", description=__doc__)
    add, words = parser.add_argument, shlex.split
    add("--study-dir", type=Path, required=True, help="folder of the study's logs")
    add("--study", default="", help="text of the study, kept beside the logs")
    add("--limit-s", type=int, default=0, help="time limit of one run, seconds")
    add("--python", required=True, help="what starts `-m bench`")
    add("--container", type=words, default=[], help="words that start a program in a container")
    add(
        "--launcher",
        default="mpirun",
        choices=("mpirun", "srun", "ibrun"),
        help="starts a run's ranks",
    )
    add("--launch-args", type=words, default=[], help="arguments of the launcher in every step")
    add("--own-env", type=_own_env, action="append", default=[], help="BACKEND NAME=VALUE ...")
    add("--job", default="", help="name of a Slurm job's files; left out: no scheduler")
    add("--nodes", type=int, default=1, help="that the job needs")
    add("--ranks-per-node", type=int, default=1, help="that fill a node")
    add("--cpus-per-rank", type=int, help="as Slurm counts CPUs")
    add("--minutes", type=int, default=0, help="that the job asks for")
    add("--lead-s", type=int, default=0, help="seconds kept free at the job's end")
    add("--requeue", action="store_true", help="let Slurm start the job again for what is left")
    add("--no-kill", action="store_true", help="go on without a lost node, as far as that goes")
    add("--cells", type=words, default=[], help="tried before the first run")
    add("--preflight", type=words, default=[], help="other options of the doctor")
    add("--calibration", type=words, default=[], help="options of one plain process")
    add("--report", action="store_true", help="write the report, and run nothing")
    add("--again", type=words, default=[], help="of `-m slurm`: submits the next launches, if any")
    options = parser.parse_args(argv, JobOptions())
    options.own_env = dict(options.own_env)
    return options


def _here(options: JobOptions, common: list[str]) -> int:
    """One job of a study at a time; the lock is free when the last process that holds it ended.

    mpirun inherits it: a run that outlives a killed job still counts. `slurm run` hands its down.
    """
    program = os.environ.get("MPIRUN", "mpirun")
    if shutil.which(program) is None:
        cure = "run 'make setup' or say where it is: PYTHON=... MPIRUN=..."
        raise UsageError(f"{program} is not found; {cure}")
    folder = StudyFolder(options.study_dir.parent, options.study_dir.name)
    if handed := os.environ.get("STUDY_LOCK_FD"):
        lock = int(handed)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{folder.path}: another job of this study is running") from None
    else:
        held = folder.lock()
        lock = held.fileno()
    folder.keep_study(options.study)
    return Job(options, common, read_launches(sys.stdin.read()), [lock]).work()


def _in_slurm(options: JobOptions, common: list[str]) -> int:
    launches = read_launches(sys.stdin.read())
    check_allocation(options)
    folder = StudyFolder(options.study_dir.parent, options.study_dir.name)
    folder.check_not_shipped()
    folder.check_not_archived()
    for name in ("runs", "jobs", "calibration"):
        (options.study_dir / name).mkdir(parents=True, exist_ok=True)
    folder.keep_study(options.study)
    job = SlurmJob(options, common, launches, Diary(options.study_dir, options.job))
    code, refused = 1, "broken off"
    try:
        code, refused = job.work(), ""
    except (UsageError, OSError) as error:
        code, refused = 2, _one_line(options, error)
        raise
    finally:
        job.finish(code, refused)
    return code


def _report(options: JobOptions) -> int:
    """The report on what the study's jobs measured, however they ended."""
    if not os.environ.get("SLURM_JOB_ID"):
        cure = f"on this machine: python -m plots report {options.study_dir}"
        raise UsageError(f"this is not a Slurm job; {cure}")
    diary = Diary(options.study_dir, REPORT)
    command = [*options.container, options.python]
    command += ["-m", "plots", "report", str(options.study_dir)]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if options.again and _all_ok(options.study_dir):
        again = ["-m", "slurm", *options.again]
        if subprocess.run(
            [sys.executable, *again], stdin=subprocess.DEVNULL, check=False
        ).returncode:
            complain(f"the next launches, from a login node: {shlex.join(['python', *again])}")
    diary.tell("end", reason=f"no report, exit code {code}" if code else "complete", code=code)
    return code


def _all_ok(study_dir: Path) -> bool:
    """Whether every run begun or planned is: what failed is not for a job to submit again."""
    folder = StudyFolder(study_dir.parent, study_dir.name)
    if (study := folder.kept()) is None:
        return False
    planned = plan(study, folder.asked_blocks(study), folder.runs)
    return all(look(run, job_is_running=False).state == "ok" for block in planned for run in block)


def _one_line(options: JobOptions, error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, NoRoom) or getattr(error, "errno", None) in _FULL:
        again = "submit again" if options.job else "the same command goes on with this run"
        return f"{text}; make room, then {again}"
    return text


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 done, 1 some runs are not ok, 2 going on is of no use, 128 + n by signal n."""
    at = argv.index("--") if "--" in argv else len(argv)
    options, common = _parse(argv[:at]), list(argv[at + 1 :])
    try:
        if options.report:
            return _report(options)
        return (_in_slurm if options.job else _here)(options, common)
    except (UsageError, OSError) as error:
        complain(f"error: {_one_line(options, error)}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
