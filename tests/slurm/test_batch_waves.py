"""Waves in a queue: the last job looks and submits the next launches, until it is settled."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from slurm import states
from tests.slurm import stand_in
from tests.slurm.conftest import Calls
from tests.slurm.stand_in import environment, install
from tests.slurm.studies import write
from tests.slurm.test_batch import Cluster
from tests.slurm.test_job_script import finish, start_process
from tests.slurm.test_waves import ONE_CURVE, PAIR

# the report itself is another test's
PYTHON = f'#!/bin/sh\nif [ "$2" = plots ]; then exit 0; fi\nexec "{sys.executable}" "$@"\n'


class Waves(Cluster):
    """One job a launch, six to eight of them, on a Slurm of scripts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        own = {"cells": 'cells = ["ddp", "horovod"]', "world_sizes": "nodes = [1]"}
        write(folder, ONE_CURVE, **{**PAIR, **own, "launches": "launches = 6\nmax_launches = 8"})
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)

    def measure(self, noisy: bool) -> None:
        """Let all jobs in the queue end well but the report, which then runs."""
        for status in self.work().statuses:
            if status.state == "planned":
                (stand_in.noisy if noisy else stand_in.complete)(status.run.config)
        self._leave(lambda line: "-report|" not in line)
        queue = self.top / "queue"
        queue.write_text(queue.read_text().replace("PENDING", "RUNNING"))

    def _leave(self, has_ended: Callable[[str], bool]) -> None:
        lines = (self.top / "queue").read_text().splitlines(keepends=True)
        with (self.top / "gone").open("a") as file:
            file.writelines(filter(has_ended, lines))
        (self.top / "queue").write_text("".join(x for x in lines if not has_ended(x)))

    def report(self) -> tuple[str, str]:
        """Run the report's job, and take it out of the queue; what it said."""
        job = [record for record in self.records() if record["job"] == "report"][-1]
        own = {"SLURM_JOB_ID": job["slurm_id"], "PYTHON": str(self.top / "python")}
        script = ["bash", str(self.folder / job["script"])]
        code, out, err = finish(start_process(script, {**environment(self.top), **own}))
        assert code == 0
        self._leave(lambda line: line.startswith(f"{job['slurm_id']}|"))
        return out, err


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waves:
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    return Waves(tmp_path)


def names(*launches: int) -> list[str]:
    return [*(f"small-n001-launch{launch:02d}" for launch in launches), "small-report"]


def test_the_last_job_submits_the_next_wave_and_waiting_follows(
    cluster: Waves, call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = call("submit", *cluster.words)
    assert (code, err) == (0, "")
    assert re.search(r"^6 launches = 0\.\d node-h; at most 8 = 0\.\d node-h$", out, re.M)
    assert cluster.queued() == names(*range(6))
    reports: list[str] = []

    def first_wave() -> None:
        (cluster.top / "squeue.down").unlink()
        cluster.measure(noisy=True)
        reports.append(cluster.report()[0])
        assert cluster.queued() == names(6, 7)

    def last_wave() -> None:
        cluster.measure(noisy=False)
        reports.append(cluster.report()[0])
        assert cluster.queued() == []

    # while it waits: a controller that does not answer says nothing of the jobs, and ends nothing
    events = iter([(cluster.top / "squeue.down").touch, first_wave, last_wave])
    monkeypatch.setattr(states, "time", Mock(sleep=lambda _: next(events)()))
    code, out, err = call("status", "--follow", *cluster.words)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "0/24 runs done, jobs: 7 pending",
        "0/24 runs done, jobs: 7 submitted, squeue does not answer",
        "24/32 runs done, jobs: 3 pending",
        "small: 32 runs: 32 ok",
    ]
    assert re.search("^6 launches; Not settled: .*; 2 more", reports[0], re.M)
    ends = "^8 launches; Not settled: .*; ends: all 8 launches are done$"
    assert re.search(ends, reports[1], re.M)


def test_a_job_submits_no_failed_run_and_says_where_it_may_not_submit(cluster: Waves) -> None:
    cluster.submit()
    stand_in.complete(cluster.work().todo[0].config)
    assert cluster.report() == ("", "")
    cluster.set_queue()
    assert "report  submitted as job " in cluster.submit()[-1]
    cluster.measure(noisy=True)
    cluster.refuse("job-", "Access/permission denied")
    refused, cure = cluster.report()[1].splitlines()
    assert refused.startswith("error: sbatch refused: sbatch: error: Access/permission denied; ")
    again = f"python -m slurm submit {cluster.options.study} --site testcluster --results "
    assert cure.startswith(f"the next launches, from a login node: {again}")
    assert '"code": 0' in (cluster.folder / "jobs/report.jsonl").read_text().splitlines()[-1]
