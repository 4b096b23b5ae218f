"""A study's first run draws its seed; what is left of a pair is done again in one session."""

from __future__ import annotations

from pathlib import Path

from bench.record import read_run
from bench.study.files import read_study
from bench.study.plan import plan
from slurm.session import StudyOptions, open_work
from tests.slurm.studies import write
from tests.slurm.test_cli import Cli

PAIR = {
    "cells": 'cells = ["ddp/mpi", "horovod/mpi"]',
    "world_sizes": "world_sizes = [1]",  # two runs a launch
    "seed": "",
}


def asked(folder: Path, **changes: str) -> StudyOptions:
    return StudyOptions(study=str(write(folder, **{**PAIR, **changes})), results=folder / "results")


def test_the_first_run_draws_the_seed_of_a_study_without_one(tmp_path: Path) -> None:
    study = asked(tmp_path)
    shown = open_work(study)
    assert (shown.study.seed, "a preview" in shown.text) == (0, True)
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
    given = open_work(asked(tmp_path, seed="seed = 7").model_copy(update={"results": tmp_path}))
    assert (given.study.seed, given.text) == (7, Path(study.study).read_text())


def test_what_is_left_of_a_pair_is_done_again_in_one_session(tmp_path: Path) -> None:
    cli = Cli(tmp_path, **PAIR)
    assert cli("run", behaviours={1: "fail"})[0] == 1  # the second run of both launches
    kept = read_study(cli.folder / "study.toml")
    planned = plan(kept, 2, cli.folder / "runs")
    first = {run.log: read_run(run.log).allocation for launch in planned for run in launch}
    assert len(set(first.values())) == 1

    assert cli("run")[0] == 0  # a session of its own: the first runs of both launches too
    later = [[read_run(run.log).allocation for run in launch] for launch in planned]
    assert len({place for launch in later for place in launch}) == 1
    assert later[0][0] not in first.values()
    assert not open_work(StudyOptions(study=str(cli.study_file), results=cli.top / "results")).todo
