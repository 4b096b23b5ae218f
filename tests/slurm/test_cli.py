"""python -m slurm as a user meets it: run, resume, add blocks, interrupt, and every mistake in one
line with exit code 2.
"""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.study.files import read_study
from bench.study.plan import plan
from tests.plots.logs import edit
from tests.slurm.stand_in import environment
from tests.slurm.studies import ROOT, SHIPPED_SITES, SMALL, write
from tests.slurm.test_job_script import Process, finish, start_process, wait_for


class Cli:
    """The command line on a small study, with results in a folder of its own and a stand-in for
    mpirun.
    """

    def __init__(self, folder: Path, text: str = SMALL, **changes: str) -> None:
        self.top = folder
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
    ) -> tuple[int, str, str]:
        return finish(self.start(*words, behaviours=behaviours))

    def report(self) -> str:
        start = f"{Path(sys.executable).name} -m plots report"
        return f"then, for the answer: {start} {self.folder}"

    def log(self, block: int, position: int) -> Path:
        return plan(self.study, block + 1, self.folder / "runs")[block][position].log

    def files(self) -> set[str]:
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()}


FEW = {"blocks": "blocks = 1", "cells": 'cells = ["single", "ddp/mpi"]'}  # 4 runs a block


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, **FEW)


def test_run_does_what_is_missing_and_blocks_add_to_it(cli: Cli) -> None:
    code, out, err = cli("run")
    assert (code, err) == (0, "")
    first = [run.id for run in plan(cli.study, 1, Path())[0]]
    lines = out.splitlines()
    assert (
        lines[0] == f"small: 4 runs on this machine, no estimate before a run has ended; "
        f"{cli.folder}/job-001.sh"
    )
    assert lines[1] == f"0/4 runs done, now {first[0]}, no estimate before a run has ended"
    assert lines[-2:] == ["small: 4 runs: 4 ok", cli.report()]
    logs = {f"runs/{run_id}{end}" for run_id in first for end in (".jsonl", ".out")}
    assert cli.files() == {"study.toml", "jobs.jsonl", "job-001.sh"} | logs

    before = {path: path.read_text() for path in (cli.folder / "runs").iterdir()}
    assert cli("run")[1] == f"4 runs: 4 ok; nothing to do\n{cli.report()}\n"
    code, out, _ = cli("run", "--blocks", "2")
    assert code == 0
    assert out.startswith("small: 4 runs on this machine, about ")
    assert out.splitlines()[-2] == "small: 8 runs: 8 ok"
    assert {path: path.read_text() for path in before} == before
    # planned and final number of blocks are both on record
    assert (cli.folder / "study.toml").read_text() == cli.study_file.read_text()
    jobs = [json.loads(line) for line in (cli.folder / "jobs.jsonl").read_text().splitlines()]
    assert [(job["script"], job["blocks"], job["runs"]) for job in jobs] == [
        ("job-001.sh", 1, 4),
        ("job-002.sh", 2, 4),
    ]
    # and the added blocks are remembered
    assert cli("status")[1].splitlines()[-1] == "small: 2 launches, 8 runs: 8 ok"
    write(cli.top, **{**FEW, "blocks": "blocks = 2"})  # the same by editing the study
    assert cli("run")[1].splitlines()[0] == "8 runs: 8 ok; nothing to do"
    assert cli("status")[1].splitlines()[-1] == "small: 2 launches, 8 runs: 8 ok"


def test_what_failed_is_done_again_and_its_log_kept(cli: Cli) -> None:
    code, out, err = cli("run", behaviours={1: "fail", 2: "crash"})
    assert (code, err) == (1, "")
    assert "small: 4 runs: 2 ok, 2 failed\n" in out
    assert f"  {cli.log(0, 1).stem}: failed  exit code 1: rank 1: RuntimeError: boom\n" in out
    assert out.splitlines()[-1].startswith("go on with: python")
    assert cli("run", behaviours={1: "fail"})[0] == 1
    assert cli("run")[0] == 0
    stem = cli.log(0, 1).stem
    logs = {path.name for path in (cli.folder / "runs").glob(f"{stem}.*jsonl")}
    assert logs == {f"{stem}{end}.jsonl" for end in ("", ".attempt-1", ".attempt-2")}
    assert "boom" in cli.log(0, 1).with_suffix(".attempt-1.jsonl").read_text()
    assert "No module" in cli.log(0, 2).with_suffix(".attempt-1.out").read_text()
    assert cli("status")[1].splitlines()[-1] == "small: 1 launch, 4 runs: 4 ok"
    scripts = [(cli.folder / f"job-00{n}.sh").read_text() for n in (1, 2, 3)]
    again = [script.count("\nrun b") for script in scripts]
    assert again == [4, 3, 2]  # a launch is done again whole


def test_what_goes_on_with_a_study_is_the_command_that_began_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under make no environment is activated, so `python -m slurm` would not be the same."""
    make = ["make", "--dry-run", "study", "RESULTS=here"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.check_output(make, cwd=ROOT, env=env, text=True)
    assert "STUDY_GO_ON='make study RESULTS=here' python -m slurm run $study " in said
    monkeypatch.setenv("STUDY_GO_ON", "make study RESULTS=here")
    code, out, _ = cli("run", behaviours={1: "fail"})
    assert (code, out.splitlines()[-1]) == (1, "go on with: make study RESULTS=here")
    assert cli("run")[1].splitlines()[-1] == "small: 4 runs: 4 ok"  # make goes on to the report


def test_render_changes_nothing_and_prints_the_script_that_run_executes(cli: Cli) -> None:
    code, script, err = cli("render")
    planned = "small: 1 launch, 4 runs: 4 planned"
    estimate = "this script: 4 runs, no estimate before a run has ended"
    assert (code, err.splitlines()) == (0, [planned, estimate])
    assert not cli.folder.exists()
    cli("run")
    assert (cli.folder / "job-001.sh").read_text() == script
    assert cli("render") == (0, "", "small: 1 launch, 4 runs: 4 ok\n")


def test_status_shows_every_state(cli: Cli) -> None:
    process = cli.start("run", behaviours={0: "fail", 2: "hang"})
    wait_for(cli.log(0, 2).exists)
    code, out, err = cli("status")
    assert (code, err) == (0, "")
    words = [line.split()[:2] for line in out.splitlines()]
    states = ["failed", "ok", "running", "planned"]
    assert words[:4] == [
        [cli.log(0, position).stem, state] for position, state in enumerate(states)
    ]
    assert out.splitlines()[-1] == "small: 1 launch, 4 runs: 1 ok, 1 running, 1 planned, 1 failed"
    process.terminate()
    process.communicate(timeout=60)
    assert "1 ok, 1 planned, 1 failed, 1 interrupted" in cli("status")[1]


def test_status_names_the_cause_and_each_ranks_last_words(cli: Cli) -> None:
    assert cli("run", behaviours={0: "out of memory", 1: "trip over a node", 2: "silent"})[0] == 1
    code, out, err = cli("status")
    assert (code, err) == (0, "")
    ids = [cli.log(0, position).stem for position in range(4)]
    width = max(map(len, ids))
    lines = [re.sub(r"\b\d+ s  ", "", line) for line in out.splitlines()]
    oom = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks "
        "have been OOM Killed."
    )
    below = " " * (width + 17)
    assert lines[:4] == [
        f"{ids[0]:{width}}  out of memory  {oom}",
        f"{below}rank 1: Out Of Memory",
        f"{ids[1]:{width}}  node lost      srun: error: Node failure on r2",
        f"{below}rank 0: RuntimeError: Connection closed by peer",
    ]
    assert lines[4].startswith(f"{ids[2]:{width}}  failed         exit code 0: mpirun ")
    assert (
        out.splitlines()[-1]
        == "small: 1 launch, 4 runs: 1 ok, 1 failed, 1 out of memory, 1 node lost"
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_recorded_state_and_says_how_to_go_on(
    cli: Cli, number: signal.Signals, code: int
) -> None:
    process = cli.start("run", behaviours={1: "hang"})
    wait_for(cli.log(0, 1).exists)
    process.send_signal(number)
    _, out, err = finish(process)
    assert (process.returncode, err) == (code, "")
    assert "small: 4 runs: 1 ok, 2 planned, 1 interrupted" in out
    assert out.splitlines()[-1] == (
        f"go on with: {Path(sys.executable).name} -m slurm run {cli.study_file} --site local "
        f"--results {cli.top}/results"
    )
    assert '"interrupted": true' in cli.log(0, 1).read_text()
    assert cli("run")[0] == 0
    assert cli.log(0, 1).with_suffix(".attempt-1.jsonl").exists()


def test_killed_without_mercy_the_study_stays_locked_until_its_job_ends(cli: Cli) -> None:
    process = cli.start("run", behaviours={0: "slow", 1: "slow"})
    wait_for(cli.log(0, 0).exists)
    process.kill()
    process.wait()
    code, _, err = cli("run")
    rule = "another job of this study is running, or being submitted; wait for it or stop it"
    assert (code, err) == (2, f"error: {cli.folder}: {rule}\n")
    wait_for(lambda: cli("status")[1].endswith("4 runs: 4 ok\n"))
    process.communicate()


def test_a_killed_driver_is_told_of_and_leaves_no_folder_behind(cli: Cli, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**environment(cli.top, {1: "hang"}), "TMPDIR": str(temporary)}
    process = start_process(cli.command("run"), env)
    wait_for(cli.log(0, 1).exists)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children), signal.SIGKILL)
    _, out, err = finish(process)
    assert process.returncode == 128 + signal.SIGKILL
    (line,) = err.splitlines()
    told = "job-001.sh was killed by SIGKILL, not from here: kill -9, or the kernel for want of mem"
    assert f"{cli.folder}/{told}" in line
    assert "small: 4 runs: 1 ok, 1 running, 2 planned" in out
    assert "\ngo on with: " in out
    (left,) = temporary.iterdir()
    (orphan,) = (int(p.name) for p in Path("/proc").glob("[0-9]*") if works_in(p, left))
    os.kill(orphan, signal.SIGKILL)
    env["STAND_IN"] = "{}"
    assert finish(start_process(cli.command("run"), env))[0] == 0
    assert not list(temporary.iterdir())


def works_in(process: Path, folder: Path) -> bool:
    try:
        return f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_a_terminal_gets_a_bar(cli: Cli) -> None:
    screen, terminal = pty.openpty()
    env = {**environment(cli.top), "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        cli.command("run"), cwd=ROOT, env=env, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(screen, 4096)
        except OSError:  # the other end is closed
            break
    os.close(screen)
    assert process.wait() == 0
    assert b"4/4" in shown
    assert b"\xe2\x94\x81" in shown  # the bar
    assert cli.log(0, 0).stem.encode() in shown


def test_a_study_stays_on_one_machine(cli: Cli) -> None:
    assert cli("run")[0] == 0
    log = cli.log(0, 0)
    edit(log, f'"hostname": "{socket.gethostname()}"', '"hostname": "elsewhere"')
    before = cli.files()
    code, out, err = cli("run", "--blocks", "3")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "holds runs made on elsewhere" in err
    assert "choose another --results" in err
    assert cli.files() == before
    note = f"note: {cli.folder} holds runs made on elsewhere, and this is {socket.gethostname()}: "
    assert any(line.startswith(note) for line in cli("status")[1].splitlines())
    log.with_name(cli.log(0, 1).name).unlink()  # the script by hand would split a pair
    script = ["bash", str(cli.folder / "job-001.sh")]
    code, _, err = finish(start_process(script, environment(cli.top)))
    assert code == 2
    assert err.startswith(f"error: {log} was made on elsewhere, and this is ")
    assert not cli.log(0, 1).exists()


def test_a_changed_study_is_refused(cli: Cli) -> None:
    assert cli("run")[0] == 0
    write(cli.top, **FEW, windows="windows = 3")
    before = cli.files()
    rule = "is of another study of this name: run.windows=2 there, 3 now; give the study a new name"
    told = f"error: {cli.folder}/study.toml {rule}, or choose another --results\n"
    for verb in ("run", "status", "render"):
        assert cli(verb) == (2, "", told)
    assert cli.files() == before


def test_no_mpirun_is_one_line_and_makes_nothing(cli: Cli) -> None:
    env = {**environment(cli.top), "MPIRUN": "no-such-mpirun"}
    done = subprocess.run(cli.command("run"), cwd=ROOT, env=env, capture_output=True, text=True)
    cure = "run `make setup`, which installs one, or say where yours is: MPIRUN=/path/to/mpirun"
    assert (done.returncode, done.stderr) == (2, f"error: no-such-mpirun is not found; {cure}\n")
    assert not cli.folder.exists()


SEE = "see python -m slurm --help"
COMMANDS = "render, run, submit, cancel, status, site"
NEAR = "did you mean 'local'?"
ROOT_OF = "change to the root of a checkout, or write the script here: python -m slurm render STUDY"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", f"no command is named; choose one of {COMMANDS}; {SEE}"),
        ("rnu local", "unknown command 'rnu'; did you mean 'run'?"),
        ("run", "STUDY is missing; see python -m slurm run --help"),
        ("status local --blok 1", "unknown option '--blok'; did you mean '--blocks'?"),
        ("render local --site locla", f"'locla' is not a known site ({SHIPPED_SITES}); {NEAR}"),
        ("render gone.toml", "gone.toml: No such file or directory"),
        (
            "run local",
            f"{{here}} is no checkout of this project, from which job scripts run; {ROOT_OF}",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, words: str, message: str) -> None:
    env = {**environment(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "slurm", *words.split()]
    line = f"error: {message.format(here=tmp_path)}\n"
    assert finish(start_process(command, env, tmp_path)) == (2, "", line)
    assert not (tmp_path / "results").exists()


def test_results_that_cannot_be_made_are_one_line(cli: Cli) -> None:
    file = cli.top / "file"
    file.touch()
    for results, message in (
        ("/proc/none", "/proc/none: No such file or directory; choose another --results"),
        (f"{file}/x", f"{file}/x/small/jobs.jsonl: Not a directory"),
    ):
        assert cli("run", "--results", results) == (2, "", f"error: {message}\n")


def test_a_studys_folder_stands_for_its_study(cli: Cli) -> None:
    assert cli("run")[0] == 0
    command = [sys.executable, "-m", "slurm"]
    words = ["run", str(cli.folder), "--blocks", "2"]
    code, out, err = finish(start_process([*command, *words], environment(cli.top)))
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == ["small: 8 runs: 8 ok", cli.report()]
    moved = cli.folder.rename(cli.top / "moved")
    code, out, err = finish(start_process([*command, "status", str(moved)], environment(cli.top)))
    rule = f"{moved} holds study 'small', whose folder has that name; rename 'moved', or name a -"
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {rule}")


def test_a_misspelt_key_goes_before_a_missing_one(cli: Cli) -> None:
    text = cli.study_file.read_text().replace("question =", "quastion =")
    cli.study_file.write_text(text)
    unknown = "unknown key 'quastion'; did you mean 'question'?"
    assert cli("status") == (2, "", f"error: {cli.study_file}: {unknown}\n")


HEAVY = """
import sys
from slurm.__main__ import main
code = main()
slow = {'torch', 'numpy', 'pandas', 'scipy', 'matplotlib', 'jinja2', 'rich.progress'}
print('loaded:', *sorted(slow & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "code", "loaded"),
    [
        (["--help"], 0, ""),
        (["render", "local-transports"], 0, " jinja2"),
        (["status", "local-transports"], 0, ""),
        (["run", "lokal"], 2, ""),
        (["render", "local", "--blok", "1"], 2, ""),
    ],
)
def test_commands_load_nothing_slow_that_they_do_not_need(
    words: list[str], code: int, loaded: str, tmp_path: Path
) -> None:
    """What keeps them below 0.7 s."""
    results = [] if words == ["--help"] else ["--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", HEAVY, *words, *results], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] == f"loaded:{loaded}"


def test_wrong_input_is_one_line_and_exit_code_2(cli: Cli) -> None:
    code, _, err = cli("run", behaviours={0: "refuse"})
    assert (code, err) == (2, f"error: {cli.log(0, 0).stem}: model='resnet51' is unknown\n")
    assert cli("status")[1].splitlines()[-1] == "small: 1 launch, 4 runs: 3 planned, 1 failed"


def test_a_first_estimate_comes_from_the_study(tmp_path: Path) -> None:
    cli = Cli(tmp_path, **{**FEW, "blocks": "blocks = 1\nexpected_run_s = 30"})
    assert "this script: 4 runs, about 2 min" in cli("render")[2]
