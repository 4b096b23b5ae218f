"""Batch jobs of the tests: a script that runs the bench once or more, and what Slurm says of the
job.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster import steps
from tests.cluster.namespace import ROOT

# As the job scripts of the project do: a limit on each run, their own `exit` line at the log's end,
# and on to the next one.
_SCRIPT = """\
#!{python}
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from slurm.driver.closing import close, oom_kills
from slurm.driver.steps import Steps
steps, out, limit_s = Steps(grace_s=10), Path("/dev/null"), {limit_s}
steps.listen(signal.SIGTERM)
for log, command in {runs!r}:
    log = Path(log.replace("@RESTARTS@", os.environ.get("SLURM_RESTART_COUNT", "0")))
    before = oom_kills()
    ended = steps.wait(steps.start([*command, "--log-path", str(log)], out, limit_s))
    if ended.code > 128:  # what ended the step may be meant for all of the job, and come here last
        time.sleep(1)
    stopped = steps.stopped is not None
    close(log, out, ended, limit_s=limit_s, stopped=stopped, oom_kills_before=before)
"""


def submit(
    folder: Path,
    options: Sequence[str],
    runs: Sequence[tuple[str, Sequence[str]]],
    limit_s: int = 60,
) -> str:
    """Submit a job that does `runs` (log's name, command) one after the other in `folder`;
    its id.
    """
    commands = [(f"{folder}/{log}", list(command)) for log, command in runs]
    text = _SCRIPT.format(python=sys.executable, root=str(ROOT), runs=commands, limit_s=limit_s)
    script = folder / "job.sh"
    script.write_text(text)
    done = steps.run(
        [
            "sbatch",
            "--parsable",
            f"--output={folder}/job.out",
            "--open-mode=append",
            *options,
            str(script),
        ]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def facts(job: str) -> dict[str, str]:
    """What Slurm knows of the job, by scontrol's names."""
    done = steps.run(["scontrol", "-o", "show", "job", job])
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"(\S+?)=(\S*)", done.stdout))


def wait_for(job: str, states: Sequence[str], limit_s: float = 150) -> str:
    """The job's state, once it is one of `states`."""
    deadline = time.monotonic() + limit_s
    while (state := facts(job)["JobState"]) not in states:
        if time.monotonic() > deadline:
            pytest.fail(f"job {job} is {state}, not {' or '.join(states)}, after {limit_s:g} s")
        time.sleep(0.2)
    return state


def start_again(job: str, minutes: int = 15) -> None:
    """Let a requeued job start now, with its time limit as it was: by itself it would wait for two
    minutes.
    """
    wait_for(job, ["PENDING"])
    time.sleep(
        2
        # a start within a second or so of the last one's end is refused on the nodes: "Job
        # credential revoked"
    )
    steps.run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}", "StartTime=now"])


def reach_windows(folder: Path, log: str) -> None:
    """Return once the run of `log` is inside its windows."""
    path = folder / log
    ended = '"event": "exit"'
    steps.reach_windows(
        path,
        lambda: not (path.exists() and ended in path.read_text()),
        lambda: (folder / "job.out").read_text(),
    )
