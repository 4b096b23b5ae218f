"""The driver without a shell: run lines, limits, signals, and what a run may leave behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.lifecycle.peers import ENDED, state
from slurm.driver.script import GroupLines, RunLine, read_groups
from slurm.driver.steps import KILLED, TIMED_OUT, Steps
from tests.slurm.test_job_script import Job, wait_for

PYTHON = [sys.executable, "-c"]
LINES_THAT_ARE_NONE = ["run a", "ruin a 2", "run a 0 -x", "run a 2x", "run 'a 2"]
LINES_THAT_ARE_NONE += ["turns", "turns 2 1", "turns 2 1+b"]


@pytest.fixture
def steps() -> Iterator[Steps]:
    """Provide steps with grace for any machine, and put the handlers of this process back."""
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Steps(grace_s=60)
    made.listen(signal.SIGUSR1, signal.SIGUSR2)
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_run_lines_may_be_edited_and_commented() -> None:
    text = "\n# Launch 0\nrun a 2 --backend ddp --data-dir '/a b'  # mine\n#run b 2 --backend x\n"
    (launch,) = read_groups(text)
    assert launch == GroupLines([RunLine("a", 2, ["--backend", "ddp", "--data-dir", "/a b"])])


def test_runs_below_a_line_of_turns_are_started_together() -> None:
    text = (
        "run a 1\nturns 2\nrun b 1\n#run c 1\nrun d 2\nrun e 1\napart 2 no memory\nrun f 1\nrun g 1"
    )
    found = [([line.id for line in x.lines], x.apart) for x in read_groups(text)]
    apart = [(["f"], "no memory"), (["g"], "no memory")]
    assert found == [(["a"], ""), (["b", "d"], ""), (["e"], ""), *apart]
    assert read_groups("turns 2\n") == []  # all of its runs deleted


@pytest.mark.parametrize("line", LINES_THAT_ARE_NONE)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"^run line 2"):
        read_groups(f"\n{line}\n")


def test_each_step_has_its_own_limit_and_one_that_fails_ends_the_others(
    tmp_path: Path, steps: Steps
) -> None:
    told: list[str] = []
    first = steps.start(["sleep", "60"], tmp_path / "a", 30, None, partial(told.append, "a"))
    second = steps.start(["sleep", "60"], tmp_path / "b", 0.2, None, partial(told.append, "b"))
    ended, late = steps.wait(first, second)
    assert late[:2] == (TIMED_OUT, True)
    assert ended[:2] == (128 + signal.SIGTERM, False)
    assert told == ["b", "a"], "before each of them"


def test_who_does_not_end_in_time_is_killed(tmp_path: Path, steps: Steps) -> None:
    hasty = Steps(grace_s=0.5)
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: deaf from its beginning
    step = hasty.start(["sleep", "60"], tmp_path / "a", limit_s=1)
    signal.signal(signal.SIGTERM, handler)
    (ended,) = hasty.wait(step)
    assert (ended.wall_s >= 1, *ended[:2], ended.shot) == (True, KILLED, True, False)
    step = steps.start([*PYTHON, "import os; os.kill(os.getpid(), 9)"], tmp_path / "b", limit_s=60)
    assert steps.wait(step)[0].shot


def test_a_signal_ends_what_runs_and_what_starts_later(tmp_path: Path, steps: Steps) -> None:
    step = steps.start(["sleep", "60"], tmp_path / "a", limit_s=30)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    assert steps.wait(step)[0].code == 128 + signal.SIGTERM
    assert steps.stopped == signal.SIGUSR1
    later = steps.start(["sleep", "60"], tmp_path / "b", limit_s=30)
    assert steps.wait(later)[0].code == 128 + signal.SIGTERM


def test_nothing_of_a_step_outlives_it(tmp_path: Path, steps: Steps) -> None:
    # longer than anybody waits here: it must not end by itself
    child = "import subprocess; print(subprocess.Popen(['sleep', '900'], process_group=0).pid)"
    (ended,) = steps.wait(steps.start([*PYTHON, child], tmp_path / "a", limit_s=30))
    assert ended.code == 0
    pid = int((tmp_path / "a").read_text())
    try:
        wait_for(lambda: state(pid) == ENDED)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_temporary_files_of_a_run_go_with_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    job = Job(tmp_path, {0: "litter"}, runs=1)
    assert job.finish(TMPDIR=str(mine))[0] == 0
    assert list(mine.iterdir()) == []
