"""Submitters at once, and one that is killed at the worst moment, as real processes: no job is ever
doubled, and none is lost.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.studies import write
from tests.slurm.test_cli import FEW, Cli
from tests.slurm.test_job_script import Process, finish, start_process, wait_for

SLOW = (
    'touch "{folder}/sbatch.begun"; while [ -e "{folder}/hold" ]; do sleep 0.05; done; sleep 0.1\n'
)
TAKEN = "another job of this study is running, or being submitted; wait for it or stop it"


class Submitters:
    """The small study on the test cluster: four blocks at one and two nodes, eight jobs, and an
    sbatch that takes its time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = write(
            folder,
            world_sizes="nodes = [1, 2]",
            cells='cells = ["single", "ddp", "horovod"]',
            blocks="blocks = 4",
        )
        sbatch = install(folder) / "sbatch"
        head, rest = sbatch.read_text().split("\n", 1)
        sbatch.write_text(f"{head}\n{SLOW.format(folder=folder)}{rest}")
        self.env = {
            **environment(folder),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, *words: str) -> Process:
        command = [
            sys.executable,
            "-m",
            "slurm",
            "submit",
            str(self.study),
            "--site",
            "testcluster",
        ]
        results = ["--results", str(self.folder / "results")]
        return start_process([*command, *words, *results], self.env)

    def finish(self, *words: str) -> tuple[int, str, str]:
        return finish(self.start(*words))

    def queued(self) -> Counter[str]:
        queue = self.folder / "queue"
        lines = queue.read_text().splitlines() if queue.exists() else []
        return Counter(line.split("|")[1] for line in lines)

    def recorded(self) -> Counter[str]:
        lines = (self.folder / "results" / "small" / "jobs.jsonl").read_text().splitlines()
        return Counter(f"small-{json.loads(line)['job']}" for line in lines)


NAMES = [f"n00{nodes}-b0{block}" for nodes in (1, 2) for block in range(4)]
ALL = {f"small-{name}": 1 for name in (*NAMES, "report")}


def test_four_submitters_at_once_submit_every_job_once(tmp_path: Path) -> None:
    both = Submitters(tmp_path)
    started = [both.start() for _ in range(4)]
    ended = [(process.communicate(timeout=120), process.returncode) for process in started]
    assert {code for _, code in ended} <= {0, 2}
    assert 0 in {code for _, code in ended}
    for (_, err), code in ended:
        assert (err == "") == (code == 0)
        assert code == 0 or err.strip().endswith(TAKEN)
    assert both.queued() == ALL
    assert both.recorded() == ALL
    assert both.finish()[0] == 0
    assert both.queued() == ALL


def test_a_submitter_killed_while_sbatch_works_doubles_nothing(tmp_path: Path) -> None:
    both = Submitters(tmp_path)
    (tmp_path / "hold").touch()
    first = both.start()
    wait_for((tmp_path / "sbatch.begun").exists)
    first.kill()
    first.communicate(timeout=60)
    # sbatch lives on, has not told Slurm yet, and nobody may submit meanwhile
    assert not both.queued()
    code, _, err = both.finish()
    assert code == 2
    assert err.strip().endswith(TAKEN)
    (tmp_path / "hold").unlink()
    wait_for(lambda: bool(both.queued()))
    assert not both.recorded()
    time.sleep(0.2)
    code, out, err = both.finish()
    assert (code, err) == (0, "")
    assert "n001-b00  pending as job 101" in out.splitlines()
    assert both.queued() == both.recorded() == ALL


def test_a_submitter_killed_between_sbatch_and_its_record_doubles_nothing(tmp_path: Path) -> None:
    both = Submitters(tmp_path)
    sbatch = tmp_path / "bin" / "sbatch"
    whole = sbatch.read_text()
    sbatch.write_text(f"{whole}kill -9 $PPID\n")  # Slurm has the job, and nobody knows its number
    assert both.finish()[0] == -9
    sbatch.write_text(whole)
    assert (both.queued(), both.recorded()) == ({"small-n001-b00": 1}, {})
    code, out, err = both.finish()
    assert (code, err) == (0, "")
    assert "n001-b00  pending as job 101" in out.splitlines()
    assert both.queued() == both.recorded() == ALL


def test_three_runs_at_once_are_one_run(tmp_path: Path) -> None:
    cli = Cli(tmp_path, **FEW)
    started = [cli.start("run", behaviours={0: "slow", 1: "slow"}) for _ in range(3)]
    ended = [finish(process) for process in started]
    assert sorted(code for code, _, _ in ended) == [0, 2, 2]
    for code, out, err in ended:
        assert (out == "") == (code == 2)
        assert (err.strip().endswith(TAKEN), len(err.splitlines())) == (code == 2, code // 2)
    assert len((cli.folder / "jobs.jsonl").read_text().splitlines()) == 1
    assert not list((cli.folder / "runs").glob("*.attempt-*"))
    assert cli("status")[1].splitlines()[-1].endswith("4 runs: 4 ok")


def test_jobs_of_another_results_folder_are_not_taken_for_ours(tmp_path: Path) -> None:
    both = Submitters(tmp_path)
    other = tmp_path / "elsewhere" / "small" / "job-n001-b00-001.sh"
    ours = tmp_path / "results" / "small" / "job-n002-b00-001.sh"
    (tmp_path / "queue").write_text(
        f"55|small-n001-b00|PENDING|{other}\n56|small-n002-b00|PENDING|{ours}\n"
    )
    code, out, _ = both.finish()
    assert code == 0
    said = [line for line in out.splitlines() if line.startswith("n00")]
    assert said[:2] == [
        "n001-b00  submitted as job 103, 7 runs",
        "n002-b00  pending as job 56",
    ]
