"""Runs that cannot end in time are told before they are submitted, at a speed that has a source."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from bench.record import read_run
from bench.record.archive import logs_in
from slurm import speed
from slurm.cost import lines
from slurm.session import StudyOptions, Work, open_work
from tests.slurm.calls import Calls
from tests.slurm.stand_in import complete
from tests.slurm.studies import ROOT, changed, write

CELLS = {"cells": 'cells = ["single", "ddp/mpi"]'}
CORE = "26.4 images/s, 1 times 26.4 of a core in results/local"


def work(folder: Path, limit_s: int = 30, **site: object) -> Work:
    """The small study: 10 + 2 x 5 steps of 8 images on a rank, or of 4 on two (strong)."""
    limit = {"time_limit_s": f"time_limit_s = {limit_s}"}
    found = open_work(
        StudyOptions(study=str(write(folder, **CELLS, **limit)), results=folder / "results")
    )
    return replace(found, request=replace(found.request, site=changed(found.site, **site)))


def test_the_shipped_speed_is_that_of_the_shipped_runs() -> None:
    logs = [log for log in logs_in(ROOT / "results/local/runs") if "-single-" in log.name]
    runs = [run for run in map(read_run, logs) if run.state == "ok"]
    configs = [run.config for run in runs if run.config]
    assert {(c.model, c.precision, c.image_size, c.threads) for c in configs} == {
        ("resnet50", "float32", 32, 1)
    }
    measured = statistics.median(run.images_per_s for run in runs)
    assert pytest.approx(measured, rel=0.1) == speed.OF_A_CORE


def test_runs_that_will_hardly_end_are_counted_and_the_longest_named(tmp_path: Path) -> None:
    """8 images in 20 steps at 26.4: 6 s; those of 4 take half."""
    assert speed.too_slow(work(tmp_path)) == ""
    line = speed.too_slow(work(tmp_path, limit_s=5))
    assert line.startswith("warning: 6 of 8 runs will hardly end within time_limit_s=5: a rank ")
    assert f"about 6 s for 20 steps of 8 images at {CORE}" in line
    assert line in lines(work(tmp_path, limit_s=5), None)


def test_a_speed_of_the_site_file_wins_and_a_measured_one_before_it(tmp_path: Path) -> None:
    """The stand-in's step of 8 images takes .25 s: 32 images/s."""
    stated = work(tmp_path, images_per_s=1.0)
    assert "at 1 images/s, as the site file says; use" in speed.too_slow(stated)
    complete(stated.statuses[0].run.config)
    assert speed.too_slow(work(tmp_path, images_per_s=1.0)) == ""
    assert "images/s, measured there in 1 run; use" in speed.too_slow(work(tmp_path, limit_s=1))


def test_a_dry_run_tells_what_cannot_end(call: Calls, tmp_path: Path) -> None:
    site = (ROOT / "slurm/sites/testcluster.toml").read_text().replace('"testcluster"', '"slow"')
    (tmp_path / "slow.toml").write_text(f"images_per_s = 0.1\n{site}")
    words = ["--site", str(tmp_path / "slow.toml"), "--results", str(tmp_path / "r"), "--dry-run"]
    code, out, err = call("submit", "smoke", *words)
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if line.startswith("warning: "))
    assert (
        "14 of 14 runs will hardly end within time_limit_s=180: a rank needs about 23 min" in line
    )
