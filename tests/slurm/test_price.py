"""What a study costs and what it buys: node-hours by hand, half-widths against a table, noise from
finished pairs.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.config import UsageError
from bench.record import append_event
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import Run, plan
from bench.study.power import blocks_for_half_width, half_width, half_width_range
from bench.study.status import look
from slurm import reach
from slurm.cost import (
    ASSUMED_NOISE,
    Noise,
    Timed,
    lines,
    node_hours,
    noise,
    paired_sd,
    precision,
    run_times,
    table,
)
from slurm.directives import Request
from slurm.fit import fit, jobs
from slurm.load import find_study, read_site
from slurm.session import Asked, open_work
from tests.slurm.stand_in import complete
from tests.slurm.studies import ROOT, SMALL, small, write


def smoke() -> tuple[Study, list[Run]]:
    source = find_study("smoke")
    study = fit(read_study(source), read_site("testcluster"), (), source)
    return study, [run for block in plan(study, 2, Path("runs")) for run in block]


def test_node_hours_are_jobs_times_nodes_times_time() -> None:
    study, runs = smoke()
    site = read_site("testcluster")
    made = jobs(runs, site)
    # 5 runs on one node and 2 on two, with two calibrations each of 45 s, and 60 s to start
    expected = 2 * (1 * (60 + 7 * 45) + 2 * (60 + 4 * 45)) / 3600
    assert node_hours(made, run_times(study, [], [])) == pytest.approx(expected)
    assert table(made, study, Request(site), run_times(study, [], [])) == [
        "    1 node(s):   2 jobs,   10 runs, at most 20 min each, about 0.2 node-h",
        "    2 node(s):   2 jobs,    4 runs, at most 15 min each, about 0.3 node-h",
        "4 jobs, about 0.5 node-h, at most 1.7 node-h (45 s a run assumed)",
    ]


def test_the_half_width_is_that_of_a_t_interval() -> None:
    # t(0.975, 7) = 2.3646
    assert half_width(0.01, 8) == pytest.approx(math.expm1(2.3646 * 0.01 / math.sqrt(8)), rel=1e-4)
    assert half_width(0.01, 1) is None
    needed = blocks_for_half_width(0.03, 0.02)
    assert needed is not None
    enough, one_less = half_width(0.03, needed), half_width(0.03, needed - 1)
    assert enough is not None
    assert one_less is not None
    assert enough <= 0.02 < one_less


def test_the_price_says_what_it_buys() -> None:
    line = precision(8, 31.2, Noise(0.011, "assumed"), 0.02)
    assert (
        line == "8 blocks = 31 node-h, ±0.6 to 1.2 % (four studies of five) on each ratio (assumed)"
    )
    line = precision(8, 31.2, Noise(0.03, "x"), 0.02)
    assert line.endswith(" on each ratio (x); the margin of 2 % needs 12 blocks")
    few = precision(3, 2.0, Noise(0.01, "x"), 0.02)
    assert few == "3 blocks = 2.0 node-h; fewer than 6 blocks give no verdict"
    assert "±" not in precision(1, 2.0, Noise(0.01, "x"), 0.02)


@pytest.mark.parametrize("blocks", [6, 8, 12])
def test_four_studies_of_five_end_within_the_promise(blocks: int) -> None:
    """Half-widths of simulated studies; of one number as promise, within 30 %, 65 % at 6 blocks."""
    sd = np.random.default_rng(blocks).normal(0, 0.05, (1000, blocks)).std(axis=1, ddof=1)
    low, high = half_width_range(0.05, blocks) or (0, 0)
    found = [low <= (half_width(one, blocks) or 0) <= high for one in sd]
    assert np.mean(found) == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 1000))


def test_a_study_that_will_hardly_end_in_a_verdict_is_refused(tmp_path: Path) -> None:
    """Up to 20 blocks at 5 %: power .2 for the margin of 2 %; 8 of 1 %: certain."""
    asked = Asked("local", "local", tmp_path)
    assert reach.hopeless(open_work(asked), None) == ""  # nothing is measured, so nothing is known
    with pytest.raises(UsageError, match="in 20 % of such studies; 74 blocks would do in 80 %"):
        reach.check(open_work(asked), 0.05)
    assert reach.hopeless(open_work(asked), 0.01) == ""
    assert reach.hopeless(open_work(replace(asked, blocks=60)), 0.05) == ""
    assert reach.hopeless(open_work(replace(asked, blocks=2)), 0.05) == ""  # a pilot says nothing
    assert open_work(replace(asked, no_verdict=True)).facts["no_verdict"]
    with (work := open_work(replace(asked, no_verdict=True))).folder.lock() as lock:
        reach.check(work, 0.05)
        work.folder.record_job(lock, None, **work.facts)
    assert reach.hopeless(open_work(asked), 0.05) == ""  # begun: no more than was asked for
    assert reach.hopeless(open_work(replace(asked, blocks=8)), 0.05)
    # a study of two blocks plans no look; more may be asked for all the same
    text = SMALL.replace("horovod/gloo", "horovod/mpi")
    planned = replace(asked, study=str(write(tmp_path, text)), blocks=8)
    assert "20 blocks will hardly" in reach.hopeless(open_work(planned), 0.05)


def test_noise_comes_from_pairs_of_a_block(tmp_path: Path) -> None:
    study = small(tmp_path, cells='cells = ["ddp/mpi", "horovod/mpi"]')
    runs = [run for block in plan(study, 3, tmp_path) for run in block]
    point = {"w2-b8": (1.10, 1.12, 1.08), "w2-b4": (0.9, 0.9, 0.9)}
    rates = []
    for run in runs:
        ratios = next((r for mark, r in point.items() if run.point.name.endswith(mark)), None)
        if ratios is None:
            continue
        assert run.config.block is not None
        pace = 100.0 * (run.config.block + 1)  # blocks differ far more than pairs
        faster = ratios[run.config.block] if run.config.backend == "horovod" else 1.0
        rates.append((run, pace * faster))
    logs = [math.log(r) for r in point["w2-b8"]]
    mean = sum(logs) / 3
    measured = paired_sd(rates, study.pairs)
    assert measured is not None
    # pooled with a point without noise
    assert measured[0] == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in logs) / 4))
    assert measured[1] == 3
    assert paired_sd(rates[:1], study.pairs) is None


def test_noise_is_of_pairs_of_one_variant(tmp_path: Path) -> None:
    text = SMALL + '[variants.slow]\n[variants.fast]\nprecision = "bf16-mixed"\n'
    study = read_study(write(tmp_path, text.replace('"horovod/gloo"', '"horovod/mpi"')))
    planned = [run for block in plan(study, 2, tmp_path) for run in block]
    runs = [run for run in planned if run.config.world_size == 2]
    rates = [(run, 200.0 if run.point.variant == "fast" else 100.0) for run in runs]
    measured = paired_sd(rates, study.pairs)
    assert measured == (0.0, 2)


def test_noise_is_stated_where_nothing_is_measured(tmp_path: Path) -> None:
    study = small(tmp_path)
    runs = plan(study, 1, tmp_path / "runs")[0]
    complete(runs[0].config)
    statuses = [look(run, False) for run in runs]
    assert noise(statuses, study.pairs, None).sd == ASSUMED_NOISE
    default, of_site = noise(statuses, study.pairs, None), noise(statuses, study.pairs, None, 0.02)
    assert default.source.startswith("a paired sd of 5.8 % assumed, as on shared machines; ")
    assert of_site.source.startswith("a paired sd of 2 % assumed, by the site file; ")
    assert noise(statuses, study.pairs, 0.03, 0.02) == Noise(0.03, "a paired sd of 3 % assumed")


def test_the_assumed_noise_is_what_shared_machines_have_shown() -> None:
    """Pooled over every comparison of real training that has enough blocks for a verdict."""
    squares, freedom = 0.0, 0
    studies = ("local", "local-transports", "precision", "exposed", "overlap", "handwritten")
    for name in studies:
        summary = json.loads((ROOT / "results" / name / "summary.json").read_text())
        for row in summary["comparisons"]:
            squares += float(np.log(row["ratios"]).var()) * row["n"]
            freedom += row["n"] - 1
    assert freedom >= 50
    assert pytest.approx(math.sqrt(squares / freedom), rel=0.05) == ASSUMED_NOISE


def test_a_run_takes_what_runs_of_its_point_took_else_of_its_ranks_else_of_all() -> None:
    study, runs = smoke()
    wide = [run.config for run in runs if run.config.world_size == 2]
    first = next(config for config in wide if config.backend == "ddp")
    other = next(config for config in wide if config.backend == "horovod")
    known = [Timed(first, wall_s) for wall_s in (10, 20, 60)] + [Timed(other, 100)]
    times = run_times(study, [], known)
    assert times.seconds(first) == 20  # the median: one that hung for a while counts as one
    assert times.seconds(other) == 100
    another = first.model_copy(update={"batch_per_rank": 4})
    assert times.seconds(another) == 40  # of 10, 20, 60 and 100
    assert times.seconds(first.model_copy(update={"world_size": 8})) == 40
    assert run_times(study, [], []).seconds(first) == 45


def test_the_price_learns_from_finished_runs_and_says_so(tmp_path: Path) -> None:
    """A pilot of four runs at a site changes the next price there, and none elsewhere."""
    pilot = open_work(Asked("smoke", "testcluster", tmp_path))
    assert "(45 s a run assumed)" in "\n".join(lines(pilot, None))
    folder = pilot.folder
    with folder.lock() as lock:
        facts = {"site": "testcluster", "blocks": 2, "runs": 4, "job": "n001-b00"}
        folder.record_job(lock, None, **facts, slurm_id="7")
    done = [status.run for status in pilot.statuses[:4]]
    for run, wall_s in zip(done, (30, 40, 42, 44), strict=True):
        complete(run.config)
        how = {"code": 0, "timed_out": False, "interrupted": False, "said": [], "oom_kills": 0}
        append_event(run.log, "exit", limit_s=300, wall_s=wall_s, **how)
    again = lines(open_work(Asked("smoke", "testcluster", tmp_path)), None)
    assert again[-2].endswith("(run time 41 s measured in 4 runs)")
    other = lines(open_work(Asked("demo", "testcluster", tmp_path)), None)
    assert other[-2].endswith("(run time 41 s measured in 4 runs of smoke, which is other work)")
    elsewhere = lines(open_work(Asked("demo", "tests/cluster/demo.toml", tmp_path)), None)
    assert elsewhere[-2].endswith("s a run assumed)")
