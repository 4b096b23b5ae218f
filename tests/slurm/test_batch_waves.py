"""Waves in a queue: the last job looks and submits the next launches, until it is settled."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from slurm.session import StudyOptions, open_work
from slurm.submit import cancel_all, submit_missing
from tests.slurm import stand_in
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.studies import ROOT, write
from tests.slurm.test_batch import Cluster
from tests.slurm.test_waves import ONE_CURVE, PAIR


class Waves(Cluster):
    """One job a launch, six to ten of them, on a Slurm of scripts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        own = {"cells": 'cells = ["ddp", "horovod"]', "world_sizes": "nodes = [1]"}
        source = write(folder, ONE_CURVE, **{**PAIR, **own})
        self.options = StudyOptions(
            study=str(source), site="testcluster", results=folder / "results"
        )

    def measure(self, noisy: bool) -> None:
        """All jobs in the queue end well but the report, which then runs."""
        for status in self.work().statuses:
            if status.state == "planned":
                (stand_in.noisy if noisy else stand_in.complete)(status.run.config)
        lines = (self.top / "queue").read_text().splitlines()
        gone = [line for line in lines if "-report|" not in line]
        with (self.top / "gone").open("a") as file:
            file.writelines(f"{line}\n" for line in gone)
        kept = [line.replace("PENDING", "RUNNING") for line in lines if line not in gone]
        (self.top / "queue").write_text("".join(f"{line}\n" for line in kept))

    def report(self) -> tuple[int, str, str]:
        """Run the report's job, and take it out of the queue."""
        job = [record for record in self.records() if record["job"] == "report"][-1]
        env = {**environment(self.top), "SLURM_JOB_ID": job["slurm_id"]}
        script = ["bash", str(self.folder / job["script"])]
        done = subprocess.run(script, cwd=ROOT, env=env, capture_output=True, text=True)
        lines = (self.top / "queue").read_text().splitlines()
        left = [line for line in lines if not line.startswith(f"{job['slurm_id']}|")]
        (self.top / "queue").write_text("".join(f"{line}\n" for line in left))
        with (self.top / "gone").open("a") as file:
            file.write("report\n")
        # lines of progress, on a machine that is slow enough for them
        err = re.sub(r"(?m)^\d+ of \d+ run logs read\n", "", done.stderr)
        return done.returncode, done.stdout, err

    def queued(self) -> list[str]:
        return [line.split("|")[1] for line in (self.top / "queue").read_text().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waves:
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    return Waves(tmp_path)


def names(*blocks: int) -> list[str]:
    return [*(f"small-n001-b{block:02d}" for block in blocks), "small-report"]


def test_the_last_job_submits_wave_after_wave(cluster: Waves) -> None:
    code, out, err = cluster.cli("submit")
    assert (code, err) == (0, "")
    assert re.search(r"^6 launches = 0\.\d node-h; at most 10 = 0\.\d node-h$", out, re.M)
    assert cluster.queued() == names(*range(6))
    for launches in (6, 8):
        cluster.measure(noisy=True)
        code, out, err = cluster.report()
        assert (code, err) == (0, "")
        (line,) = (line for line in out.splitlines() if line.startswith(f"{launches} launches; "))
        assert "Not settled: " in line
        assert "; 2 more" in line
        assert cluster.queued() == names(launches, launches + 1)
        waits = (cluster.top / "sbatch.said").read_text().splitlines()[-1]
        jobs = [r["slurm_id"] for r in cluster.records() if r["blocks"] == launches + 2]
        assert f"--dependency=afterany:{jobs[0]}:{jobs[1]} " in waits
        # a second submission, by hand, finds the wave in the queue
        assert f"n001-b{launches:02d}  pending as job {jobs[0]}" in cluster.cli("submit")[1]
        assert cluster.queued() == names(launches, launches + 1)
    cluster.measure(noisy=True)
    code, out, err = cluster.report()
    assert (code, err, cluster.queued()) == (0, "", [])
    assert "; ends: all 10 launches are done\n" in out


def test_what_is_settled_gets_no_more(cluster: Waves) -> None:
    assert cluster.cli("submit")[0] == 0
    cluster.measure(noisy=False)
    code, out, err = cluster.report()
    assert (code, err, cluster.queued()) == (0, "", [])
    assert "6 launches; Equal within 2 %" in out
    assert "; ends: settled\n" in out
    assert "all 24 runs are ok; nothing to submit" in cluster.cli("submit")[1]


def test_what_failed_is_not_submitted_again_by_a_job(cluster: Waves) -> None:
    assert cluster.cli("submit")[0] == 0
    stand_in.complete(cluster.work().todo[0].config)
    (cluster.top / "queue").write_text("")
    code, out, err = cluster.report()
    assert (code, err, cluster.queued()) == (0, "", [])
    assert re.search(r"^\d+ launches; ", out, re.MULTILINE) is None, "no look"


def test_where_a_job_may_not_submit_it_says_what_does(cluster: Waves) -> None:
    assert cluster.cli("submit")[0] == 0
    cluster.measure(noisy=True)
    cluster.refuse("job-", "Access/permission denied")
    code, _, err = cluster.report()
    assert code == 0
    refused, cure = err.splitlines()
    assert refused.startswith("error: sbatch refused: sbatch: error: Access/permission denied; ")
    again = f"python -m slurm submit {cluster.options.study} --site testcluster --results "
    assert cure.startswith(f"the next launches, from a login node: {again}")
    assert (
        json.loads((cluster.folder / "jobs/report.jsonl").read_text().splitlines()[-1])["code"] == 0
    )


def test_no_more_than_was_asked_for_is_submitted(cluster: Waves) -> None:
    assert cluster.cli("submit", "--blocks", "8")[0] == 0
    assert cluster.queued() == names(*range(8))
    assert "--again" not in (cluster.folder / "job-report-001.sh").read_text()


def test_cancelling_takes_the_report_out_first_though_it_runs(cluster: Waves) -> None:
    """It could submit the next wave meanwhile, so the jobs are looked up again after it."""
    list(submit_missing(open_work(cluster.options)))
    lines = (cluster.top / "queue").read_text().replace("report|PENDING", "report|RUNNING")
    (cluster.top / "queue").write_text(lines)
    assert cancel_all(open_work(cluster.options))[:2] == [
        "report  job 107 taken out of the queue",
        "n001-b00  job 101 taken out of the queue",
    ]
    assert (cluster.top / "scancel.said").read_text().splitlines()[0] == "107"
    with cluster.work().folder.lock(), pytest.raises(Exception, match="being submitted; wait"):
        cancel_all(open_work(cluster.options))


def test_waiting_follows_from_wave_to_wave(cluster: Waves) -> None:
    assert cluster.cli("submit")[0] == 0
    waiting = cluster.follow()
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("0/24 runs done, jobs: 7 pending, ")
    for _ in range(3):
        cluster.measure(noisy=True)
        assert cluster.report()[0] == 0
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, err) == (0, "")
    assert "/32 runs done" in out
    assert out.splitlines()[-1] == "small: 40 runs: 40 ok"
