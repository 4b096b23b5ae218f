"""What a study costs: node-hours by hand, and times from finished runs."""

import statistics
from pathlib import Path

import pytest

from bench.record import append_event
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from slurm.cost import lines, node_hours, run_times, table
from slurm.directives import Request
from slurm.fit import fit, jobs
from slurm.load import find_study, read_site
from slurm.session import StudyOptions, Work, open_work
from tests.slurm.stand_in import complete
from tests.slurm.studies import SMALL, write


def smoke() -> tuple[Study, list[PlannedRun]]:
    source = find_study("smoke")
    study = fit(read_study(source), read_site("testcluster"), (), source)
    return study, [run for block in plan(study, 2, Path("runs")) for run in block]


def test_node_hours_are_jobs_times_nodes_times_time() -> None:
    study, runs = smoke()
    site = read_site("testcluster")
    made = jobs(runs, site)
    # 5 runs on one node and 2 on two, of 45 s each, and 60 s to start
    expected = 2 * (1 * (60 + 5 * 45) + 2 * (60 + 2 * 45)) / 3600
    assert node_hours(made, run_times(study, [])) == pytest.approx(expected)
    assert table(made, study, Request(site), run_times(study, [])) == [
        "    1 node(s):   2 jobs,   10 runs, at most 20 min each, about 0.2 node-h",
        "    2 node(s):   2 jobs,    4 runs, at most 15 min each, about 0.2 node-h",
        "4 jobs, about 0.3 node-h, at most 1.7 node-h (45 s a run assumed)",
    ]


def opened(folder: Path, text: str, blocks: int | None = None) -> Work:
    study = write(folder, text.replace("horovod/gloo", "horovod/mpi"))
    return open_work(
        StudyOptions(study=str(study), site="testcluster", results=folder, blocks=blocks)
    )


def test_the_price_is_that_of_the_first_look_and_of_the_last(tmp_path: Path) -> None:
    text = SMALL.replace("blocks = 2", "blocks = 6")
    whole = opened(tmp_path, text)
    hours = node_hours(whole.jobs, run_times(whole.study, whole.statuses))
    first, most = (f"{h:.0f}" if h >= 10 else f"{h:.1f}" for h in (hours, hours / 6 * 20))
    assert lines(whole)[-1] == f"6 launches = {first} node-h; at most 20 = {most} node-h"
    assert "at most" not in lines(opened(tmp_path, text, blocks=8))[-1]
    assert lines(opened(tmp_path, SMALL))[-1].endswith("; fewer than 6 launches give no verdict")


def test_the_price_learns_from_finished_runs_and_says_so(tmp_path: Path) -> None:
    """A pilot of four runs changes the study's next price: by their ranks, else by all of them."""
    asked = StudyOptions(study="smoke", site="testcluster", results=tmp_path)
    pilot = open_work(asked)
    assert lines(pilot)[0] == "site 'testcluster': last run there on 2026-11-21"
    assert "(45 s a run assumed)" in "\n".join(lines(pilot))
    of_ranks: dict[int, list[int]] = {99: [30, 40, 42, 44]}
    for status, wall_s in zip(pilot.statuses, (30, 40, 42, 44), strict=False):
        config = status.run.config
        complete(config)
        how = {"code": 0, "timed_out": False, "interrupted": False, "said": [], "oom_kills": 0}
        append_event(status.run.log, "exit", limit_s=300, wall_s=wall_s, **how)
        of_ranks.setdefault(config.world_size, []).append(wall_s)
    again = open_work(asked)
    assert lines(again)[-2].endswith("(run time 41 s measured in 4 runs)")
    times = run_times(again.study, again.statuses)
    for ranks, walls in of_ranks.items():
        asked_of = config.model_copy(update={"world_size": ranks})
        assert times.seconds(asked_of) == statistics.median(walls)
