"""A study that stops when it knows: the decision after each look, `slurm run` going by it, and the
session and the seed that its runs share.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.record import read_run
from slurm.session import StudyOptions, Work, open_work
from slurm.until_settled import Standing, seconds
from tests.slurm.conftest import Calls
from tests.slurm.stand_in import noisy
from tests.slurm.studies import SMALL, write
from tests.slurm.test_cli import Cli

PAIR = {
    "cells": 'cells = ["ddp/mpi", "horovod/mpi"]',
    "scaling": 'scaling = ["weak"]',
    "world_sizes": "world_sizes = [1]",
    "launches": "launches = 6\nmax_launches = 10",
}
ONE_CURVE = SMALL.replace("[strong]\nglobal_batch = 8\n", "")

FIRST = Standing(done=6, wanted=6, most=20)
BEYOND = "would not end within the budget"


@pytest.mark.parametrize(
    ("standing", "launches", "why"),
    [
        (Standing(3, 6, 20), 6, ""),  # resumed
        (FIRST, 8, ""),
        (replace(FIRST, done=8, wanted=8, settled=True), 8, "settled"),
        (replace(FIRST, done=20, wanted=20), 20, "all 20 launches are done"),
        (replace(FIRST, most=7), 6, "all 6 launches are done"),  # none of them alone
        # a budget; without a first look there is no verdict
        (Standing(0, 6, 20, left_s=100, launch_s=44), 6, ""),
        (replace(FIRST, left_s=88, launch_s=44), 8, ""),
        (replace(FIRST, left_s=87, launch_s=44), 6, f"2 more, about 88 s, {BEYOND}"),
        (replace(FIRST, left_s=10), 8, ""),  # nobody knows: two show it
        (replace(FIRST, left_s=0), 6, f"2 more, {BEYOND}"),
    ],
)
def test_what_comes_after_a_look(standing: Standing, launches: int, why: str) -> None:
    assert standing.decide() == (launches, why)


def test_a_budget_has_units(call: Calls) -> None:
    """A number alone has none: timeout takes it as seconds, srun as minutes."""
    known = {"90s": 90, "15m": 900, "2h": 7200, "1h30m": 5400, "1d": 86_400}
    assert [seconds(text) for text in known] == [*known.values()]
    for text in ("", "0s", "1.5h", "31d", "15"):
        rule = f"--budget {text!r} is no time with its unit, from 1s to 30d; write it as 90s, 15m"
        assert call.refuse("run", "local", f"--budget={text}").startswith(rule)


def opened(folder: Path, changes: dict[str, str], launches: int | None = None) -> Work:
    study = str(write(folder, ONE_CURVE, **{**PAIR, **changes}))
    return open_work(StudyOptions(study=study, results=folder, launches=launches))


def test_some_studies_do_their_launches_once(tmp_path: Path) -> None:
    """As pilots, what compares nothing, and trainings to a target."""
    with pytest.raises(UsageError, match=r"^--launches 7 must be even: .*; use 6 or 8$"):
        opened(tmp_path, {}, 7)
    with pytest.raises(UsageError, match=r"^--launches 12 is more than max_launches=10, .* = 12$"):
        opened(tmp_path, {}, 12)
    assert (opened(tmp_path, {}).looks, opened(tmp_path, {}).most) == (True, 10)
    assert not opened(tmp_path, {}, 6).looks  # the user has decided
    for changes in (
        {"launches": "launches = 2"},
        {"cells": 'cells = ["single", "ddp/mpi"]'},
        {"windows": "windows = 2\nepochs = 3\ntarget = 0.9"},
    ):
        work = opened(tmp_path, changes)
        assert (work.looks, work.most) == (False, work.launches)


def looks(out: str) -> list[str]:
    return [line for line in out.splitlines() if " launches; " in line or "launches of" in line]


def test_a_study_goes_on_until_it_is_settled(tmp_path: Path) -> None:
    cli = Cli(tmp_path, text=ONE_CURVE, **PAIR)
    cli.complete(launches=4)
    code, out, err = cli("run")
    assert (code, err) == (0, "")
    (line,) = looks(out)
    assert re.fullmatch("6 launches; Equal within 2 %.*; ends: settled", line)
    assert out.splitlines()[-2:] == ["small: 12 runs: 12 ok", cli.report()]
    # nothing is added to what is settled
    code, out, _ = cli("run", "--require-settled")
    assert (code, out.splitlines()) == (0, [line, "12 runs: 12 ok; nothing to do", cli.report()])


def test_a_study_that_is_not_settled_goes_on_by_twos_to_its_end(tmp_path: Path) -> None:
    """An hour's budget lasts: a launch is expected to take a third of one, and takes less."""
    changes = {**PAIR, "launches": f"expected_run_s = 600\n{PAIR['launches']}"}
    cli = Cli(tmp_path, text=ONE_CURVE, **changes)
    cli.complete(6, noisy)
    code, out, _ = cli("run", "--budget", "1h", behaviours={0: "noisy", 1: "noisy"})
    assert code == 0
    assert [line.partition(";")[0] for line in looks(out)] == [f"{n} launches" for n in (6, 8, 10)]
    assert all("Not settled: " in line for line in looks(out))
    assert looks(out)[-1].endswith("; ends: all 10 launches are done")
    jobs = [json.loads(line) for line in (cli.folder / "jobs.jsonl").read_text().splitlines()]
    assert [(job["launches"], job["runs"]) for job in jobs] == [(8, 4), (10, 4)]
    logs = [*(cli.folder / "runs").glob("launch0[6-9]*.jsonl")]
    # of one command, whatever its waves
    assert (len(logs), len({read_run(log).allocation for log in logs})) == (8, 1)
    assert cli("run", "--require-settled")[0] == 3


def test_the_first_run_draws_the_seed_of_a_study_without_one(tmp_path: Path) -> None:
    study = StudyOptions(study=str(write(tmp_path, seed="")), results=tmp_path / "results")
    shown = open_work(study)
    assert shown.study.seed == 0
    first, other = (open_work(study, locked=True) for _ in range(2))
    assert first.study.seed != other.study.seed  # but for one in two thousand million
    first.folder.path.mkdir(parents=True)
    first.folder.keep_study(first.text)
    # more launches than planned are of the same study
    for options in (study, study.model_copy(update={"launches": 4})):
        later = open_work(options)
        assert later.study.seed == first.study.seed
        found = {status.run.config.study_sha256 for status in later.statuses}
        assert found == {first.study.sha256}
    given = open_work(StudyOptions(study=str(write(tmp_path)), results=tmp_path))
    assert (given.study.seed, given.text) == (7, Path(study.study).read_text())
