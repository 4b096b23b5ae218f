"""Jobs in a queue: submitted once, though submitters are at work at once or killed at the worst
moment, followed, resumed and cancelled; a job that nobody knows any more is never a success.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.study.status import not_comparable
from slurm import slurm_commands
from slurm.fit import Job
from slurm.session import StudyOptions, Work, open_work
from slurm.slurm_commands import Queued, queue
from slurm.states import job_states
from slurm.submit import SHARED, cancel_all, submit_missing
from tests.plots.logs import edit
from tests.slurm.calls import Calls
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import complete, environment, fail, start
from tests.slurm.studies import ROOT, SMALL, write
from tests.slurm.test_job_script import Process, finish, start_process, wait_for

JOBS = ("n001-b00", "n002-b00", "report")


class Cluster:
    """The small study on the test cluster: one block at one node (seven runs) and one at two
    (four).
    """

    def __init__(self, folder: Path) -> None:
        self.top, self.results = folder, folder / "results"
        cells = 'cells = ["single", "ddp", "horovod"]'
        changes = {"world_sizes": "nodes = [1, 2]", "cells": cells, "blocks": "blocks = 1"}
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

    def cancelled(self) -> list[str]:
        said = self.top / "scancel.said"
        return said.read_text().splitlines() if said.exists() else []

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

    def follow(self) -> Process:
        """Start the command that waits for the jobs' end."""
        command = [sys.executable, "-m", "slurm", "status", "--follow", *self.words]
        return start_process([*command, "--poll-s", "0.1"], environment(self.top))

    def refuse(self, word: str, why: str) -> None:
        """Make sbatch refuse every job with that word in its command."""
        path = self.top / "bin" / "sbatch"
        refusal = f'case "$*" in *{word}*) echo "sbatch: error: {why}" >&2; exit 1;; esac\nenv >'
        path.write_text(path.read_text().replace("env >", refusal))

    def change_site(self, old: str, new: str) -> None:
        text = (ROOT / "slurm/sites/testcluster.toml").read_text().replace('"testcluster"', '"own"')
        (self.top / "own.toml").write_text(text.replace(old, new))
        self.options = self.options.model_copy(update={"site": str(self.top / "own.toml")})

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


def test_a_reader_that_has_gone_stops_no_submission(cluster: Cluster) -> None:
    """As `grep -m 1`: what is said after its line is lost, the jobs are not."""
    command = [sys.executable, "-m", "slurm", "submit", *cluster.words]
    short = ["bash", "-c", '"$@" | grep -m 1 n001-b00', "bash", *command]
    subprocess.run(short, cwd=ROOT, capture_output=True, check=True)
    assert [record["job"] for record in cluster.records()] == list(JOBS)


def test_what_is_missing_is_submitted_once(cluster: Cluster) -> None:
    assert cluster.submit() == [
        "n001-b00  submitted as job 101, 7 runs",
        "n002-b00  submitted as job 102, 4 runs",
        "report  submitted as job 103, after 2 jobs",
    ]
    assert cluster.states() == dict.fromkeys(JOBS, "pending")
    first, second, last = cluster.records()
    own = {"job": "n001-b00", "slurm_id": "101", "script": "job-n001-b00-001.sh", "blocks": 1}
    assert first.items() >= own.items()
    assert second["slurm_id"] == "102"
    own = {"job": "report", "slurm_id": "103", "script": "job-report-001.sh"}
    assert last.items() >= {**own, "after": ["101", "102"]}.items()
    said = (cluster.top / "sbatch.said").read_text().splitlines()
    same = f"--parsable --output={cluster.folder}/jobs/%x-%j.out"
    assert said[0] == f"{same} {cluster.folder}/job-n001-b00-001.sh"
    assert said[2] == f"{same} --dependency=afterany:101:102 {cluster.folder}/job-report-001.sh"
    exported = (cluster.top / "sbatch.env").read_text().splitlines()
    names = {line.partition("=")[0] for line in exported}
    assert not names & {"SLURM_JOB_ID", "SBATCH_TIMELIMIT"}
    assert "SLURM_CONF" in names
    assert (cluster.folder / "study.toml").exists()
    assert cluster.submit() == [f"{job}  pending as job {101 + n}" for n, job in enumerate(JOBS)]
    assert len((cluster.top / "sbatch.said").read_text().splitlines()) == 3


GREETING = "-----\nWelcome to the Example Supercomputer, 2026\n--> Verifying job...OK\n"


@pytest.mark.parametrize(
    ("said", "queued"),
    [
        ("4101\n", False),
        (f"{GREETING}4101;cluster\n\n", False),
        (f"77\nallocation 12 of 40 used\n4101\n{GREETING}", False),
        (f"{GREETING}Submitted batch job 4101 on cluster big\n", False),
        (GREETING, True),
    ],
)
def test_a_jobs_id_is_found_behind_a_greeting_of_sbatch_or_in_the_queue(
    said: str, queued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job.sh"
    found = [Queued("4101", "", "PENDING", str(script)), Queued("9", "", "PENDING", "/job.sh")]
    monkeypatch.setattr(slurm_commands, "_ask", lambda command, pass_fds: said)
    monkeypatch.setattr(slurm_commands, "queue", lambda: found if queued else found[1:])
    monkeypatch.setattr(slurm_commands, "_TRIES", 1)
    with (tmp_path / "lock").open("w") as lock:
        assert slurm_commands.submit(script, tmp_path, lock) == "4101"
        monkeypatch.setattr(slurm_commands, "_ask", lambda command, pass_fds: GREETING)
        monkeypatch.setattr(slurm_commands, "queue", lambda: found[1:])
        with pytest.raises(UsageError, match=r"^job.sh is submitted, id not known: sbatch said"):
            slurm_commands.submit(script, tmp_path, lock)


def test_a_job_of_an_sbatch_that_did_not_answer_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job.sh"

    def silent(command: object, pass_fds: object) -> str:
        raise slurm_commands.SilentError("sbatch did not answer")

    monkeypatch.setattr(slurm_commands, "_ask", silent)
    monkeypatch.setattr(slurm_commands, "_TRIES", 1)
    queue = [Queued("4101", "", "PENDING", str(script))]
    monkeypatch.setattr(slurm_commands, "queue", lambda: queue)
    with (tmp_path / "lock").open("w") as lock:
        assert slurm_commands.submit(script, tmp_path, lock) == "4101"
        queue.clear()
        with pytest.raises(UsageError, match=r"^job.sh may be submitted, id not known: sbatch did"):
            slurm_commands.submit(script, tmp_path, lock)


def test_only_what_a_finished_job_left_undone_is_submitted_again(cluster: Cluster) -> None:
    cluster.submit()
    cluster.finish("n001-b00")
    *others, last = cluster.jobs()["n002-b00"].runs
    for run in others:
        complete(run.config)
    with pytest.raises(SystemExit):
        fail(last.config)
    cluster.set_queue()
    cluster.say("n002-b00", "102", "complete")
    assert cluster.states()["n002-b00"] == "ended: complete"
    # the failed run, and its partner on the same nodes: neither compares with a run on others
    assert cluster.submit()[0] == "n002-b00  submitted as job 103, 2 runs"
    assert len(list((cluster.folder / "runs").glob("*.attempt-1.jsonl"))) == 2
    script = (cluster.folder / "job-n002-b00-002.sh").read_text()
    assert script.count("\nrun b") == 2
    cluster.finish()
    cluster.set_queue()
    assert cluster.submit()[-1] == "report  " + "vanished: it never began; make it here: " + (
        f"python -m plots report {cluster.folder}"
    )


def test_a_job_that_nobody_knows_has_vanished_and_is_no_success(cluster: Cluster) -> None:
    cluster.submit()
    cluster.say("n001-b00", "5", "complete")  # an earlier job's word is not a later one's
    cluster.set_queue()
    assert cluster.states() == dict.fromkeys(JOBS, "vanished: it never began")
    cluster.say("n001-b00", "101")
    assert cluster.states()["n001-b00"] == "vanished: it began and left no end"
    (cluster.top / "accounts").write_text("101|NODE_FAIL\n102|CANCELLED by 1000\n103|COMPLETED\n")
    ends = ("NODE_FAIL", "CANCELLED", "COMPLETED")
    assert [*cluster.states().values()] == [f"ended: {end}" for end in ends]
    assert {status.state for status in cluster.work().statuses} == {"planned"}
    assert cluster.submit()[0] == "n001-b00  submitted as job 103, 7 runs"
    cluster.set_queue()
    cluster.say("n001-b00", "103", "a\nfake: line")
    assert cluster.states()["n001-b00"] == "ended: a fake: line"


def test_a_job_submitted_by_hand_is_seen_once_it_has_begun(cluster: Cluster) -> None:
    cluster.folder.joinpath("jobs").mkdir(parents=True)
    cluster.say("n001-b00", "55")
    cluster.set_queue("55|renamed|RUNNING")
    assert cluster.states() == {"n001-b00": "running"}
    assert cluster.submit() == [
        "n001-b00  running as job 55",
        "n002-b00  submitted as job 104, 4 runs",
        "report  submitted as job 105, after 2 jobs",
    ]
    assert cluster.records()[-1]["after"] == ["55", "104"]


def test_a_job_in_the_queue_goes_before_a_later_one_that_has_left_it(cluster: Cluster) -> None:
    """The later one was submitted by hand and found the first at work."""
    cluster.submit()
    cluster.set_queue("101|small-n001-b00|RUNNING")
    cluster.say("n001-b00", "101")
    cluster.say("n001-b00", "130", "refused: job 101 is at work on the same runs")
    assert cluster.states()["n001-b00"] == "running"
    assert cluster.submit()[0] == "n001-b00  running as job 101"


def test_jobs_of_another_results_folder_are_not_taken_for_ours(cluster: Cluster) -> None:
    other = cluster.top / "elsewhere" / "small" / "job-n001-b00-001.sh"
    ours = cluster.folder / "job-n002-b00-001.sh"
    cluster.set_queue(f"55|small-n001-b00|PENDING|{other}", f"56|small-n002-b00|PENDING|{ours}")
    first, second, _ = cluster.submit()
    assert first == "n001-b00  submitted as job 105, 7 runs"
    assert second == "n002-b00  pending as job 56"


def test_jobs_on_another_cluster_are_asked_for_there(cluster: Cluster) -> None:
    cluster.change_site("[node]", '[access]\nclusters = "moon"\n\n[node]')
    squeue = cluster.top / "bin" / "squeue"
    answer = f'echo "CLUSTER: moon"; cat "{cluster.top}/queue" 2>/dev/null'
    squeue.write_text(f'#!/bin/sh\ncase "$*" in *--clusters=moon*) {answer} ;; esac\nexit 0\n')
    cluster.submit()
    assert cluster.submit() == [f"{job}  pending as job {101 + n}" for n, job in enumerate(JOBS)]
    assert len(cancel_all(cluster.work())) == 3
    assert cluster.cancelled() == [f"--clusters=moon {n}" for n in (103, 101, 102)]


def test_without_squeue_jobs_speak_for_themselves_and_none_is_submitted(
    cluster: Cluster, call: Calls
) -> None:
    (cluster.top / "squeue.down").touch()
    rule = "squeue does not answer, and without it a job might be submitted twice"
    with pytest.raises(UsageError, match=rule):
        cluster.submit()
    assert not cluster.results.exists()
    line = call.refuse("status", "--follow", *cluster.words)  # it would wait for ever
    assert line.startswith("squeue does not answer, and ")
    assert line.endswith("names no job to wait for; submit the study first")
    (cluster.top / "squeue.down").unlink()
    cluster.submit()
    (cluster.top / "squeue.down").touch()
    assert cluster.states() == dict.fromkeys(JOBS, "submitted")
    cluster.say("n001-b00", "101")
    assert cluster.states()["n001-b00"] == "running"


def test_cancelling_takes_out_what_waits_and_tells_what_runs(cluster: Cluster) -> None:
    """The report first, though it runs: it could submit more meanwhile."""
    cluster.submit()
    running = ("101|small-n001-b00|RUNNING", "103|small-report|RUNNING")
    cluster.set_queue(*running, "102|small-n002-b00|PENDING")
    assert cancel_all(cluster.work()) == [
        "report  job 103 taken out of the queue",
        "n001-b00  job 101 told to stop",
        "n002-b00  job 102 taken out of the queue",
    ]
    assert cluster.cancelled() == ["103", "--batch --signal=TERM 101", "102"]
    with cluster.work().folder.lock(), pytest.raises(UsageError, match="being submitted; wait"):
        cancel_all(cluster.work())
    cluster.set_queue()
    assert cancel_all(cluster.work()) == ["no job of this study is in the queue"]


def test_new_jobs_replace_a_report_that_would_not_wait_for_them(cluster: Cluster) -> None:
    cluster.submit()
    cluster.set_queue("101|small-n001-b00|RUNNING", "103|small-report|PENDING")  # 102 has vanished
    assert cluster.submit() == [
        "n001-b00  running as job 101",
        "n002-b00  submitted as job 105, 4 runs",
        "report  submitted as job 106, after 2 jobs",
    ]
    assert cluster.cancelled() == ["103"]
    after = [entry["after"] for entry in cluster.records() if entry["job"] == "report"]
    assert after == [["101", "102"], ["101", "105"]]
    assert cluster.submit()[-1] == "report  pending as job 106"


def test_a_report_that_waits_for_all_that_is_left_or_runs_stays(cluster: Cluster) -> None:
    cluster.submit()
    cluster.set_queue("103|small-report|RUNNING")
    assert cluster.submit()[-1] == "report  submitted as job 106, after 2 jobs"
    cluster.finish("n002-b00")
    cluster.set_queue("104|small-n001-b00|PENDING", "106|small-report|PENDING")
    assert cluster.submit() == ["n001-b00  pending as job 104", "report  pending as job 106"]
    assert cluster.cancelled() == []


def test_a_report_that_was_not_recorded_is_found_by_its_name_and_replaced(cluster: Cluster) -> None:
    """Nobody knows for which jobs it waits."""
    cluster.set_queue(f"55|small-report|PENDING|{cluster.folder}/job-report-001.sh")
    assert cluster.submit()[-1] == "report  submitted as job 106, after 2 jobs"
    assert cluster.cancelled() == ["55"]


def test_the_report_can_be_left_out_and_added_later(cluster: Cluster) -> None:
    assert len(cluster.submit(report=False)) == 2
    assert cluster.submit()[-1] == "report  submitted as job 103, after 2 jobs"


def test_jobs_before_one_that_is_refused_stay_and_are_reported_on(
    cluster: Cluster, call: Calls
) -> None:
    cluster.refuse("n002-b00", "QOSMaxSubmitJobPerUserLimit")
    code, out, err = call("submit", *cluster.words)
    assert code == 2
    assert out.splitlines()[-3:] == [
        "n001-b00  submitted as job 101, 7 runs",
        "n002-b00  not submitted",
        "report  submitted as job 102, after 1 job",
    ]
    assert err.startswith("error: sbatch refused: sbatch: error: QOSMaxSubmitJobPerUserLimit; ")
    assert err.count("\n") == 1
    assert [entry["job"] for entry in cluster.records()] == ["n001-b00", "report"]


def test_waiting_ends_with_what_the_report_says(cluster: Cluster, call: Calls) -> None:
    """Or with how it failed."""
    cluster.submit()
    cluster.finish()
    cluster.set_queue()
    output = cluster.folder / "jobs" / "small-report-103.out"
    output.write_text("DDP is faster by 3 %\nreport.md\n")
    told = f"report  ended: failed; make it here: python -m plots report {cluster.folder}"
    failed = told.replace("report  ", "report  job 103  ", 1)
    last = "small: 11 runs: 11 ok"
    cluster.say("report", "103", "failed")
    assert call("status", "--follow", *cluster.words) == (0, f"{failed}\n{last}\n", "")
    assert cluster.submit() == [told]
    cluster.say("report", "103", "complete")
    said = f"DDP is faster by 3 %\nreport.md\n{last}\n"
    assert call("status", "--follow", *cluster.words) == (0, said, "")


ODD = b"""{"event": "begin", "job": 101}
{"event": 1, "job": "101"}
{"event": "end", "job": "x"}
[]
{"event": "end", "job": "9999999999999999999999"}
\xff\x00{"
{"event": "end", "job": "101", "reason": ["x"]}
"""


def test_an_odd_line_of_a_job_is_no_word_of_it(cluster: Cluster) -> None:
    cluster.submit()
    path = cluster.folder / "jobs" / "n001-b00.jsonl"
    path.mkdir()
    assert cluster.states() == dict.fromkeys(JOBS, "pending")
    path.rmdir()
    path.write_bytes(ODD)
    cluster.set_queue()
    assert cluster.states()["n001-b00"] == "vanished: it began and left no end"


def test_a_report_that_is_refused_leaves_the_other_jobs_in_the_queue(cluster: Cluster) -> None:
    cluster.refuse("afterany", "no")
    last = cluster.submit()[-1]
    assert last.startswith("report  not submitted: sbatch refused: sbatch: error: no; correct")
    assert last.endswith(f"; when they have ended: python -m plots report {cluster.folder}")
    assert cluster.states() == {"n001-b00": "pending", "n002-b00": "pending"}
    assert cluster.queued() == ["small-n001-b00", "small-n002-b00"]


@pytest.mark.parametrize(
    ("most", "last"),
    [
        (1, "report  not submitted: the site takes 1 jobs of a user"),
        (2, "report  not submitted"),
        (3, "report  submitted as job 103"),
    ],
)
def test_the_report_counts_as_one_of_the_jobs_that_a_site_takes(
    cluster: Cluster, most: int, last: str
) -> None:
    cluster.change_site("[limits]\n", f"[limits]\nmax_submitted = {most}\n")
    assert cluster.submit()[-1].startswith(last)
    assert len(cluster.queued()) == most


def runs_again(cluster: Cluster) -> set[tuple[int, str]]:
    """Return ranks and backend of each run that is done again."""
    work = cluster.work()
    again = not_comparable(work.statuses, work.study.pairs)
    return {(run.config.world_size, run.config.backend) for run in again}


def test_a_pair_of_two_allocations_or_on_different_nodes_is_done_again(cluster: Cluster) -> None:
    cluster.finish()
    assert runs_again(cluster) == set()
    logs = [(s.run.config, s.run.log) for s in cluster.work().statuses]
    for config, log in logs:
        job = "8" if config.backend == "horovod" and config.world_size == 4 else "7"
        edit(log, '"host": {', f'"host": {{"job": {{"SLURM_JOB_ID": "{job}"}}, ', 1)
    assert runs_again(cluster) == {(4, "ddp"), (4, "horovod")}
    moved = next(log for config, log in logs if (config.backend, config.world_size) == ("ddp", 2))
    hostname = json.loads(moved.read_text().splitlines()[0])["host"]["ranks"][0]["hostname"]
    edit(moved, f'"hostname": "{hostname}"', '"hostname": "elsewhere"')
    assert {(2, "ddp"), (2, "horovod")} < runs_again(cluster)


def test_arms_go_again_together(tmp_path: Path) -> None:
    """What an arm gains is compared inside one allocation, with the baseline too."""
    study = write(tmp_path, SMALL + '[arms.a]\n[arms.b]\nprecision = "bf16-mixed"\n')
    statuses = open_work(StudyOptions(study=str(study), results=tmp_path)).statuses
    alone = [s for s in statuses if s.run.config.world_size == 1]
    first = next(s for s in alone if s.run.point.cell != "single")
    done = [replace(s, state="failed" if s is first else "ok") for s in statuses]
    again = not_comparable(done, [("ddp/mpi", "horovod/gloo")])
    cells = product(("single", "ddp/mpi", "horovod/gloo"), ("a", "b"))
    assert {(run.point.cell, run.point.arm) for run in again} == {*cells}


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


def test_status_shows_jobs_and_runs(cluster: Cluster, call: Calls) -> None:
    cluster.submit()
    cluster.set_queue("101|small-n001-b00|RUNNING")
    for job in JOBS[:2]:
        start(cluster.jobs()[job].runs[0].config)
    (cluster.top / "accounts").write_text("102|NODE_FAIL\n103|CANCELLED by 0\n")
    code, out, err = call("status", *cluster.words)
    assert (code, err) == (0, "")
    jobs, runs, last = out.splitlines()[:3], out.splitlines()[3:-1], out.splitlines()[-1]
    ends = ("running", "ended: NODE_FAIL", "ended: CANCELLED")
    assert jobs == [f"{job}  job {101 + n}  {ends[n]}" for n, job in enumerate(JOBS)]
    begun = {line.split()[0]: line for line in runs if not line.endswith("planned")}
    first, lost = (begun[cluster.jobs()[job].runs[0].id] for job in JOBS[:2])
    assert first.endswith("running")
    why = "killed together with its job, which ended: NODE_FAIL"
    assert lost.endswith(f"node lost      {why}")
    assert last == "small: 1 launch, 11 runs: 1 running, 9 planned, 1 node lost"


def test_waiting_follows_the_jobs_to_their_end(cluster: Cluster) -> None:
    cluster.submit()
    process = cluster.follow()
    assert process.stdout is not None
    line, end = process.stdout.readline, "no estimate before a run has ended\n"
    assert line() == f"0/11 runs done, jobs: 3 pending, {end}"
    cluster.set_queue("101|small-n001-b00|RUNNING", "102|small-n002-b00|PENDING")
    assert line() == f"0/11 runs done, jobs: 1 running, 1 pending, {end}"
    (cluster.top / "squeue.down").touch()  # says nothing of the jobs, so it ends nothing
    assert "squeue does not answer" in line()
    cluster.finish()
    cluster.set_queue()
    (cluster.top / "squeue.down").unlink()
    said, _ = process.communicate(timeout=60)
    assert said.splitlines()[-1] == "small: 11 runs: 11 ok"
    assert process.returncode == 0


def test_waiting_for_jobs_that_leave_runs_undone(cluster: Cluster, call: Calls) -> None:
    cluster.submit()
    cluster.finish("n001-b00")
    with pytest.raises(SystemExit):
        fail(cluster.jobs()["n002-b00"].runs[0].config)
    cluster.set_queue()
    code, out, err = call("status", "--follow", *cluster.words)
    assert (code, err) == (1, "")
    *jobs, first, failed, again = out.splitlines()
    names = (f"{job}  job {101 + n}" for n, job in enumerate(JOBS))
    assert jobs == [f"{name}  vanished: it never began" for name in names]
    assert first == "small: 11 runs: 7 ok, 3 planned, 1 failed"
    assert failed.endswith("failed  rank 1: RuntimeError: boom")
    assert f" -m slurm submit {cluster.options.study} --site testcluster" in again


def test_rendering_writes_every_job(cluster: Cluster, call: Calls) -> None:
    code, out, err = call("render", *cluster.words)
    assert code == 0
    assert "#SBATCH --job-name=small-n002-b00\n" in out
    said = "this script: n002-b00; --job names another, --out FOLDER writes all"
    assert err.splitlines()[-1] == said
    only = call("render", *cluster.words, "--job", "n001-b00")[1]
    assert "#SBATCH --job-name=small-n001-b00\n" in only
    written = cluster.top / "out"
    assert call("render", *cluster.words, "--out", str(written))[0] == 0
    assert {path.name for path in written.iterdir()} == {f"small-{job}.sh" for job in JOBS}
    assert (written / "small-n002-b00.sh").read_text() == out


def test_without_sbatch_a_line_says_what_goes(
    cluster: Cluster, call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = cluster.top / "only"
    only.mkdir()
    monkeypatch.setenv("PATH", str(only))
    none = "error: there is no sbatch on this machine"
    cure = "use the cluster's login node, or write the scripts here"
    assert call("submit", *cluster.words)[2].startswith(f"{none}; {cure}")
    (only / "bsub").touch(0o755)
    other = "but bsub of LSF, which is not supported: only Slurm is; start each run by hand"
    assert call("submit", *cluster.words)[2].startswith(f"{none}, {other}")
    assert not cluster.folder.exists()


def test_a_dry_run_says_why_a_submission_would_be_refused(
    call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED, f"{ROOT}:{Path(sys.prefix).resolve()}:{Path('.venv').resolve()}")
    words = ["smoke", "--site", "cardinal", "--nodes", "1", "--results", "/tmp/never-made"]
    code, out, err = call("submit", "--dry-run", *words)
    account = "site 'cardinal' charges every job to an account; give --account NAME, or write acc"
    folder = "the results folder /tmp/never-made/smoke lies below /tmp, of which every node of"
    assert (code, err) == (0, "")
    for why in (account, folder):
        assert f"\nit would be refused: {why}" in out
    assert "2 jobs, about " in out
    assert "\nthen, when all have ended, the report: 1 node, at most 10 min" in out
    assert not Path("/tmp/never-made").exists()
    assert call.refuse("submit", *words).startswith(account)
    assert call.refuse("submit", *words, "--account", "ME").startswith(folder)


SLOW = 'touch "{0}/sbatch.begun"; while [ -e "{0}/hold" ]; do sleep 0.05; done; sleep 0.1\n'
TAKEN = "another job of this study is running, or being submitted; wait for it or stop it"
ALL = {f"small-{name}": 1 for name in JOBS}


class Submitters(Cluster):
    """The small study on the test cluster, and an sbatch that takes its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sbatch = install(folder) / "sbatch"
        head, rest = sbatch.read_text().split("\n", 1)
        sbatch.write_text(f"{head}\n{SLOW.format(folder)}{rest}")
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.env = {**environment(folder), "PATH": path}

    def start(self) -> Process:
        return start_process([sys.executable, "-m", "slurm", "submit", *self.words], self.env)

    def names(self) -> Counter[str]:
        return Counter(self.queued())

    def recorded(self) -> Counter[str]:
        return Counter(f"small-{record['job']}" for record in self.records())


@pytest.fixture
def both(tmp_path: Path) -> Submitters:
    return Submitters(tmp_path)


def test_three_submitters_at_once_submit_every_job_once(both: Submitters) -> None:
    ended = [finish(process) for process in [both.start() for _ in range(3)]]
    assert 0 in {code for code, _, _ in ended}
    for code, _, err in ended:
        assert (code, err) == (0, "") or (code == 2 and err.strip().endswith(TAKEN))
    assert both.names() == both.recorded() == ALL


def test_a_submitter_killed_while_sbatch_works_doubles_nothing(both: Submitters) -> None:
    (both.top / "hold").touch()
    first = both.start()
    wait_for((both.top / "sbatch.begun").exists)
    first.kill()
    first.communicate(timeout=60)
    # sbatch lives on, has not told Slurm yet, and nobody may submit meanwhile
    assert not both.names()
    code, _, err = finish(both.start())
    assert (code, err.strip().endswith(TAKEN)) == (2, True)
    (both.top / "hold").unlink()
    wait_for(lambda: bool(both.names()))
    assert not both.recorded()
    wait_for(lambda: not both.work().folder.is_locked())
    code, out, err = finish(both.start())
    assert (code, err) == (0, "")
    assert "n001-b00  pending as job 101" in out.splitlines()
    assert both.names() == both.recorded() == ALL
