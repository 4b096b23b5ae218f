"""Jobs in a queue: submitted once, though submitters are at work at once or killed at the worst
moment, followed, resumed and cancelled; a job that nobody knows any more is never a success.
"""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench.config import UsageError
from slurm import slurm_commands
from slurm.fit import Job
from slurm.session import StudyOptions, Work, open_work
from slurm.slurm_commands import Queued, queue
from slurm.states import job_states
from slurm.submit import cancel_all, submit_missing
from tests.slurm.conftest import Calls
from tests.slurm.stand_in import complete, fail, install, start
from tests.slurm.studies import ROOT, write

JOBS = ("n001-launch00", "n002-launch00", "report")
AFTER_ONE = "submitted as job 102, after 1 job"


class Cluster:
    """The small study on the test cluster: one launch at one node (seven runs) and one at two
    (four).
    """

    def __init__(self, folder: Path) -> None:
        self.top, self.results = folder, folder / "results"
        cells = 'cells = ["single", "ddp", "horovod"]'
        changes = {"world_sizes": "nodes = [1, 2]", "cells": cells, "launches": "launches = 1"}
        study = str(write(folder, **changes))
        self.options = StudyOptions(study=study, site="testcluster", results=self.results)
        self.folder = self.results / "small"

    def work(self) -> Work:
        return open_work(self.options)

    def submit(self, report: bool = True) -> list[str]:
        return list(submit_missing(self.work(), report))

    def jobs(self) -> dict[str, Job]:
        return {job.id: job for job in self.work().jobs}

    def states(self) -> dict[str, str]:
        return {job: known.state for job, known in job_states(self.work(), queue()).items()}

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "jobs.jsonl").read_text().splitlines()]

    def set_queue(self, *lines: str) -> None:
        (self.top / "queue").write_text("".join(line + "\n" for line in lines))
        (self.top / "gone").write_text("gone\n" * 2)  # numbers go on

    def queued(self) -> list[str]:
        """Name the jobs in the queue."""
        lines = (self.top / "queue").read_text() if (self.top / "queue").exists() else ""
        return [line.split("|")[1] for line in lines.splitlines()]

    def said(self, command: str) -> list[str]:
        """Return the arguments of each call of a command."""
        return (self.top / f"{command}.said").read_text().splitlines()

    def say(self, job: str, job_id: str, reason: str = "") -> None:
        """Record that the job began, and with a reason that it ended."""
        events = [{"event": "begin", "job": job_id}]
        events += [{"event": "end", "job": job_id, "reason": reason}] if reason else []
        with (self.folder / "jobs" / f"{job}.jsonl").open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    @property
    def words(self) -> list[str]:
        """Of a command line: the study, and where it is."""
        return [self.options.study, "--site", self.options.site, "--results", str(self.results)]

    def refuse(self, word: str, why: str) -> None:
        """Make sbatch refuse every job with that word in its command."""
        path = self.top / "bin" / "sbatch"
        refusal = f'case "$*" in *{word}*) echo "sbatch: error: {why}" >&2; exit 1;; esac\nenv >'
        path.write_text(path.read_text().replace("env >", refusal))

    def finish(self, *jobs: str) -> None:
        """Let all runs of these jobs, or of all jobs, end well."""
        for job in jobs or self.jobs():
            for run in self.jobs()[job].runs:
                complete(run.config)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "9")  # we may be inside a job ourselves
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    return Cluster(tmp_path)


def test_what_is_missing_is_submitted_once(cluster: Cluster) -> None:
    assert cluster.submit() == [
        "n001-launch00  submitted as job 101, 7 runs",
        "n002-launch00  submitted as job 102, 4 runs",
        "report  submitted as job 103, after 2 jobs",
    ]
    assert cluster.states() == dict.fromkeys(JOBS, "pending")
    keys = ("job", "slurm_id", "script", "launches", "after")
    assert [tuple(record[key] for key in keys) for record in cluster.records()] == [
        ("n001-launch00", "101", "job-n001-launch00-001.sh", 1, []),
        ("n002-launch00", "102", "job-n002-launch00-001.sh", 1, []),
        ("report", "103", "job-report-001.sh", 1, ["101", "102"]),
    ]
    said = cluster.said("sbatch")
    same = f"--parsable --output={cluster.folder}/jobs/%x-%j.out"
    assert said[0] == f"{same} {cluster.folder}/job-n001-launch00-001.sh"
    assert said[2] == f"{same} --dependency=afterany:101:102 {cluster.folder}/job-report-001.sh"
    exported = (cluster.top / "sbatch.env").read_text()
    variables = ("SLURM_JOB_ID", "SBATCH_TIMELIMIT", "SLURM_CONF")
    assert [name for name in variables if f"\n{name}=" in f"\n{exported}"] == ["SLURM_CONF"]
    # sbatch holds the lock too: nobody submits meanwhile, though the submitter is killed
    assert str(cluster.folder / "jobs.jsonl") in (cluster.top / "sbatch.files").read_text()
    assert (cluster.folder / "study.toml").exists()
    assert cluster.submit() == [f"{job}  pending as job {101 + n}" for n, job in enumerate(JOBS)]
    assert len(cluster.said("sbatch")) == 3


GREETING = "-----\nWelcome to the Example Supercomputer, 2026\n--> Verifying job...OK\n"
IDS = (f"{GREETING}4101;cluster\n\n", f"77\nallocation 12 of 40 used\n4101\n{GREETING}", GREETING)


@pytest.mark.parametrize("said", [*IDS, None])
def test_a_jobs_id_is_found_behind_a_greeting_of_sbatch_or_in_the_queue(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: sbatch does not answer in time."""
    script = tmp_path / "job.sh"
    listed = [Queued("9", "", "PENDING", "/job.sh"), Queued("4101", "", "PENDING", str(script))]
    silent = None if said else slurm_commands.SilentError("sbatch did not answer")
    monkeypatch.setattr(slurm_commands, "_ask", Mock(return_value=said, side_effect=silent))
    monkeypatch.setattr(slurm_commands, "queue", lambda: listed)
    monkeypatch.setattr(slurm_commands, "_TRIES", 1)
    with (tmp_path / "lock").open("w") as lock:
        assert slurm_commands.submit(script, tmp_path, lock) == "4101"
        if said in (None, GREETING):
            listed.pop()
            with pytest.raises(UsageError, match=r"^job.sh .* submitted, id not known: sbatch"):
                slurm_commands.submit(script, tmp_path, lock)


def test_only_what_a_finished_job_left_undone_is_submitted_again(cluster: Cluster) -> None:
    cluster.submit()
    cluster.finish("n001-launch00")
    *others, last = cluster.jobs()["n002-launch00"].runs
    for run in others:
        complete(run.config)
    with pytest.raises(SystemExit):
        fail(last.config)
    cluster.set_queue()
    cluster.say("n002-launch00", "102", "complete")
    assert cluster.states()["n002-launch00"] == "ended: complete"
    # the failed run, and its partner on the same nodes: neither compares with a run on others
    assert cluster.submit()[0] == "n002-launch00  submitted as job 103, 2 runs"
    assert len(list((cluster.folder / "runs").glob("*.attempt-1.jsonl"))) == 2
    script = (cluster.folder / "job-n002-launch00-002.sh").read_text()
    assert script.count("\nrun launch") == 2
    cluster.finish()
    cluster.set_queue()
    assert cluster.submit()[-1] == "report  " + "vanished: it never began; make it here: " + (
        f"python -m plots report {cluster.folder}"
    )


def test_a_job_that_nobody_knows_has_vanished_and_is_no_success(cluster: Cluster) -> None:
    cluster.submit()
    cluster.say("n001-launch00", "5", "complete")  # an earlier job's word is not a later one's
    cluster.set_queue()
    assert cluster.states() == dict.fromkeys(JOBS, "vanished: it never began")
    cluster.say("n001-launch00", "101")
    assert cluster.states()["n001-launch00"] == "vanished: it began and left no end"
    (cluster.top / "accounts").write_text("101|NODE_FAIL\n102|CANCELLED by 1000\n103|COMPLETED\n")
    ends = ("NODE_FAIL", "CANCELLED", "COMPLETED")
    assert [*cluster.states().values()] == [f"ended: {end}" for end in ends]
    assert {status.state for status in cluster.work().statuses} == {"planned"}
    assert cluster.submit()[0] == "n001-launch00  submitted as job 103, 7 runs"
    cluster.set_queue()
    cluster.say("n001-launch00", "103", "a\nfake: line")
    assert cluster.states()["n001-launch00"] == "ended: a fake: line"


def test_jobs_of_another_results_folder_are_not_taken_for_ours(cluster: Cluster) -> None:
    other = cluster.top / "elsewhere" / "small" / "job-n001-launch00-001.sh"
    ours = cluster.folder / "job-n002-launch00-001.sh"
    cluster.set_queue(
        f"55|small-n001-launch00|PENDING|{other}", f"56|small-n002-launch00|PENDING|{ours}"
    )
    first, second, _ = cluster.submit()
    assert first == "n001-launch00  submitted as job 105, 7 runs"
    assert second == "n002-launch00  pending as job 56"


def test_jobs_on_another_cluster_are_asked_for_there(cluster: Cluster) -> None:
    """And no two run there side by side where the site says so."""
    keys = '[access]\nclusters = "moon"\n\n[policy]\none_at_a_time = true\n'
    text = (ROOT / "slurm/sites/testcluster.toml").read_text().replace('"testcluster"', '"own"')
    (cluster.top / "own.toml").write_text(text.replace("[policy]\n", keys))
    cluster.options = cluster.options.model_copy(update={"site": str(cluster.top / "own.toml")})
    squeue = cluster.top / "bin" / "squeue"
    answer = f'echo "CLUSTER: moon"; cat "{cluster.top}/queue" 2>/dev/null'
    squeue.write_text(f'#!/bin/sh\ncase "$*" in *--clusters=moon*) {answer} ;; esac\nexit 0\n')
    cluster.submit()
    assert "--dependency=afterany:101 " in cluster.said("sbatch")[1]
    assert cluster.submit() == [f"{job}  pending as job {101 + n}" for n, job in enumerate(JOBS)]
    assert len(cancel_all(cluster.work())) == 3
    assert cluster.said("scancel") == [f"--clusters=moon {n}" for n in (103, 101, 102)]


def test_without_squeue_jobs_speak_for_themselves_and_none_is_submitted(cluster: Cluster) -> None:
    (cluster.top / "squeue.down").touch()
    rule = "squeue does not answer, and without it a job might be submitted twice"
    with pytest.raises(UsageError, match=rule):
        cluster.submit()
    assert not cluster.results.exists()
    (cluster.top / "squeue.down").unlink()
    cluster.submit()
    (cluster.top / "squeue.down").touch()
    assert cluster.states() == dict.fromkeys(JOBS, "submitted")
    cluster.say("n001-launch00", "101")
    assert cluster.states()["n001-launch00"] == "running"


def test_cancelling_takes_out_what_waits_and_tells_what_runs(cluster: Cluster) -> None:
    """The report first, though it runs: it could submit more meanwhile."""
    cluster.submit()
    running = ("101|small-n001-launch00|RUNNING", "103|small-report|RUNNING")
    cluster.set_queue(*running, "102|small-n002-launch00|PENDING")
    assert cancel_all(cluster.work()) == [
        "report  job 103 taken out of the queue",
        "n001-launch00  job 101 told to stop",
        "n002-launch00  job 102 taken out of the queue",
    ]
    assert cluster.said("scancel") == ["103", "--batch --signal=TERM 101", "102"]
    with cluster.work().folder.lock(), pytest.raises(UsageError, match="being submitted; wait"):
        cancel_all(cluster.work())
    cluster.set_queue()
    assert cancel_all(cluster.work()) == ["no job of this study is in the queue"]


def test_a_report_waits_for_all_jobs_that_are_left(cluster: Cluster) -> None:
    cluster.submit()
    cluster.set_queue(
        "101|small-n001-launch00|RUNNING", "103|small-report|PENDING"
    )  # 102 has vanished
    assert cluster.submit() == [
        "n001-launch00  running as job 101",
        "n002-launch00  submitted as job 105, 4 runs",
        "report  submitted as job 106, after 2 jobs",
    ]
    assert cluster.said("scancel") == ["103"]
    cluster.finish("n002-launch00")
    cluster.set_queue("101|small-n001-launch00|PENDING", "106|small-report|PENDING")
    assert cluster.submit() == ["n001-launch00  pending as job 101", "report  pending as job 106"]


def test_jobs_before_one_that_is_refused_stay_and_are_reported_on(
    cluster: Cluster, call: Calls
) -> None:
    cluster.refuse("n002-launch00", "QOSMaxSubmitJobPerUserLimit")
    code, out, err = call("submit", *cluster.words)
    assert (code, err.count("\n")) == (2, 1)
    assert out.splitlines()[-2:] == ["n002-launch00  not submitted", f"report  {AFTER_ONE}"]
    assert err.startswith("error: sbatch refused: sbatch: error: QOSMaxSubmitJobPerUserLimit; ")
    assert [entry["job"] for entry in cluster.records()] == ["n001-launch00", "report"]


def test_how_far_a_study_goes_is_decided_once(tmp_path: Path) -> None:
    source = write(tmp_path, world_sizes="up_to_nodes = 4", cells='cells = ["ddp", "horovod"]')
    asked = StudyOptions(study=str(source), site="testcluster", results=tmp_path / "results")
    assert open_work(asked).study.world_sizes == (1, 2, 4, 8)
    first = open_work(asked.model_copy(update={"nodes": (2,)}))
    first.folder.runs.mkdir(parents=True)
    first.folder.keep_study(first.text)
    assert open_work(asked).study.world_sizes == (1, 4)
    rule = r"is of another study of this name: world_sizes=\[1, 4\] there, \[1, 2\] now"
    with pytest.raises(UsageError, match=rule):
        open_work(asked.model_copy(update={"nodes": (1,)}))


def test_status_shows_jobs_and_runs_and_following_ends_with_what_is_undone(
    cluster: Cluster, call: Calls
) -> None:
    first = cluster.jobs()["n001-launch00"].runs[0]
    start(first.config)  # by hand: nobody knows its job
    assert "11 runs: 1 running, 10 planned" in call("status", *cluster.words)[1]
    first.log.unlink()
    cluster.submit()
    cluster.set_queue("101|small-n001-launch00|RUNNING")
    for job in JOBS[:2]:
        start(cluster.jobs()[job].runs[0].config)
    (cluster.top / "accounts").write_text("102|NODE_FAIL\n103|CANCELLED by 0\n")
    code, out, err = call("status", *cluster.words)
    assert (code, err) == (0, "")
    ends = ("running", "ended: NODE_FAIL", "ended: CANCELLED")
    assert out.splitlines()[:3] == [
        f"{job}  job {101 + n}  {ends[n]}" for n, job in enumerate(JOBS)
    ]
    lost = cluster.jobs()["n002-launch00"].runs[0]
    assert f"{lost.id}  node lost      killed together with its job, which ended: NODE_F" in out
    assert out.endswith("small: 1 launch, 11 runs: 1 running, 9 planned, 1 node lost\n")
    first.log.unlink()
    cluster.finish("n001-launch00")
    cluster.set_queue()
    follow = ("status", "--follow", *cluster.words)
    code, out, err = call(*follow)
    assert (code, err) == (1, "")
    assert "\nsmall: 11 runs: 7 ok, 3 planned, 1 node lost\n" in out
    again = f" -m slurm submit {cluster.options.study} --site testcluster"
    assert again in out.splitlines()[-1]
    # once all is done, with what the report says or how it failed
    lost.log.unlink()
    cluster.finish("n002-launch00")
    (cluster.folder / "jobs/small-report-103.out").write_text("DDP is faster by 3 %\n")
    for reason, answer in (
        ("failed", f"make it here: python -m plots report {cluster.folder}\n"),
        ("complete", "DDP is faster by 3 %\n"),
    ):
        cluster.say("report", "103", reason)
        code, out, err = call(*follow)
        assert (code, err) == (0, "")
        assert out.endswith(f"{answer}small: 11 runs: 11 ok\n")


def test_a_dry_run_submits_nothing_and_sbatch_has_to_be_there(
    cluster: Cluster, call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = call("submit", "--dry-run", *cluster.words)
    assert (code, err) == (0, "")
    assert "2 jobs, about " in out
    monkeypatch.setenv("PATH", str(cluster.top))
    missing = call("submit", *cluster.words)[2]
    assert missing.startswith("error: there is no sbatch on this machine; use the cluster's login")
    assert not cluster.results.exists()
    assert "#SBATCH --job-name=small-n002-launch00\n" in call("render", *cluster.words)[1]
