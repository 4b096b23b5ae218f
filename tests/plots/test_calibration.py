"""Calibrations with planted answers: slow nodes, drift, efficiency, and what is missing."""

import csv
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from plots.__main__ import main
from plots.analyse import comparability
from plots.analyse.nodes import Calibrated, change_limit
from plots.analyse.runs import load
from plots.analyse.study import Analysis, analyse
from plots.read import calibrations
from plots.report import figures, markdown
from tests.plots import logs

ONE = {"single": (1, 1.0), "ddp/mpi": (1, 1.05)}
TWO = {"ddp/mpi": (2, 1.10), "horovod/mpi": (2, 1.25)}


def analysed(folder: Path) -> Analysis:
    return analyse(load(folder), calibrations.read(folder, comparability.facts))


def calibrated(folder: Path) -> Calibrated:
    found = analysed(folder).calibrated
    assert found is not None
    return found


def one_job(folder: Path, nodes: Mapping[str, float]) -> Calibrated:
    logs.in_job(folder, logs.Job("77", 0, nodes), ONE)
    return calibrated(folder)


def test_a_slow_node_is_named_and_scored(tmp_path: Path) -> None:
    """By hand: logs 0, -.00995, .01005, -.09531; median -.004975, MAD .0100, score -6.09."""
    c = one_job(tmp_path, {"r1": 1.0, "r2": 1.01, "r3": 0.99, "r4": 1.1})
    assert c.slow == ["r4"]
    first = c.nodes[0]
    assert (first.node, first.calibrations) == ("r4", 2)
    assert first.images_per_s == pytest.approx(160 / 1.1)
    assert first.relative == pytest.approx(math.sqrt(1.01) / 1.1)
    assert first.score == pytest.approx(-6.09, abs=0.01)
    assert [n.node for n in c.nodes] == ["r4", "r2", "r1", "r3"]


@pytest.mark.parametrize(
    "nodes",
    [
        {"r1": 1.0, "r2": 1.0001, "r3": 1.0002, "r4": 1.03},  # an outlier without an effect
        {
            "r1": 0.94,
            "r2": 0.97,
            "r3": 1.0,
            "r4": 1.04,
            "r5": 1.09,
        },  # an effect within the spread of all
        {"r1": 1.0, "r2": 1.0, "r3": 1.5},  # too few to know what is usual
        {"r1": 1.0},
    ],
)
def test_a_node_that_is_only_different_is_not_slow(
    tmp_path: Path, nodes: Mapping[str, float]
) -> None:
    assert one_job(tmp_path, nodes).slow == []


def test_where_most_nodes_agree_to_the_last_digit_the_floor_decides(tmp_path: Path) -> None:
    assert one_job(tmp_path, {"r1": 1.0, "r2": 1.0, "r3": 1.0, "r4": 1.04, "r5": 1.06}).slow == [
        "r5"
    ]


def test_a_node_that_was_slow_once_is_not_slow(tmp_path: Path) -> None:
    usual = {"r1": 1.0, "r2": 1.01, "r3": 0.99, "r5": 1.02}
    logs.in_job(tmp_path, logs.Job("1", 0, {**usual, "r4": 1.3}), ONE)
    logs.in_job(tmp_path, logs.Job("2", 1, {**usual, "r4": 1.0}), ONE)
    c = calibrated(tmp_path)
    assert c.nodes[0].node == "r4"
    assert c.nodes[0].score is not None
    assert c.nodes[0].score < -3.5
    assert c.nodes[0].relative < 0.95
    assert c.slow == []
    for job in ("3", "4"):
        logs.in_job(tmp_path, logs.Job(job, int(job), {**usual, "r4": 1.3}), ONE)
    assert calibrated(tmp_path).slow == ["r4"]


def many(folder: Path, drift: float = 1.0, seed: int = 0) -> Path:
    """Six jobs of three nodes each, of eight in all, with 1 % of noise in every calibration."""
    noise = np.random.default_rng(seed)
    names = [f"r{i}" for i in range(1, 9)]
    for k in range(6):
        chosen = noise.choice(names, 3, replace=False)
        logs.in_job(
            folder,
            logs.Job(str(100 + k), k, dict.fromkeys(map(str, chosen), 1.0), drift),
            ONE,
            noise,
            0.01,
        )
    return folder


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_planted_nothing_is_found(tmp_path: Path, seed: int) -> None:
    c = calibrated(many(tmp_path, seed=seed))
    assert (c.slow, c.drifts, [d for d in c.jobs if d.warn]) == ([], False, [])
    assert c.drift is not None
    assert c.drift.n == 6


def test_a_planted_drift_is_warned_of(tmp_path: Path) -> None:
    c = calibrated(many(tmp_path, drift=1.04))
    assert c.drift is not None
    assert c.drift.value == pytest.approx(1 / 1.04, rel=0.01)
    assert c.drifts
    assert main(["report", str(tmp_path)]) == 0
    assert "**Warning:** Drift inside jobs, images/s at the end over the start: 0.9" in logs.page(
        tmp_path
    )


def test_the_interval_of_a_drift_is_over_jobs(tmp_path: Path) -> None:
    """By hand: mean -.0197546, sd .0138653; t(.975, 1) = 12.7062, half-width .1245745."""
    for job, drift in (("1", 1.01), ("2", 1.03)):
        logs.in_job(tmp_path, logs.Job(job, int(job), {"r1": 1.0, "r2": 1.2}, drift), ONE)
    c = calibrated(tmp_path)
    assert c.drift is not None
    assert (c.drift.value, c.drift.low, c.drift.high, c.drift.n) == pytest.approx(
        (
            math.exp(-0.0197546),
            math.exp(-0.0197546 - 0.1245745),
            math.exp(-0.0197546 + 0.1245745),
            2,
        ),
        rel=1e-5,
    )
    assert not c.drifts  # the interval holds 1
    assert [(d.nodes, d.warn) for d in c.jobs] == [(2, False)] * 2


def test_one_job_that_changes_is_named(tmp_path: Path) -> None:
    for job, drift in (("1", 1.0), ("2", 1.07)):
        logs.in_job(tmp_path, logs.Job(job, int(job), {"r1": 1.0, "r2": 1.0}, drift), ONE)
    assert [d.allocation for d in calibrated(tmp_path).jobs if d.warn] == ["job 2"]
    assert main(["report", str(tmp_path)]) == 0
    text = logs.page(tmp_path)
    assert (
        "**Warning:** in 1 of 2 jobs a node changed by more than 5.0 %, beyond the noise of the "
        "others (level 5.0 % for each job): job 2: `r1` 0.935." in text
    )


@pytest.mark.parametrize(("nodes", "others"), [(4, 0), (16, 0), (2, 5)])
def test_a_job_without_drift_is_warned_of_in_at_most_five_of_a_hundred(
    nodes: int, others: int
) -> None:
    """Of jobs with a change planted on one node most are; the largest of 16 is large by chance."""
    draws, planted = 2000, 0
    wrong = larger = 0
    for drawn in np.random.default_rng(5).normal(0, 0.02, (draws, others + 1, nodes, 2)):
        job, *rest = (drawn[..., 1] - drawn[..., 0]).tolist()

        def beyond(ratios: list[float], rest: list[list[float]] = rest) -> bool:
            most, *beside = sorted(ratios, key=abs, reverse=True)
            limit = change_limit(beside, rest)
            assert limit is not None
            return abs(most) >= limit

        wrong += beyond(job)
        larger += max(map(abs, job)) > math.log(1.05)
        planted += beyond([job[0] + 0.3, *job[1:]])
    assert wrong / draws < 0.05 + 4 * math.sqrt(0.05 * 0.95 / draws)
    assert nodes < 4 or larger / draws > 0.25, "what a fixed limit of 5 % would say"
    assert planted / draws > (0.7 if (nodes, others) == (4, 0) else 0.9), "of ten times the noise"


def test_where_the_noise_is_not_known_no_job_is_judged() -> None:
    assert change_limit([], []) is None
    assert change_limit([0.0], [[0.1]]) is None
    # by hand: sd .01 of four others around their mean, 3 degrees of freedom; t(.995, 3) = 5.84091
    beside = [0.01 * math.sqrt(0.75) * sign for sign in (1, -1, 1, -1)]
    assert change_limit(beside, []) == pytest.approx(0.0584091, rel=1e-5)


def across(folder: Path) -> Path:
    """Three blocks, jobs on nodes of other speeds; true efficiency at two ranks: 1/1.10."""
    # of the one-node job's node, and of the two-node job's nodes
    speeds = [(1.0, 1.3), (1.2, 1.0), (0.8, 1.1)]
    for block, (alone, both) in enumerate(speeds):
        logs.in_job(folder, logs.Job(f"{block}1", block, {f"a{block}": alone}), ONE)
        logs.in_job(
            folder, logs.Job(f"{block}2", block, {f"b{block}": both, f"c{block}": both}), TWO
        )
    return folder


def test_speeds_of_nodes_cancel_between_blocks(tmp_path: Path) -> None:
    a = analysed(across(tmp_path))
    assert a.calibrated is not None
    same = {(s.point.cell, s.point.world_size): s for s in a.calibrated.scaling}
    e = same["ddp/mpi", 2].efficiency
    assert (e.value, e.low, e.high, e.n) == pytest.approx((1 / 1.1, 1 / 1.1, 1 / 1.1, 3))
    assert same["ddp/mpi", 2].speedup.value == pytest.approx(2 / 1.1)
    assert same["horovod/mpi", 2].efficiency.value == pytest.approx(1 / 1.25)
    assert same["ddp/mpi", 1].efficiency.value == pytest.approx(1 / 1.05)
    base = same["ddp/mpi", 2].baseline_images_per_s
    assert base.value == pytest.approx(160 / (1.3 * 1.0 * 1.1) ** (1 / 3))
    # the other efficiency, against one process on other nodes, is there too: right on average only,
    # and it says so
    (common,) = [
        s
        for s in a.efficiency
        if (s.point.cell, s.point.world_size, s.kind) == ("ddp/mpi", 2, "common")
    ]
    assert not common.paired
    assert common.efficiency.low is not None
    assert common.efficiency.low < 0.75
    assert {n.reason for n in a.not_compared} == {
        "no usable run of horovod/mpi",
        "the baseline was not run, or no run of it is usable",
    }


def test_the_baseline_is_the_mean_time_of_the_points_own_nodes(tmp_path: Path) -> None:
    """The third node takes no part; 1.0 and 1.2 make 1.1, and the point takes 1.2 x 1.1."""
    logs.in_job(tmp_path, logs.Job("7", 0, {"r1": 1.0, "r2": 1.2, "r3": 5.0}), TWO)
    (ddp, _) = calibrated(tmp_path).scaling
    assert ddp.efficiency.value == pytest.approx(1.1 / (1.2 * 1.1))


def test_what_failed_or_is_missing_is_said_and_leaves_its_block_out(tmp_path: Path) -> None:
    nodes = {"r1": 1.0, "r2": 1.0}
    jobs_ = [
        logs.Job("1", 0, nodes),
        logs.Job("2", 1, nodes, fail=[("start", "r2")]),  # the end stands for both
        logs.Job("3", 2, nodes, fail=[("start", "r2"), ("end", "r2")]),
        logs.Job("4", 3, nodes, rounds=("start",)),
        logs.Job("5", 4, nodes, rounds=()),
    ]
    for job in jobs_:
        logs.in_job(tmp_path, job, TWO)
    said = tmp_path / "jobs" / "n002-b03.jsonl"
    said.write_text(
        said.read_text()
        + '{"event": "calibration", "job": "4", "when": "end", "reason": "no time left"}\n'
        '{"event": "cal'
    )
    stray = logs.config("single", 1, 16, 3)
    logs.write(tmp_path / "calibration" / "stray.jsonl", stray, 0.1, provenance=jobs_[3].place(1))
    (tmp_path / "calibration" / "n002-b00-1-0-end-r1.jsonl").unlink()
    c = calibrated(tmp_path)
    assert [(x.allocation, x.when, x.node, x.reason) for x in c.all if not x.usable] == [
        ("job 1", "end", "r1", "its log is not there"),
        ("job 2", "start", "r2", "exit code 0: loss is nan"),
        ("job 3", "start", "r2", "exit code 0: loss is nan"),
        ("job 3", "end", "r2", "exit code 0: loss is nan"),
        ("job 4", "end", "", "no time left"),
        ("job 4", "", "", "its job did not live to record it"),
        ("job 5", "start", "", "not there: the job ended before it, or is still running"),
        ("job 5", "end", "", "not there: the job ended before it, or is still running"),
    ]
    assert [s.efficiency.n for s in c.scaling] == [3, 3]
    assert [m.reason for m in c.missing if "ddp" in m.pair] == [
        "no usable calibration of r2.cluster",
        "no usable calibration at 16 images per step",
    ]
    assert [d.nodes for d in c.jobs] == [1, 1, 1]
    assert main(["report", str(tmp_path)]) == 0
    text = logs.page(tmp_path)
    assert "usable: 10 calibrations, **8 failed or are missing**." in text
    assert "| n002-b01 | job 2 | start | r2 | exit code 0: loss is nan |" in text
    assert "on: no usable calibration" not in text
    rows = list(csv.DictReader((tmp_path / "calibration.csv").read_text().splitlines()))
    assert len(rows) == 18
    assert [float(r["images_per_s"]) for r in rows if r["images_per_s"]] == pytest.approx(
        [160.0] * 10
    )


def test_without_any_calibration_the_runs_still_tell(tmp_path: Path) -> None:
    logs.in_job(tmp_path, logs.Job("5", 0, {"r1": 1.0}, rounds=()), ONE)
    assert main(["report", str(tmp_path)]) == 0
    text = logs.page(tmp_path)
    assert "Drift: not known" in text
    assert "Slow nodes: not judged of 0" in text
    assert "calibration" not in json.loads((tmp_path / "summary.json").read_text())["figures"]


def test_calibrations_of_other_work_are_set_aside(tmp_path: Path) -> None:
    job = logs.Job("1", 0, {"r1": 1.0, "r2": 1.0})
    logs.in_job(tmp_path, job, TWO)
    path = tmp_path / "calibration" / "n002-b00-1-0-end-r2.jsonl"
    path.unlink()
    logs.write(
        path, logs.config("single", 1, 16, 0, model="resnet18"), 0.05, provenance=job.place(1)
    )
    (bad,) = [x for x in calibrated(tmp_path).all if not x.usable]
    assert bad.reason == "work differs from the other calibrations: model: resnet18, resnet50"


def test_a_batch_that_no_calibration_had_has_no_such_efficiency(tmp_path: Path) -> None:
    job = logs.Job("1", 0, {"r1": 1.0, "r2": 1.0})
    logs.in_job(tmp_path, job, TWO)
    strong = logs.config("ddp/mpi", 2, 32, 0, curves=("strong",))
    logs.write(tmp_path / "runs" / "strong.jsonl", strong, 0.2, provenance=job.place(2))
    c = calibrated(tmp_path)
    assert [m.reason for m in c.missing] == ["no usable calibration at 64 images per step"]
    assert {s.curve for s in c.scaling} == {"weak"}


def drawn(folder: Path) -> Sequence[str]:
    names: list[str] = json.loads((folder / "summary.json").read_text())["figures"]
    return names


def test_the_report_shows_nodes_jobs_and_the_list_to_paste(tmp_path: Path) -> None:
    nodes = {"r1": 1.0, "r2": 1.01, "r3": 0.99, "r4": 1.1, "r5": 1.0, "r6": 1.2}
    logs.in_job(tmp_path, logs.Job("77", 0, nodes, restart=1), ONE)
    assert main(["report", str(tmp_path)]) == 0
    text = logs.page(tmp_path)
    assert (
        "**Slow nodes: 2 of 6**: `r6` at 83.7 % of the median node; `r4` at 91.4 % of the median "
        "node" in text
    )
    assert (
        "Keep them out with `--exclude=r4,r6`: an option of sbatch, or `extra = "
        '["--exclude=r4,r6"]` under [access]' in text
    )
    assert "| r6 | 133.3 | 83.7 % |" in text
    assert "| n006-b00 | job 77, restart 1 | 6 | 1.000 |" in text
    assert "calibration" in drawn(tmp_path)
    svg = (tmp_path / "figures" / "calibration.svg").read_text()
    for words in (
        "r6, slow",
        "images/s of one plain process on the node",
        "n = 12 calibrations, 6 nodes, 1 job; 0 failed or missing",
    ):
        assert words in svg
    values = json.loads((tmp_path / "summary.json").read_text())["calibration"]
    assert values["slow_nodes"] == ["r4", "r6"]
    first = values["scaling"][0]
    assert first["baseline_kind"] == "same nodes"
    assert first["baseline_images_per_s"]["value"] == pytest.approx(160)
    printed = f"{first['speedup']['value']:.3f} (n=1, no interval)"
    assert f"| weak | ddp/mpi | 1 | same nodes | {printed} |" in text


def test_nodes_are_judged_and_counted_batch_by_batch(tmp_path: Path) -> None:
    """Two nodes with one batch and two others with another: four nodes, of which none is judged."""
    logs.write(tmp_path / "runs" / "x.jsonl", logs.config("single"), 0.1)
    calibrate(tmp_path, "1", 16, ("r1", "r2"))
    calibrate(tmp_path, "2", 32, ("r3", "r4"))
    assert markdown.calibration(calibrated(tmp_path))[0].startswith("Slow nodes: not judged of 4 (")
    assert "Calibration: not judged below 4 nodes" in title(tmp_path, 16)
    calibrate(tmp_path, "3", 16, ("r5", "r6"))
    assert markdown.calibration(calibrated(tmp_path))[0].startswith(
        "Slow nodes: none of 4, 2 not judged ("
    )
    assert "Calibration: no slow node among 4" in title(tmp_path, 16)
    assert "median and at least 75 % of the calibrations more than 5 % below" in title(tmp_path, 16)


def test_all_nodes_are_counted_though_the_figure_shows_64(tmp_path: Path) -> None:
    logs.write(tmp_path / "runs" / "x.jsonl", logs.config("single"), 0.1)
    calibrate(tmp_path, "1", 16, [f"r{i}" for i in range(70)])
    assert "Calibration: no slow node among 70" in title(tmp_path, 16)


def calibrate(folder: Path, job: str, batch: int, nodes: Sequence[str]) -> None:
    """One at the start of a job on each node, all as fast."""
    (folder / "jobs").mkdir(exist_ok=True)
    said = []
    for node in nodes:
        of, path = logs.Job(job, 0, {node: 1.0}), folder / "calibration" / f"{job}-{node}.jsonl"
        run = logs.config("single", 1, batch, 0, curves=())
        logs.write(path, run, 0.1, provenance=of.place(1))
        said.append(logs.calibrated(of, "start", node, path.name))
    (folder / "jobs" / f"{job}.jsonl").write_text("".join(said))


def title(folder: Path, batch: int) -> str:
    """What the figure of the nodes says around its axes."""
    drawn_ = [
        said(f)
        for name, f in figures.draw(analysed(folder)).items()
        if name.startswith("calibration")
    ]
    (words,) = [text for text in drawn_ if f"; {batch} images per step" in text]
    return words


def said(figure: Figure) -> str:
    texts = [*figure.texts, *(t for ax in figure.axes for t in ax.texts)]
    return " ".join(" ".join(t.get_text() for t in texts).split())


def test_a_study_without_jobs_says_nothing_of_calibration(tmp_path: Path) -> None:
    logs.study(tmp_path, blocks=1)
    assert main(["report", str(tmp_path)]) == 0
    assert "## Calibration" not in logs.page(tmp_path)
    assert not (tmp_path / "calibration.csv").exists()
    assert json.loads((tmp_path / "summary.json").read_text())["calibration"] is None


def test_one_slow_gpu_of_a_node_is_named_and_its_node_kept_out(tmp_path: Path) -> None:
    """Two nodes of four GPUs, each a process with its own log; the node's others are as usual."""
    logs.in_job(tmp_path, logs.Job("1", 0, {"r1": 1.0}), ONE)
    said = tmp_path / "jobs" / "n001-b00.jsonl"
    said.write_text("")
    job = logs.Job("1", 0, {"r1": 1.0, "r2": 1.0})
    for node, gpu, when in itertools.product(("r1", "r2"), range(4), ("start", "end")):
        place = logs.Job("1", 0, {node: 1.0}).place(1)
        place["ranks"][0] |= {"gpu": "H200", "gpu_uuid": f"{node}-{gpu}", "local_rank": gpu}
        seconds = 0.1 * (1.2 if (node, gpu) == ("r2", 3) else 1 + 0.001 * gpu)
        name = f"1-{when}-{node}-{gpu}.jsonl"
        run = logs.config("single", 1, 16, 0, curves=())
        logs.write(tmp_path / "calibration" / name, run, seconds, provenance=place)
        with said.open("a") as file:
            file.write(logs.calibrated(job, when, node, name))
    c = calibrated(tmp_path)
    assert [n.unit for n in c.nodes if n.slow] == ["r2 GPU 3"]
    assert c.slow == ["r2"]
    assert [(d.nodes, d.warn) for d in c.jobs] == [(8, False)]
    assert main(["report", str(tmp_path)]) == 0
    text = logs.page(tmp_path)
    assert "**Slow nodes: 1 of 8**: `r2 GPU 3` at " in text
    assert "--exclude=r2" in text
