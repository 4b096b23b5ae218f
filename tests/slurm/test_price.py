"""What a study costs and what it buys: node-hours by hand, half-widths against a table, noise from
finished pairs.
"""

import json
import math
from pathlib import Path

import pytest

from bench.record import append_event
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from bench.study.status import look
from slurm.cost import (
    ASSUMED_NOISE_APART,
    ASSUMED_NOISE_BY_TURNS,
    Noise,
    TimedRun,
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
from slurm.session import StudyOptions, open_work
from tests.slurm.stand_in import complete
from tests.slurm.studies import ROOT, SMALL, small, write

BY_TURNS = (
    *("local", "local-another-boot", "local-transports", "handwritten"),
    *("precision", "aa", "injected"),
)


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
    assert node_hours(made, run_times(study, [], [])) == pytest.approx(expected)
    assert table(made, study, Request(site), run_times(study, [], [])) == [
        "    1 node(s):   2 jobs,   10 runs, at most 20 min each, about 0.2 node-h",
        "    2 node(s):   2 jobs,    4 runs, at most 15 min each, about 0.2 node-h",
        "4 jobs, about 0.3 node-h, at most 1.7 node-h (45 s a run assumed)",
    ]


def priced(folder: Path, text: str, noise: Noise, blocks: int | None = None) -> str:
    study = write(folder, text.replace("horovod/gloo", "horovod/mpi"))
    work = open_work(
        StudyOptions(study=str(study), site="testcluster", results=folder, blocks=blocks)
    )
    return precision(work, 12.0, noise)


def test_the_price_is_that_of_the_first_look_and_of_the_last(tmp_path: Path) -> None:
    """Half-widths at the level of eight looks, .0131: t(5) = 3.72 and t(19) = 2.73."""
    text = SMALL.replace("blocks = 2", "blocks = 6")
    assert priced(tmp_path, text, Noise(0.011, "x")) == (
        "6 launches = 12 node-h, about ±1.7 %; at most 20 = 40 node-h, ±0.7 % on each ratio (x)"
    )
    noisy = priced(tmp_path, text, Noise(0.058, "x"))
    assert noisy.endswith(
        "±3.6 % on each ratio (x); equality within 2 % will hardly be shown: widen it"
    )
    eight = priced(tmp_path, text, Noise(0.011, "x"), blocks=8)
    assert eight == "8 launches = 12 node-h, about ±1.3 % on each ratio (x)"  # and no more
    few = priced(tmp_path, SMALL, Noise(0.011, "x"))
    assert few == "2 launches = 12 node-h; fewer than 6 launches give no verdict"


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
    apart = noise(statuses, study, None)
    study = study.model_copy(update={"turns": True})
    default, of_site = noise(statuses, study, None), noise(statuses, study, None, 0.02)
    assert default.sd == ASSUMED_NOISE_BY_TURNS
    assert noise(statuses, study, None, None, apart=True).sd == ASSUMED_NOISE_APART
    where = "as by turns on shared machines; "
    assert default.source.startswith(f"a paired sd of 1.1 % assumed, {where}")
    assert apart.sd == ASSUMED_NOISE_APART
    where = "as by separate launches on shared machines; "
    assert apart.source.startswith(f"a paired sd of 4.5 % assumed, {where}")
    assert of_site.source.startswith("a paired sd of 2 % assumed, by the site file; ")
    assert noise(statuses, study, 0.03, 0.02) == Noise(0.03, "a paired sd of 3 % assumed")


@pytest.mark.parametrize(
    ("setup", "form", "sd"),
    [
        ("", "turns", ASSUMED_NOISE_BY_TURNS),
        ('[setup]\ncontainer = ["env"]\n', "separate launches", ASSUMED_NOISE_APART),
    ],
)
def test_a_site_that_cannot_take_turns_is_priced_as_one(
    tmp_path: Path, setup: str, form: str, sd: float
) -> None:
    local = (ROOT / "slurm/sites/local.toml").read_text()
    (tmp_path / "mine.toml").write_text(local.replace('"local"', '"mine"', 1) + f"\n{setup}")
    text = SMALL.replace("turns = false\n", "").replace("blocks = 2", "blocks = 6")
    study = write(tmp_path, text.replace("horovod/gloo", "horovod/mpi"))
    asked = StudyOptions(
        study=str(study), site=str(tmp_path / "mine.toml"), results=tmp_path / "results"
    )
    *_, price = lines(open_work(asked), None)
    assert f"a paired sd of {100 * sd:g} % assumed, as by {form} on shared machines" in price


@pytest.mark.parametrize(
    ("assumed", "studies"),
    [
        (ASSUMED_NOISE_BY_TURNS, BY_TURNS),
        (ASSUMED_NOISE_APART, ("exposed", "overlap")),
    ],
)
def test_the_assumed_noise_is_what_shared_machines_have_shown(
    assumed: float, studies: tuple[str, ...]
) -> None:
    """Pooled over every comparison of real training that has enough launches for a verdict."""
    squares, freedom = 0.0, 0
    for name in studies:
        summary = json.loads((ROOT / "results" / name / "summary.json").read_text())
        for row in summary["comparisons"]:
            free = row["n"] - 2  # who came first was fitted as well
            squares += row["sd_log"] ** 2 * free
            freedom += free
    assert freedom >= 30
    assert pytest.approx(math.sqrt(squares / freedom), rel=0.05) == assumed


def test_a_run_takes_what_runs_of_its_point_took_else_of_its_ranks_else_of_all() -> None:
    study, runs = smoke()
    wide = [run.config for run in runs if run.config.world_size == 2]
    first = next(config for config in wide if config.backend == "ddp")
    other = next(config for config in wide if config.backend == "horovod")
    known = [TimedRun(first, wall_s) for wall_s in (10, 20, 60)] + [TimedRun(other, 100)]
    times = run_times(study, [], known)
    assert times.seconds(first) == 20  # the median: one that hung for a while counts as one
    assert times.seconds(other) == 100
    another = first.model_copy(update={"batch_per_rank": 4})
    assert times.seconds(another) == 40  # of 10, 20, 60 and 100
    assert times.seconds(first.model_copy(update={"world_size": 8})) == 40
    assert run_times(study, [], []).seconds(first) == 45


def test_the_price_learns_from_finished_runs_and_says_so(tmp_path: Path) -> None:
    """A pilot of four runs at a site changes the next price there, and none elsewhere."""
    pilot = open_work(StudyOptions(study="smoke", site="testcluster", results=tmp_path))
    assert "(45 s a run assumed)" in "\n".join(lines(pilot, None))
    folder = pilot.folder
    with folder.lock() as lock:
        facts = {"site": "testcluster", "blocks": 2, "runs": 4, "job": "n001-b00"}
        folder.record_job(lock, Path("job-001.sh"), **facts, slurm_id="7")
    done = [status.run for status in pilot.statuses[:4]]
    for run, wall_s in zip(done, (30, 40, 42, 44), strict=True):
        complete(run.config)
        how = {"code": 0, "timed_out": False, "interrupted": False, "said": [], "oom_kills": 0}
        append_event(run.log, "exit", limit_s=300, wall_s=wall_s, **how)
    again = lines(
        open_work(StudyOptions(study="smoke", site="testcluster", results=tmp_path)), None
    )
    assert again[-2].endswith("(run time 41 s measured in 4 runs)")
    other = lines(
        open_work(StudyOptions(study="emulated-cluster", site="testcluster", results=tmp_path)),
        None,
    )
    assert other[-2].endswith("(run time 41 s measured in 4 runs of smoke, which is other work)")
    elsewhere = lines(
        open_work(
            StudyOptions(
                study="emulated-cluster", site="tests/cluster/shaped.toml", results=tmp_path
            )
        ),
        None,
    )
    assert elsewhere[-2].endswith("s a run assumed)")
