"""Records that a job writes: the last event of each run's log, and the job's own diary."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.record import read_run
from bench.record.writer import append
from slurm.driver.steps import Ended

# Lines that tell how a run ended; bench/record/outcome.py judges by them
_GRAVE = re.compile(r"memory|oom.kill|bad_alloc|node.fail|lost communication", re.IGNORECASE)
_TELLING = re.compile(
    r"error|exception|killed|signal|exit code|process name|process rank|tasks? [0-9]", re.IGNORECASE
)
_MOST_LINES = 8  # of each kind
_MOST_CHARACTERS = 300
SESSION = "STUDY_SESSION"  # in the environment


def is_ok(log: Path) -> bool:
    """Return whether `log` proves its run ok; a launcher's exit code 0 is no proof."""
    return log.exists() and read_run(log).state == "ok"


def oom_kills() -> int:
    """Count the processes that this machine has killed for lack of memory since it booted."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counts.get("oom_kill", 0))


def close(log: Path, out: Path, ended: Ended, limit_s: int, stopped: bool, **more: Any) -> None:
    """Append the event `exit` to `log`, or begin `log` with it. Raises UsageError if writing fails.

    `out` has the run's output; `stopped`: the job got a signal; `more`: further fields.
    """
    shot = ["error: the launcher was killed by SIGKILL"] if ended.shot else []
    fields = {
        "code": ended.code,
        "timed_out": ended.timed_out,
        "limit_s": limit_s,
        "interrupted": bool(ended.code) and stopped and not ended.timed_out,
        "wall_s": ended.wall_s,
        "said": [*_said(out), *shot] if ended.code or not is_ok(log) else [],
        **more,
    }
    try:
        fd = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            append(fd, log, "exit", fields)
        finally:
            os.close(fd)
    except OSError as error:
        raise _not_written(log, error) from None


def new_session() -> str:
    """Return a name for this execution of a job script: the time now and the machine's boot id.

    If STUDY_SESSION is set, return its value instead: all scripts of one `slurm run` share it.
    """
    if handed := os.environ.get(SESSION):
        return handed
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().partition("-")[0]
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} boot {boot}"


def _said(out: Path) -> Iterator[str]:
    """Yield lines of a run's output that explain its end: a few on errors, and the last line."""
    shown, last = {_GRAVE: 0, _TELLING: 0}, ""
    with out.open("rb") as file:
        parts = (part for line in file for part in re.split(rb"[\r\n]", line.replace(b"\t", b" ")))
        # a run may print anything
        cut = (re.sub(rb"[^ -~]", b"?", part[:_MOST_CHARACTERS]).decode() for part in parts)
        lines = dict.fromkeys(line for line in cut if line.strip())
    for line in lines:
        last = line
        kind = next((kind for kind in shown if kind.search(line)), None)
        if kind is not None:
            shown[kind] += 1
            if shown[kind] <= _MOST_LINES:
                last = ""
                yield line
    if last:
        yield last


def first_error(out: Path) -> str:
    """Return the rest of the first line that begins with `error: ` in a run's output, or ''."""
    lines = out.read_text(errors="replace").splitlines()
    return next((line[7:] for line in lines if line.startswith("error: ")), "")


def _not_written(file: Path, error: OSError) -> UsageError:
    wrong = f"{file} cannot be written: {error.strerror}"
    return UsageError(f"{wrong}; make room, then start this again, which goes on with this run")


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Diary:
    """A Slurm job's own record, jobs/JOB.jsonl, in which `slurm status` finds how it ended."""

    def __init__(self, study_dir: Path, job: str) -> None:
        self.path = study_dir / "jobs" / f"{job}.jsonl"
        self.id = os.environ["SLURM_JOB_ID"]
        self.restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))  # a requeued job's id stays
        self.path.parent.mkdir(parents=True, exist_ok=True)
        nodes = os.environ.get("SLURM_JOB_NODELIST", "")
        self.tell("begin", nodes=nodes, time=int(time.time()))

    def tell(self, event: str, **fields: object) -> None:
        line = json.dumps({"event": event, "job": self.id, "restart": self.restart, **fields})
        try:
            with self.path.open("a") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise _not_written(self.path, error) from None

    def begun_before(self) -> list[str]:
        """List the Slurm ids of this job's other submissions that began before this one."""
        jobs: list[str] = []
        for line in self.path.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # torn
                continue
            if event.get("event") == "begin":
                if event["job"] == self.id:
                    return jobs
                jobs.append(event["job"])
        return jobs
