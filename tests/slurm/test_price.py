"""What a study costs: node-hours by hand, and times from finished runs."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.record import append_event
from slurm.cost import lines, run_seconds
from slurm.session import StudyOptions, Work, open_work
from tests.slurm.stand_in import complete
from tests.slurm.studies import SMALL, write

SIX = SMALL.replace("launches = 2", "launches = 6")


def opened(folder: Path, text: str, launches: int | None = None) -> Work:
    study = write(folder, text.replace("horovod/gloo", "horovod/mpi"))
    return open_work(
        StudyOptions(study=str(study), site="testcluster", results=folder, launches=launches)
    )


def test_the_price_is_that_of_the_first_look_and_of_the_last(tmp_path: Path) -> None:
    smoke = lines(
        open_work(StudyOptions(study="smoke", site="testcluster", results=tmp_path, launches=2))
    )
    # a launch has 5 runs on one node and 2 on two, of 45 s each, and 60 s to start
    hours = 2 * (1 * (60 + 5 * 45) + 2 * (60 + 2 * 45)) / 3600
    assert smoke == [
        "site 'testcluster': verified on 2026-11-21",
        "    1 node(s):   2 jobs,   10 runs, at most 20 min each, about 0.2 node-h",
        "    2 node(s):   2 jobs,    4 runs, at most 15 min each, about 0.2 node-h",
        f"4 jobs, about {hours:.1f} node-h, at most 1.7 node-h (45 s a run assumed)",
        f"2 launches = {hours:.1f} node-h; fewer than 6 launches settle nothing",
    ]
    six = lines(opened(tmp_path, SIX))
    assert six[-1] == "6 launches = 0.3 node-h; at most 20 = 0.9 node-h"
    assert "at most" not in lines(opened(tmp_path, SIX, launches=8))[-1]


def test_the_price_learns_from_finished_runs_and_says_so(tmp_path: Path) -> None:
    """A pilot of four runs changes the study's next price: by their ranks, else by all of them."""
    asked = StudyOptions(study="smoke", site="testcluster", results=tmp_path)
    of_ranks: dict[int, list[int]] = {}
    for status, wall_s in zip(open_work(asked).statuses, (30, 40, 42, 44), strict=False):
        complete(status.run.config)
        how = {"code": 0, "timed_out": False, "interrupted": False, "said": [], "oom_kills": 0}
        append_event(status.run.log, "exit", limit_s=300, wall_s=wall_s, **how)
        of_ranks.setdefault(status.run.config.world_size, []).append(wall_s)
    again = open_work(asked)
    assert lines(again)[-2].endswith("(run time 41 s measured in 4 runs)")
    seconds, _ = run_seconds(again.study, again.statuses)
    assert seconds == {0: 41} | {n: statistics.median(walls) for n, walls in of_ranks.items()}
