"""What a Slurm job says of itself, for `python -m slurm status` where Slurm keeps no account."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from slurm.driver.closing import NoRoom


class Diary:
    """Appends events to jobs/JOB.jsonl of the study's folder; begins with the job."""

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
            raise NoRoom(f"{self.path} cannot be written: {error.strerror}") from None

    def begun_before(self) -> list[str]:
        """Other jobs that began before this one."""
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
