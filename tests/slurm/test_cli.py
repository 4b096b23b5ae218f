"""python -m slurm as a user meets it: run, resume, add launches, interrupt, and every mistake in
one line with exit code 2.
"""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.config import RunConfig
from bench.study.files import read_study
from bench.study.plan import plan
from slurm import local_run
from tests.plots.logs import edit
from tests.slurm.conftest import Calls
from tests.slurm.stand_in import complete, environment
from tests.slurm.studies import ROOT, SMALL, write
from tests.slurm.test_job_script import Process, finish, start_process, wait_for


class Cli:
    """The command line on a small study, with results in a folder of its own and a stand-in for
    mpirun.
    """

    def __init__(self, folder: Path, text: str = SMALL, **changes: str) -> None:
        self.top = folder
        self.look: Calls | None = None  # in this process, where a command only looks
        self.study_file = write(folder, text, **changes)
        self.study = read_study(self.study_file)
        self.folder = folder / "results" / "small"

    def command(self, verb: str, *words: str) -> list[str]:
        results = ["--results", str(self.top / "results")]
        return [sys.executable, "-m", "slurm", verb, str(self.study_file), *results, *words]

    def start(self, *words: str, behaviours: dict[int, str] | None = None) -> Process:
        return start_process(self.command(*words), environment(self.top, behaviours))

    def __call__(
        self, *words: str, behaviours: dict[int, str] | None = None
    ) -> tuple[object, str, str]:
        if self.look is not None and words[0] != "run":
            return self.look(*self.command(*words)[3:])
        return finish(self.start(*words, behaviours=behaviours))

    def complete(self, launches: int = 1, do: Callable[[RunConfig], None] = complete) -> None:
        """Write the results as the study's first launches leave them."""
        (self.folder / "runs").mkdir(parents=True)
        (self.folder / "study.toml").write_text(self.study_file.read_text())
        (self.folder / "jobs.jsonl").touch()
        for launch in plan(self.study, launches, self.folder / "runs"):
            for run in launch:
                do(run.config)

    def report(self) -> str:
        start = f"{Path(sys.executable).name} -m plots report"
        return f"then, for the answer: {start} {self.folder}"

    def log(self, launch: int, position: int) -> Path:
        return plan(self.study, launch + 1, self.folder / "runs")[launch][position].log


FEW = {"launches": "launches = 1", "cells": 'cells = ["single", "ddp/mpi"]'}  # 4 runs a launch


@pytest.fixture
def cli(tmp_path: Path, call: Calls) -> Cli:
    made = Cli(tmp_path, **FEW)
    made.look = call
    return made


def test_run_does_what_is_missing_and_launches_add_to_it(cli: Cli) -> None:
    code, script, err = cli("render")
    assert (code, err.splitlines()[0]) == (0, "small: 1 launch, 4 runs: 4 planned")
    assert not cli.folder.exists()
    code, out, err = cli("run")
    assert (code, err) == (0, "")
    lines, unknown = out.splitlines(), "no estimate before a run has ended"
    assert lines[0] == f"small: 4 runs on this machine, {unknown}; {cli.folder}/job-001.sh"
    assert lines[-2:] == ["small: 4 runs: 4 ok", cli.report()]
    assert (cli.folder / "job-001.sh").read_text() == script
    before = {path: path.read_text() for path in (cli.folder / "runs").iterdir()}
    code, out, _ = cli("run", "--launches", "2")
    assert (code, out.splitlines()[-2]) == (0, "small: 8 runs: 8 ok")
    assert {path: path.read_text() for path in before} == before
    # planned and final number of launches are both on record
    assert (cli.folder / "study.toml").read_text() == cli.study_file.read_text()
    jobs = [json.loads(line) for line in (cli.folder / "jobs.jsonl").read_text().splitlines()]
    found = [(job["script"], job["launches"], job["runs"]) for job in jobs]
    assert found == [("job-001.sh", 1, 4), ("job-002.sh", 2, 4)]
    # and the added launches are remembered
    assert cli("status")[1].splitlines()[-1] == "small: 2 launches, 8 runs: 8 ok"
    write(cli.top, **{**FEW, "launches": "launches = 2"})  # the same by editing the study
    assert cli("run")[1].splitlines()[0] == "8 runs: 8 ok; nothing to do"


def test_what_failed_is_done_again_and_its_log_kept(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = cli("run", behaviours={0: "refuse"})
    assert (code, err) == (2, f"error: {cli.log(0, 0).stem}: model='resnet51' is unknown\n")
    monkeypatch.setenv("STUDY_GO_ON", "make study RESULTS=here")
    code, out, err = cli("run", behaviours={1: "fail", 2: "crash"})
    assert (code, err) == (1, "")
    assert "small: 4 runs: 2 ok, 2 failed\n" in out
    assert f"  {cli.log(0, 1).stem}: failed  exit code 1: rank 1: RuntimeError: boom\n" in out
    assert out.splitlines()[-1] == "go on with: make study RESULTS=here"
    assert cli("run")[0] == 0
    assert "boom" in cli.log(0, 1).with_suffix(".attempt-1.jsonl").read_text()
    assert "No module" in cli.log(0, 2).with_suffix(".attempt-1.out").read_text()
    scripts = [(cli.folder / f"job-00{n}.sh").read_text() for n in (1, 2, 3)]
    again = [script.count("\nrun launch") for script in scripts]
    assert again == [4, 4, 3]  # a launch is done again whole


def test_status_shows_every_state_and_a_signal_says_how_to_go_on(cli: Cli) -> None:
    process = cli.start("run", behaviours={0: "out of memory", 2: "hang"})
    wait_for(cli.log(0, 2).exists)
    code, out, err = cli("status")
    assert (code, err) == (0, "")
    ids = [cli.log(0, position).stem for position in range(4)]
    first, words, *lines = out.splitlines()
    why = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks"
    assert re.match(rf"{ids[0]} +out of memory  (\d+ s  )?{why}", first)
    assert words.strip() == "srun: error: r2: task 1: Out Of Memory"
    states = [[ids[1], "ok"], [ids[2], "running"], [ids[3], "planned"]]
    assert [line.split()[:2] for line in lines[:3]] == states
    counts = "small: 1 launch, 4 runs: 1 ok, 1 running, 1 planned, 1 out of memory"
    assert lines[-1] == counts
    process.send_signal(signal.SIGINT)
    _, out, err = finish(process)
    assert (process.returncode, err) == (130, "")
    assert "small: 4 runs: 1 ok, 1 planned, 1 interrupted, 1 out of memory" in out
    again = f"-m slurm run {cli.study_file} --site local --results {cli.top}/results"
    assert out.splitlines()[-1] == f"go on with: {Path(sys.executable).name} {again}"
    assert '"interrupted": true' in cli.log(0, 2).read_text()


def test_a_killed_command_leaves_a_lock_until_its_driver_ends(cli: Cli) -> None:
    process = cli.start("run", behaviours={0: "held"})
    wait_for(cli.log(0, 0).with_suffix(".out").exists)
    process.kill()
    process.wait()
    code, _, err = cli("run")
    rule = "another job of this study is running, or being submitted; wait for it or stop it"
    assert (code, err) == (2, f"error: {cli.folder}: {rule}\n")
    cli.log(0, 0).with_name("go").touch()
    wait_for(lambda: cli("status")[1].endswith("4 runs: 4 ok\n"))
    process.communicate()


def test_a_driver_that_is_killed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job-001.sh"
    script.write_text("kill -9 $$")
    with script.open() as lock:
        assert local_run.execute(script, lock, "") == signal.SIGKILL
    assert "job-001.sh was killed by SIGKILL, not from here" in capsys.readouterr().err


def test_a_study_stays_on_one_machine(cli: Cli) -> None:
    cli.complete()
    log, this = cli.log(0, 0), socket.gethostname()
    edit(log, f'"hostname": "{this}"', '"hostname": "elsewhere"')
    before = sorted(cli.folder.rglob("*"))
    code, out, err = cli("run", "--launches", "3")
    assert (code, out) == (2, "")
    assert re.fullmatch("error: .* holds runs made on elsewhere.*choose another --results\n", err)
    assert sorted(cli.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no command is named; choose one of render, run, submit, cancel, status, site; see "),
        ("status local --launchs 1", "unknown option '--launchs'; did you mean '--launches'?"),
        ("render local --site locla", "'locla' is not a known site (cardinal, cardinal-mvapich, g"),
        ("run local", "{here} is no checkout of this project, from which job scripts run; change"),
        ("status local --follow --site local", "site 'local' has no scheduler; run the study ther"),
        ("run weak --site generic", "site 'generic' hands out its nodes through Slurm; use: pytho"),
        ("render weak --site vista --account=a'b", '--account "a\'b": String should match pattern'),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Calls, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call.refuse(*words.split()).startswith(message.format(here=tmp_path))
    assert not (tmp_path / "results").exists()


def test_a_hostfile_that_is_not_there_is_one_line(call: Calls) -> None:
    assert call.refuse("run", "smoke", "--site", "hostfile").startswith("hosts.txt is not there: ")


def test_a_studys_folder_stands_for_its_study(cli: Cli, call: Calls) -> None:
    cli.complete()
    code, out, _ = call("status", str(cli.folder), "--launches", "2")
    assert (code, out.splitlines()[-1]) == (0, "small: 2 launches, 8 runs: 4 ok, 4 planned")
    moved = cli.folder.rename(cli.top / "moved")
    rule = f"{moved} holds study 'small', whose folder has that name; rename 'moved', or name a -"
    assert call.refuse("status", str(moved)).startswith(rule)


SLOW = "'torch', 'numpy', 'pandas', 'scipy', 'matplotlib', 'jinja2'"
LOADED = (
    f"import sys; from slurm.__main__ import main; main(); print({{{SLOW}}} & {{*sys.modules}})"
)


def test_commands_load_nothing_slow_that_they_do_not_need(tmp_path: Path) -> None:
    """What keeps them below 0.7 s."""
    words = ["status", "local-transports", "--results", str(tmp_path)]
    command = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"
