"""Jobs in a queue: submitted once, followed, resumed and cancelled; a job that nobody knows any
more is never a success.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, UsageError
from bench.study.plan import PlannedRun
from bench.study.status import not_comparable
from slurm.fit import Job
from slurm.session import StudyOptions, Work, open_work
from slurm.slurm_commands import queue
from slurm.states import job_states, look_at_jobs
from slurm.submit import cancel_all, submit_missing
from tests.plots.logs import edit
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import complete, environment, fail, start
from tests.slurm.studies import ROOT, SMALL, write
from tests.slurm.test_job_script import start_process

JOBS = ("n001-b00", "n002-b00", "report")


class Cluster:
    """The small study on the test cluster: one block at one node (seven runs) and one at two
    (four).
    """

    def __init__(self, folder: Path) -> None:
        self.top = folder
        source = write(
            folder,
            world_sizes="nodes = [1, 2]",
            cells='cells = ["single", "ddp", "horovod"]',
            blocks="blocks = 1",
        )
        self.options = StudyOptions(
            study=str(source), site="testcluster", results=folder / "results"
        )
        self.folder = folder / "results" / "small"

    def work(self) -> Work:
        return open_work(self.options)

    def jobs(self) -> dict[str, Job]:
        return {job.id: job for job in self.work().jobs}

    def states(self) -> dict[str, str]:
        return {job: known.state for job, known in job_states(self.work(), queue()).items()}

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "jobs.jsonl").read_text().splitlines()]

    def set_queue(self, *lines: str) -> None:
        (self.top / "queue").write_text("".join(line + "\n" for line in lines))
        (self.top / "gone").write_text("gone\n" * 2)  # numbers go on

    def say(self, job: str, job_id: str, reason: str = "") -> None:
        """That it began, and with a reason that it ended."""
        events = [{"event": "begin", "job": job_id}]
        events += [{"event": "end", "job": job_id, "reason": reason}] if reason else []
        with (self.folder / "jobs" / f"{job}.jsonl").open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    @property
    def words(self) -> list[str]:
        """Of a command line: the study, and where it is."""
        options = self.options
        return [options.study, "--site", "testcluster", "--results", str(options.results)]

    def cli(self, verb: str, *words: str, **env: str) -> tuple[int, str, str]:
        """A command on the study, in a process of its own."""
        return self.call(verb, self.options.study, "--site", "testcluster", *words, **env)

    def call(self, *words: str, **env: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "slurm", *words, "--results", str(self.options.results)]
        whole = {**environment(self.top), **env}
        done = subprocess.run(command, cwd=ROOT, env=whole, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def follow(self) -> subprocess.Popen[str]:
        """Start the command that waits for the jobs' end."""
        command = [sys.executable, "-m", "slurm", "status", "--follow", *self.words]
        return start_process([*command, "--poll-s", "0.1"], environment(self.top))

    def refuse(self, word: str, why: str) -> None:
        """sbatch takes no job with that word in its command."""
        path = self.top / "bin" / "sbatch"
        refusal = f'case "$*" in *{word}*) echo "sbatch: error: {why}" >&2; exit 1;; esac\nenv >'
        path.write_text(path.read_text().replace("env >", refusal))

    def finish(self, job: str) -> None:
        for run in self.jobs()[job].runs:
            complete(run.config)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "9")  # we may be inside a job ourselves
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    return Cluster(tmp_path)


def submitted(asked: StudyOptions, report: bool = True) -> list[str]:
    return list(submit_missing(open_work(asked), report))


def test_a_reader_that_has_gone_stops_no_submission(cluster: Cluster) -> None:
    """As `head`: what is said after its line is lost, the jobs are not."""
    command = [sys.executable, "-m", "slurm", "submit", *cluster.words]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    env = environment(cluster.top)
    with subprocess.Popen(command, cwd=ROOT, env=env, text=True, **streams) as process:
        for line in process.stdout or ():
            if line.startswith(JOBS[0]):
                break
        process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
    assert [record["job"] for record in cluster.records()] == list(JOBS)


def test_a_file_of_a_job_that_cannot_be_read_says_nothing(cluster: Cluster) -> None:
    submitted(cluster.options)
    (cluster.folder / "jobs" / "n001-b00.jsonl").mkdir()
    assert cluster.states() == dict.fromkeys(JOBS, "pending")
    assert len(list(cancel_all(cluster.work()))) == len(JOBS)


def test_what_is_missing_is_submitted_once(cluster: Cluster) -> None:
    assert submitted(cluster.options) == [
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
    # and again: nothing changes
    assert submitted(cluster.options) == [
        "n001-b00  pending as job 101",
        "n002-b00  pending as job 102",
        "report  pending as job 103",
    ]
    assert len((cluster.top / "sbatch.said").read_text().splitlines()) == 3


def test_only_what_a_finished_job_left_undone_is_submitted_again(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.finish("n001-b00")
    runs = cluster.jobs()["n002-b00"].runs
    for run in runs[:-1]:
        complete(run.config)
    with pytest.raises(SystemExit):
        fail(runs[-1].config)
    cluster.set_queue()
    cluster.say("n002-b00", "102", "complete")
    assert cluster.states()["n002-b00"] == "ended: complete"
    # the failed run, and its partner on the same nodes: neither compares with a run on others
    assert submitted(cluster.options)[0] == "n002-b00  submitted as job 103, 2 runs"
    assert len(list((cluster.folder / "runs").glob("*.attempt-1.jsonl"))) == 2
    script = (cluster.folder / "job-n002-b00-002.sh").read_text()
    assert script.count("\nrun b") == 2


def test_nothing_is_left_to_submit(cluster: Cluster) -> None:
    for job in list(cluster.jobs()):
        cluster.finish(job)
    assert submitted(cluster.options) == ["all 11 runs are ok; nothing to submit"]


def test_a_job_that_nobody_knows_has_vanished_and_is_no_success(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.set_queue()
    assert cluster.states() == dict.fromkeys(JOBS, "vanished: it never began")
    cluster.say("n001-b00", "101")
    assert cluster.states()["n001-b00"] == "vanished: it began and left no end"
    (cluster.top / "accounts").write_text("101|NODE_FAIL\n102|CANCELLED by 1000\n103|COMPLETED\n")
    assert [*cluster.states().values()] == [
        f"ended: {e}" for e in ("NODE_FAIL", "CANCELLED", "COMPLETED")
    ]
    assert {status.state for status in cluster.work().statuses} == {"planned"}
    assert submitted(cluster.options)[0] == "n001-b00  submitted as job 103, 7 runs"


@pytest.mark.parametrize(
    ("account", "state"),
    [("NODE_FAIL", "node lost"), ("OUT_OF_MEMORY", "out of memory"), ("TIMEOUT", "interrupted")],
)
def test_a_run_that_went_with_its_job_has_the_jobs_end(
    cluster: Cluster, account: str, state: str
) -> None:
    submitted(cluster.options)
    start(begun := config_of(cluster, "n001-b00"))
    cluster.say("n001-b00", "101")
    cluster.set_queue()
    (cluster.top / "accounts").write_text(f"101|{account}\n")
    work = cluster.work()
    states = {s.run.log: (s.state, s.reason) for s in look_at_jobs(work, job_states(work, queue()))}
    assert begun.log_path is not None
    why = f"killed together with its job, which ended: {account}"
    assert states.pop(begun.log_path) == (state, why)
    assert set(states.values()) == {("planned", "")}


def test_what_an_earlier_job_said_is_not_taken_for_a_later_one(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.say("n001-b00", "5", "complete")
    cluster.set_queue()
    assert cluster.states()["n001-b00"] == "vanished: it never began"


def test_a_job_submitted_by_hand_is_seen_once_it_has_begun(cluster: Cluster) -> None:
    cluster.folder.joinpath("jobs").mkdir(parents=True)
    cluster.say("n001-b00", "55")
    cluster.set_queue("55|renamed|RUNNING")
    assert cluster.states() == {"n001-b00": "running"}
    assert submitted(cluster.options) == [
        "n001-b00  running as job 55",
        "n002-b00  submitted as job 104, 4 runs",
        "report  submitted as job 105, after 2 jobs",
    ]
    assert cluster.records()[-1]["after"] == ["55", "104"]


def test_a_job_in_the_queue_goes_before_a_later_one_that_has_left_it(cluster: Cluster) -> None:
    """The later one was submitted by hand and found the first at work."""
    submitted(cluster.options)
    cluster.set_queue("101|small-n001-b00|RUNNING")
    cluster.say("n001-b00", "101")
    cluster.say("n001-b00", "130", "refused: job 101 is at work on the same runs")
    assert cluster.states()["n001-b00"] == "running"
    assert submitted(cluster.options)[0] == "n001-b00  running as job 101"


def test_jobs_on_another_cluster_are_asked_for_there(cluster: Cluster) -> None:
    text = (ROOT / "slurm/sites/testcluster.toml").read_text().replace('"testcluster"', '"far"')
    site = cluster.top / "far.toml"
    site.write_text(text.replace("[node]", '[access]\nclusters = "moon"\n\n[node]'))
    asked = cluster.options.model_copy(update={"site": str(site)})
    squeue = cluster.top / "bin" / "squeue"
    answer = f'echo "CLUSTER: moon"; cat "{cluster.top}/queue" 2>/dev/null'
    squeue.write_text(f'#!/bin/sh\ncase "$*" in *--clusters=moon*) {answer} ;; esac\nexit 0\n')
    submitted(asked)
    assert submitted(asked) == [f"{job}  pending as job {101 + n}" for n, job in enumerate(JOBS)]
    assert len(cancel_all(open_work(asked))) == 3
    told = (cluster.top / "scancel.said").read_text().splitlines()
    assert told == [f"--clusters=moon {n}" for n in (103, 101, 102)]


def test_without_squeue_jobs_speak_for_themselves_and_none_is_submitted(cluster: Cluster) -> None:
    submitted(cluster.options)
    (cluster.top / "squeue.down").touch()
    assert cluster.states() == dict.fromkeys(JOBS, "submitted")
    cluster.say("n001-b00", "101")
    assert cluster.states()["n001-b00"] == "running"
    with pytest.raises(
        UsageError, match="squeue does not answer, and without it a job might be submitted twice"
    ):
        submitted(cluster.options)


def test_what_sbatch_refuses_is_not_recorded(cluster: Cluster) -> None:
    path = cluster.top / "bin" / "sbatch"
    said = "sbatch: error: invalid partition specified: gpu"
    path.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    with pytest.raises(UsageError, match=f"sbatch refused: {said}; correct the site file"):
        submitted(cluster.options)
    assert cluster.states() == {}


def test_cancelling_takes_out_what_waits_and_tells_what_runs(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.set_queue(
        "101|small-n001-b00|RUNNING", "102|small-n002-b00|PENDING", "103|small-report|PENDING"
    )
    assert cancel_all(cluster.work()) == [
        "report  job 103 taken out of the queue",
        "n001-b00  job 101 told to stop",
        "n002-b00  job 102 taken out of the queue",
    ]
    assert (cluster.top / "scancel.said").read_text() == "103\n--batch --signal=TERM 101\n102\n"
    cluster.set_queue()
    assert cancel_all(cluster.work()) == ["no job of this study is in the queue"]


def queued(cluster: Cluster) -> list[str]:
    return [line.partition("|")[0] for line in (cluster.top / "queue").read_text().splitlines()]


def test_new_jobs_replace_a_report_that_would_not_wait_for_them(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.set_queue("101|small-n001-b00|RUNNING", "103|small-report|PENDING")  # 102 has vanished
    assert submitted(cluster.options) == [
        "n001-b00  running as job 101",
        "n002-b00  submitted as job 105, 4 runs",
        "report  submitted as job 106, after 2 jobs",
    ]
    assert (cluster.top / "scancel.said").read_text() == "103\n"
    after = [entry["after"] for entry in cluster.records() if entry["job"] == "report"]
    assert after == [["101", "102"], ["101", "105"]]
    assert submitted(cluster.options)[-1] == "report  pending as job 106"


def test_a_report_that_waits_for_all_that_is_left_stays(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.finish("n002-b00")
    cluster.set_queue("101|small-n001-b00|PENDING", "103|small-report|PENDING")
    assert submitted(cluster.options) == [
        "n001-b00  pending as job 101",
        "report  pending as job 103",
    ]
    assert not (cluster.top / "scancel.said").exists()


def test_a_report_that_runs_is_left_to_end(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.set_queue("103|small-report|RUNNING")
    assert submitted(cluster.options)[-1] == "report  submitted as job 106, after 2 jobs"
    assert not (cluster.top / "scancel.said").exists()


def test_a_report_that_was_not_recorded_is_found_by_its_name_and_replaced(cluster: Cluster) -> None:
    """Nobody knows for which jobs it waits."""
    cluster.set_queue(f"55|small-report|PENDING|{cluster.folder}/job-report-001.sh")
    assert submitted(cluster.options)[-1] == "report  submitted as job 106, after 2 jobs"
    assert (cluster.top / "scancel.said").read_text() == "55\n"


def test_the_report_can_be_left_out_and_added_later(cluster: Cluster) -> None:
    assert len(submitted(cluster.options, report=False)) == 2
    assert submitted(cluster.options)[-1] == "report  submitted as job 103, after 2 jobs"


def test_jobs_before_one_that_is_refused_stay_and_are_reported_on(cluster: Cluster) -> None:
    cluster.refuse("n002-b00", "QOSMaxSubmitJobPerUserLimit")
    code, out, err = cluster.cli("submit")
    assert code == 2
    assert out.splitlines()[-3:] == [
        "n001-b00  submitted as job 101, 7 runs",
        "n002-b00  not submitted",
        "report  submitted as job 102, after 1 job",
    ]
    assert err.startswith("error: sbatch refused: sbatch: error: QOSMaxSubmitJobPerUserLimit; ")
    assert err.count("\n") == 1
    assert [entry["job"] for entry in cluster.records()] == ["n001-b00", "report"]


def test_a_report_that_failed_is_told_though_all_runs_are_ok(cluster: Cluster) -> None:
    submitted(cluster.options)
    for job in list(cluster.jobs()):
        cluster.finish(job)
    cluster.set_queue()
    cluster.say("report", "103", "failed")
    code, out, _ = cluster.cli("status", "--follow")
    told = f"ended: failed; make it here: python -m plots report {cluster.folder}"
    assert out.splitlines() == [f"report  job 103  {told}", "small: 11 runs: 11 ok"]
    assert code == 0
    assert submitted(cluster.options) == [f"report  {told}"]


def test_waiting_ends_with_what_the_report_says(cluster: Cluster) -> None:
    submitted(cluster.options)
    for job in list(cluster.jobs()):
        cluster.finish(job)
    cluster.set_queue()
    cluster.say("report", "103", "complete")
    (cluster.folder / "jobs" / "small-report-103.out").write_text(
        "DDP is faster by 3 %\nreport.md\n"
    )
    code, out, err = cluster.cli("status", "--follow")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["DDP is faster by 3 %", "report.md", "small: 11 runs: 11 ok"]


ODD = (
    *(b'{"event": 1, "job": "101"}', b'{"event": "end", "job": "x"}', b"[]", b"[" * 100_000),
    *(b'{"event": "end", "job": "9999999999999999999999"}', b'\xff\x00{"'),
    *(b'{"event": "end", "job": "101", "reason": ["x"]}', b'{"event": "end", "job": "\\u0663"}'),
)


@pytest.mark.parametrize("line", ODD)
def test_an_odd_line_of_a_job_is_no_word_of_it(cluster: Cluster, line: bytes) -> None:
    submitted(cluster.options)
    cluster.set_queue()
    path = cluster.folder / "jobs" / "n001-b00.jsonl"
    path.write_bytes(b'{"event": "begin", "job": 101}\n' + line + b"\n")
    assert cluster.states()["n001-b00"] == "vanished: it began and left no end"


def test_a_reason_stays_on_its_line(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.set_queue()
    cluster.say("n001-b00", "101", "a\nfake: line")
    assert cluster.states()["n001-b00"] == "ended: a fake: line"


def test_a_report_that_is_refused_leaves_the_other_jobs_in_the_queue(cluster: Cluster) -> None:
    cluster.refuse("afterany", "no")
    lines = submitted(cluster.options)
    assert lines[-1].startswith("report  not submitted: sbatch refused: sbatch: error: no; correct")
    assert lines[-1].endswith(f"; when they have ended: python -m plots report {cluster.folder}")
    assert cluster.states() == {"n001-b00": "pending", "n002-b00": "pending"}
    assert queued(cluster) == ["101", "102"]


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
    site = cluster.top / "few.toml"
    text = (ROOT / "slurm/sites/testcluster.toml").read_text().replace('"testcluster"', '"few"')
    site.write_text(text.replace("[limits]\n", f"[limits]\nmax_submitted = {most}\n"))
    cluster.options = cluster.options.model_copy(update={"site": str(site)})
    lines = submitted(cluster.options)
    assert lines[-1].startswith(last)
    assert len(queued(cluster)) == most


def runs_again(cluster: Cluster) -> list[PlannedRun]:
    work = cluster.work()
    return not_comparable(work.statuses, work.study.partners)


def test_a_pair_of_two_allocations_on_the_same_nodes_is_done_again(cluster: Cluster) -> None:
    cluster.finish("n001-b00")
    cluster.finish("n002-b00")
    for status in cluster.work().statuses:
        config = status.run.config
        job = "8" if config.backend == "horovod" and config.world_size == 4 else "7"
        edit(status.run.log, '"host": {', f'"host": {{"job": {{"SLURM_JOB_ID": "{job}"}}, ', 1)
    again = {(run.config.world_size, run.config.backend) for run in runs_again(cluster)}
    assert again == {(4, "ddp"), (4, "horovod")}


def again_without_its_first(
    tmp_path: Path, study: str, pairs: list[tuple[str, str]]
) -> list[PlannedRun]:
    """What goes again if a framework's run at one rank has failed, and all others are ok."""
    source = write(tmp_path, study)
    statuses = open_work(
        StudyOptions(study=str(source), site="testcluster", results=tmp_path)
    ).statuses
    alone = [s for s in statuses if s.run.config.world_size == 1]
    first = next(s for s in alone if s.run.point.cell != "single")
    done = [replace(s, state="failed" if s is first else "ok") for s in statuses]
    again = not_comparable(done, pairs)
    assert first.run in again
    return again


def test_variants_go_again_together(tmp_path: Path) -> None:
    """What a variant gains is compared inside one allocation, with the baseline too."""
    study = SMALL + '[variants.a]\n[variants.b]\nprecision = "bf16-mixed"\n'
    again = again_without_its_first(tmp_path, study, [("ddp/mpi", "horovod/gloo")])
    assert {(run.point.cell, run.point.variant) for run in again} == {
        (cell, variant) for cell in ("single", "ddp/mpi", "horovod/gloo") for variant in ("a", "b")
    }


def test_partners_on_different_curves_go_again_together(tmp_path: Path) -> None:
    """At one rank `single` is a point of the batch sweep as well."""
    study = """\
name = "small"
question = "?"
cells = ["single", "ddp/gloo"]
reference = "single"
candidate = "ddp/gloo"
scaling = ["weak", "batch"]
world_sizes = [1]
blocks = 1
[weak]
batch_per_rank = 16
[batch]
batch_per_rank = [16, 32]
world_sizes = [2]
[run]
dataset = "digits"
"""
    again = again_without_its_first(tmp_path, study, [("single", "ddp/gloo")])
    assert sorted((run.point.cell, run.point.batch_per_rank) for run in again) == [
        ("ddp/gloo", 16),
        ("single", 16),
    ]


def test_a_pair_on_different_nodes_is_done_again(cluster: Cluster) -> None:
    cluster.finish("n002-b00")
    assert {run.config.world_size for run in runs_again(cluster)} == {1, 2}
    done = [s.run for s in cluster.work().statuses if s.state == "ok"]
    moved = next(run for run in done if run.config.backend == "ddp")
    hostname = json.loads(moved.log.read_text().splitlines()[0])["host"]["ranks"][0]["hostname"]
    edit(moved.log, f'"hostname": "{hostname}"', '"hostname": "elsewhere"')
    again = [run for run in runs_again(cluster) if run.config.world_size == 4]
    assert {run.config.backend for run in again} == {"ddp", "horovod"}
    assert len({run.point.batch_per_rank for run in again}) == 1


def test_how_far_a_study_goes_is_decided_once(tmp_path: Path) -> None:
    source = write(tmp_path, world_sizes="up_to_nodes = 4", cells='cells = ["ddp", "horovod"]')
    asked = StudyOptions(study=str(source), site="testcluster", results=tmp_path / "results")
    assert open_work(asked).study.world_sizes == (1, 2, 4, 8)
    first = open_work(asked.model_copy(update={"nodes": (2,)}))
    first.folder.runs.mkdir(parents=True)
    first.folder.keep_study(first.text)
    assert open_work(asked).study.world_sizes == (1, 4)
    with pytest.raises(
        UsageError,
        match=r"is of another study of this name: world_sizes=\[1, 4\] there, \[1, 2\] now",
    ):
        open_work(asked.model_copy(update={"nodes": (1,)}))


def test_the_price_comes_before_the_submission(cluster: Cluster) -> None:
    code, out, err = cluster.cli("submit", "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "site 'testcluster': last run there on 2026-11-21",
        "    1 node(s):   1 jobs,    7 runs, at most 15 min each, about 0.0 node-h",
        "    2 node(s):   1 jobs,    4 runs, at most 10 min each, about 0.1 node-h",
        "2 jobs, about 0.1 node-h, at most 0.6 node-h (15 s a run assumed: half of time_limit_s, "
        "no expected_run_s is named)",
        "1 launch = 0.1 node-h; fewer than 6 launches give no verdict",
        "then, when all have ended, the report: 1 node, at most 10 min (--no-report leaves it out)",
        "dry run: nothing submitted; 11 runs: 11 planned",
    ]
    assert not cluster.folder.exists()
    assert not (cluster.top / "queue").exists()


def test_status_shows_jobs_and_runs(cluster: Cluster) -> None:
    assert cluster.cli("submit")[0] == 0
    cluster.set_queue("101|small-n001-b00|RUNNING")
    start(unfinished := config_of(cluster, "n001-b00"))
    code, out, err = cluster.cli("status")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [
        "n001-b00  job 101  running",
        "n002-b00  job 102  vanished: it never began",
        "report  job 103  vanished: it never began",
    ]
    assert unfinished.log_path is not None
    (line,) = (line for line in lines if line.startswith(unfinished.log_path.stem))
    assert line.endswith("running")
    assert lines[-1] == "small: 1 launch, 11 runs: 1 running, 10 planned"


def test_waiting_follows_the_jobs_to_their_end(cluster: Cluster) -> None:
    submitted(cluster.options)
    process = cluster.follow()
    assert process.stdout is not None
    line, end = process.stdout.readline, "no estimate before a run has ended\n"
    assert line() == f"0/11 runs done, jobs: 3 pending, {end}"
    cluster.set_queue("101|small-n001-b00|RUNNING", "102|small-n002-b00|PENDING")
    assert line() == f"0/11 runs done, jobs: 1 running, 1 pending, {end}"
    (cluster.top / "squeue.down").touch()  # says nothing of the jobs, so it ends nothing
    assert "squeue does not answer" in line()
    for job in list(cluster.jobs()):
        cluster.finish(job)
    cluster.set_queue()
    (cluster.top / "squeue.down").unlink()
    said, _ = process.communicate(timeout=60)
    assert said.splitlines()[-1] == "small: 11 runs: 11 ok"
    assert process.returncode == 0


def test_no_job_is_not_waited_for_while_squeue_is_silent(cluster: Cluster) -> None:
    """It would be for ever."""
    (cluster.top / "squeue.down").touch()
    command = [sys.executable, "-m", "slurm", "status", "--follow", *cluster.words]
    streams: dict[str, Any] = {"capture_output": True, "text": True, "cwd": ROOT}
    done = subprocess.run(command, env=environment(cluster.top), timeout=60, **streams)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: squeue does not answer, and ")
    assert done.stderr.endswith("names no job to wait for; submit the study first\n")


def test_waiting_for_jobs_that_leave_runs_undone(cluster: Cluster) -> None:
    submitted(cluster.options)
    cluster.finish("n001-b00")
    with pytest.raises(SystemExit):
        fail(cluster.jobs()["n002-b00"].runs[0].config)
    cluster.set_queue()
    code, out, err = cluster.cli("status", "--follow")
    assert (code, err) == (1, "")
    *jobs, first, failed, again = out.splitlines()
    names = ("n001-b00  job 101", "n002-b00  job 102", "report  job 103")
    assert jobs == [f"{name}  vanished: it never began" for name in names]
    assert first == "small: 11 runs: 7 ok, 3 planned, 1 failed"
    assert failed.endswith("failed  rank 1: RuntimeError: boom")
    assert again.startswith(
        f"go on with: {Path(sys.executable).name} -m slurm submit {cluster.options.study} --site "
        f"testcluster"
    )


def config_of(cluster: Cluster, job: str) -> RunConfig:
    return cluster.jobs()[job].runs[0].config


def test_rendering_writes_every_job(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = cluster.cli("render")
    assert code == 0
    assert "#SBATCH --job-name=small-n002-b00\n" in out
    assert (
        err.splitlines()[-1]
        == "this script: n002-b00; --job names another, --out FOLDER writes all"
    )
    code, only, _ = cluster.cli("render", "--job", "n001-b00")
    assert "#SBATCH --job-name=small-n001-b00\n" in only
    assert (
        cluster.cli(
            "render",
            "--out",
            str(tmp_path / "out"),
        )[0]
        == 0
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "small-n001-b00.sh",
        "small-n002-b00.sh",
        "small-report.sh",
    }
    assert (tmp_path / "out" / "small-n002-b00.sh").read_text() == out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "submit local --site local",
            "site 'local' has no scheduler; run the study there: python ",
        ),
        (
            "status local --follow --site local",
            "site 'local' has no scheduler; run the study there: python -m",
        ),
        (
            "run weak --site generic",
            "site 'generic' hands out its nodes through Slurm; use: python",
        ),
        ("submit weak --site perlmutter", "site 'perlmutter' charges every job to an account; giv"),
        ("render weak --site vista --nodes 65", "65 nodes: site 'vista' allows 1 to 64 (limits.ma"),
        ("render weak --site vista --nodes two", "--nodes 'two' is no list of node counts; write "),
        ("render weak --site vista --job n9", "--job n9: no such job is left to do; choose one of"),
        ("render local --job n9", "--out and --job are for a cluster's jobs, and site '"),
        (
            "run smoke --site hostfile",
            "hosts.txt is not there: mpirun's hostfile, one line for eac",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(cluster: Cluster, words: str, message: str) -> None:
    code, out, err = cluster.call(*words.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {message}")


def test_without_sbatch_the_scripts_can_still_be_written(cluster: Cluster) -> None:
    (cluster.top / "empty").mkdir()
    env = {"PATH": str(cluster.top / "empty")}
    code, _, err = cluster.cli("submit", **env)
    assert code == 2
    assert err.startswith(
        "error: there is no sbatch on this machine; use the cluster's login node, or write the "
        "scripts here"
    )
    assert not cluster.folder.exists()


@pytest.mark.parametrize(
    ("program", "scheduler"), [("qsub", "PBS or Grid Engine"), ("bsub", "LSF")]
)
def test_another_scheduler_is_told_that_it_is_not_supported(
    cluster: Cluster, program: str, scheduler: str
) -> None:
    only = cluster.top / "only"
    only.mkdir()
    (only / program).write_text("#!/bin/sh\n")
    (only / program).chmod(0o755)
    code, _, err = cluster.cli("submit", PATH=str(only))
    assert code == 2
    there = f"error: there is no sbatch on this machine, but {program} of {scheduler}, which is not"
    assert err.startswith(f"{there} supported: only Slurm is; start each run by hand inside a job")


def test_a_dry_run_needs_no_account_and_says_that_a_submission_does(cluster: Cluster) -> None:
    words = ["submit", "smoke", "--site", "cardinal", "--nodes", "1"]
    code, out, err = cluster.call(*words, "--dry-run")
    why = "site 'cardinal' charges every job to an account; give --account NAME, or write access"
    assert (code, err) == (0, "")
    assert f"\nit would be refused: {why}" in out
    assert "2 jobs, about " in out
    code, out, err = cluster.call(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {why}")
    assert "refused" not in cluster.call(*words, "--dry-run", "--account", "ME")[1]
