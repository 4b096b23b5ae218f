"""A study's larger worlds from its small ones: logs by the model's own law, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plots.__main__ import main
from plots.predict.beyond import CurveModel
from plots.predict.link import Link
from plots.predict.step import BatchLine
from plots.predict.stream import Buckets, Cycles
from tests.plots import logs
from tests.plots.predict.test_beyond import ALONE_S, LINK, OVERLAP, ROOT, WRAPPER, model

IMAGES = 64
MODELS = {"ddp/mpi": model(Buckets()), "horovod/mpi": model(Cycles(blocking=True))}
STATED = """\
source = "made up"
algorithms = ["ring"]
[[regimes]]
latency_seconds = 50e-6
bytes_per_s = 2e9
"""


def step_s(cell: str, ranks: int) -> float:
    if cell == "single":
        return ALONE_S
    truth: CurveModel = MODELS[cell]
    factor = WRAPPER * (OVERLAP if ranks > 1 else 1)
    return float(truth.times(LINK, np.array([float(ranks)]), np.array([factor])).step_s[0])


def sweep(
    folder: Path, cell: str, ranks: int, link: Link | None = None, ranks_per_node: int = 1
) -> None:
    start: dict[str, object] = {"config": {"world_size": ranks}, "workload": {"cell": cell}}
    names = [f"n{rank // ranks_per_node}" for rank in range(ranks)]
    start["host"] = {"ranks": [{"cpu": "Test CPU @ 2 GHz", "hostname": name} for name in names]}
    events: list[dict[str, object]] = [{"event": "start", **start}]
    for size in (2**k for k in range(10, 29, 2)):
        seconds = float((link or LINK).seconds(size, np.array([float(ranks)]))[0])
        row = {"kind": "all_reduce", "bytes": size, "seconds": [[seconds] * 3] * ranks}
        events.append({"event": "collective", **row})
    events.append({"event": "end", "status": "ok"})
    (folder / "collectives").mkdir(exist_ok=True)
    path = folder / "collectives" / f"{cell.replace('/', '-')}-{ranks}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def study(
    folder: Path, worlds: tuple[int, ...] = (1, 2, 4, 8), cores: int = 64, busy: float = 0.4
) -> Path:
    """Four blocks of all cells, which differ by half a percent together and by a tenth apart."""
    generator = np.random.default_rng(11)
    for block in range(4):
        together = generator.normal(0, 0.005)
        for cell in ("single", *MODELS):
            for ranks in worlds if cell != "single" else (1,):
                run = logs.config(cell, ranks, 64, block)
                name = f"b{block:02d}-{cell.replace('/', '-')}-w{ranks}.jsonl"
                seconds = step_s(cell, ranks) * np.exp(together + generator.normal(0, 0.001))
                host, busy_cores = logs.host(ranks), {"busy_share": [busy]}
                for rank in host["ranks"]:
                    rank["cpus_on_node"] = cores
                (folder / "runs").mkdir(parents=True, exist_ok=True)
                logs.write(
                    folder / "runs" / name,
                    run,
                    float(seconds),
                    provenance=host,
                    of_window=busy_cores,
                )
    return folder


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    study(tmp_path)
    for cell in MODELS:
        sweep(tmp_path, cell, 2)
    return tmp_path


def predicted(folder: Path, *words: str) -> pd.DataFrame:
    out = folder / "predicted.csv"
    assert main(["predict", str(folder), *words, "--format", "csv", "-o", str(out)]) == 0
    return pd.read_csv(out).set_index(["name", "world_size"])


def test_larger_worlds_from_two_ranks(measured: Path) -> None:
    rows = predicted(measured, "--fit-ranks", "2", "--ranks", "64")
    for cell in MODELS:
        for ranks in (2, 4, 8, 64):
            row: Any = rows.loc[(cell, ranks)]
            truth = ALONE_S / step_s(cell, ranks)
            assert row["use"] == ("fitted" if ranks == 2 else "predicted")
            assert row["low"] < truth < row["high"]
            assert row["predicted_efficiency"] == pytest.approx(truth, abs=0.02)
            assert (row["inside"] is True) == (ranks != 64)
            assert row["exposed_low"] <= row["exposed_seconds"] <= row["exposed_high"]
        widths = (rows["high"] - rows["low"])[cell]
        assert widths[64] > widths[8] > widths[2] > 0


def test_the_page_answers_who_what_and_where(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--fit-ranks", "2", "--ranks", "256", "--criterion", "75"]
    assert main(["predict", str(measured), *words]) == 0
    page = capsys.readouterr().out
    assert "Of 4 measured rows that were not fitted, 4 are in the band." in page
    assert "## Who is faster" in page
    assert "*images/s of*: horovod/mpi; *over*: ddp/mpi" in page
    assert "## What would help most" in page
    assert "twice the bandwidth" in page
    assert "efficiency falls below 75 % at" in page
    assert "link fitted: ddp/mpi on 2 ranks of Test CPU @ 2 GHz, as a ring, 0 % off" in page
    assert page.count("link fitted: ddp/mpi") == 2, "what waits for a tick times no link"
    assert "stretched to the measured one" in page
    assert main(["predict", str(measured), *words, "--format", "csv"]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert notes
    assert all(note.replace("note: ", "- ", 1) in page for note in notes), "beside the rows"


def test_nodes_beyond_a_study_of_one_are_joined_as_their_own_sweeps_say(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep of one node is fitted beside its steps, and others are of what lies between nodes."""
    assert main(["predict", str(measured), "--fit-ranks", "2"]) == 0
    assert "no sweep left its node" not in capsys.readouterr().out, "each rank has its own"
    (regime,) = LINK.regimes
    rate = regime.bytes_per_s
    slower = regime.model_copy(update={"bytes_per_s": rate / 8, "node_bytes_per_s": rate})
    network = LINK.model_copy(update={"ranks_per_node": 2, "regimes": (slower,)})
    sweep(measured, "ddp/mpi", 2, network, 2)
    alone = predicted(measured, "--fit-ranks", "2", "--ranks", "64")
    assert main(["predict", str(measured), "--fit-ranks", "2"]) == 0
    assert "no sweep left its node" in capsys.readouterr().out
    for ranks in (4, 8):
        sweep(measured, "ddp/mpi", ranks, network, 2)
    rows = predicted(measured, "--fit-ranks", "2", "--ranks", "64")
    factors = np.array([WRAPPER * OVERLAP])
    for cell, of in MODELS.items():
        for ranks in (4, 64):
            truth = ALONE_S / float(of.times(network, np.array([float(ranks)]), factors).step_s[0])
            row: Any = rows.loc[(cell, ranks)]
            without: Any = alone.loc[(cell, ranks)]
            assert row["predicted_efficiency"] == pytest.approx(truth, abs=0.02)
            assert row["high"] < without["low"]


def test_a_stated_link_takes_the_place_of_sweeps(tmp_path: Path) -> None:
    study(tmp_path)
    (tmp_path / "link.toml").write_text(STATED)
    rows = predicted(tmp_path, "--link", str(tmp_path / "link.toml"), "--fit-ranks", "2")
    assert rows["inside"].all()


def test_what_no_exchange_explains_is_told_and_not_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, (1, 2))
    (tmp_path / "link.toml").write_text(STATED)
    for path in (tmp_path / "runs").glob("*-w2.jsonl"):
        logs.edit(path, '"input_seconds": [0.0, 0.0]', '"input_seconds": [0.2, 0.2]')
    assert main(["predict", str(tmp_path), "--link", str(tmp_path / "link.toml")]) == 2
    assert "waits for input" in capsys.readouterr().err


def test_no_band_is_claimed_where_ranks_wait_for_cores(tmp_path: Path) -> None:
    """A rank that alone keeps 0.8 cores busy: of four on two, two wait 80 % of a step at most."""
    study(tmp_path, cores=2)
    (tmp_path / "link.toml").write_text(STATED)
    rows = predicted(tmp_path, "--link", str(tmp_path / "link.toml"), "--ranks", "16")
    doubts = rows["doubt"].fillna("")
    assert {*rows[rows["use"] == "fitted"].index.get_level_values("world_size")} == {2}
    for cell in MODELS:
        at = [doubts.loc[(cell, ranks)] for ranks in (2, 4, 8, 16)]
        shares = [re.findall(r"(\d+) % of a step at most", doubt) for doubt in at]
        assert shares == [[], ["80"], ["240"], ["560"]]


def test_strong_scaling_from_a_sweep_of_batches(tmp_path: Path) -> None:
    """One process with other batches says how its step shrinks."""
    (tmp_path / "link.toml").write_text(STATED)
    (tmp_path / "runs").mkdir()
    profile = MODELS["ddp/mpi"].profile
    line = BatchLine(fixed_s=0.1 * profile.passes_s, image_s=0.9 * profile.passes_s / IMAGES)
    truth = replace(MODELS["ddp/mpi"], images=IMAGES, batches=line)
    step_s = {
        ("single", 1, images): line.fixed_s + line.image_s * images + profile.optimizer_s
        for images in (16, 32, IMAGES)
    }
    for ranks in (2, 4, 8):
        times = truth.times(LINK, np.array([float(ranks)]), np.array([OVERLAP]))
        step_s["ddp/mpi", ranks, IMAGES // ranks] = float(times.step_s[0])
    generator = np.random.default_rng(5)
    for block in range(4):
        for (cell, ranks, images), seconds in step_s.items():
            batch: dict[str, Any] = {
                "global_batch": IMAGES,
                "batch_per_rank": None,
                "curves": ("strong",),
            }
            if images * ranks < IMAGES:
                batch = {"curves": ("batch",)}
            run = logs.config(cell, ranks, images, block, **batch)
            path = tmp_path / "runs" / f"b{block}-{cell.replace('/', '-')}-w{ranks}-b{images}.jsonl"
            logs.write(path, run, seconds * float(np.exp(generator.normal(0, 0.001))))
    words = ["--link", str(tmp_path / "link.toml"), "--fit-ranks", "2", "--ranks", "16,48"]
    rows = predicted(tmp_path, *words)
    assert [ranks for _, ranks in rows.index] == [2, 4, 8, 16]
    page = tmp_path / "page.md"
    assert main(["predict", str(tmp_path), *words, "-o", str(page)]) == 0
    assert "64 images of a step do not divide among 48 ranks: no row" in page.read_text()
    ideal = step_s["single", 1, IMAGES]
    for ranks in (4, 8):
        row: Any = rows.loc[("ddp/mpi", ranks)]
        efficiency = ideal / ranks / step_s["ddp/mpi", ranks, IMAGES // ranks]
        assert row["predicted_efficiency"] == pytest.approx(efficiency, abs=0.02)
        assert row["low"] < efficiency < row["high"]


@pytest.mark.parametrize(
    ("shipped", "why"),
    [
        ("batch-lr", "no run is on a weak or strong curve; name a study that has one"),
        ("precision", "no run of one process is there; add the cell single"),
        ("one-gpu", "no run has 2 to 16 ranks (--fit-ranks)"),
    ],
)
def test_a_study_of_which_no_curve_can_be_predicted_says_why(
    tmp_path: Path, shipped: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.toml").write_text(STATED)
    words = ["--link", str(tmp_path / "link.toml")]
    assert main(["predict", str(ROOT / "results" / shipped), *words]) == 2
    assert why in capsys.readouterr().err


def test_a_stated_link_says_how_many_ranks_share_a_nodes_cores(tmp_path: Path) -> None:
    study(tmp_path, (1, 2), cores=2)
    (tmp_path / "link.toml").write_text(STATED.replace("[[", "ranks_per_node = 4\n[[", 1))
    rows = predicted(tmp_path, "--link", str(tmp_path / "link.toml"), "--ranks", "16")
    assert "80 % of a step at most" in rows["doubt"][("ddp/mpi", 16)]


def test_no_verdict_is_given_where_a_curve_is_in_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, cores=2)
    (tmp_path / "link.toml").write_text(STATED)
    assert main(["predict", str(tmp_path), "--link", str(tmp_path / "link.toml")]) == 0
    faster = capsys.readouterr().out.partition("## Who is faster")[2].partition("##")[0]
    rows = [line for line in faster.splitlines() if line.startswith(("| 4 |", "| 8 |"))]
    assert len(rows) == 2
    assert all("cannot tell | ranks of a node wait" in row for row in rows)


def test_a_doubt_goes_on_where_nothing_larger_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, (1, 2, 4))
    (tmp_path / "link.toml").write_text(STATED)
    for path in (tmp_path / "runs").glob("*-w4.jsonl"):
        logs.edit(
            path, '"input_seconds": [0.0, 0.0, 0.0, 0.0]', '"input_seconds": [0.2, 0.2, 0.2, 0.2]'
        )
    words = ("--link", str(tmp_path / "link.toml"), "--ranks", "64")
    doubts = predicted(tmp_path, *words)["doubt"].fillna("")
    assert doubts["ddp/mpi"][2] == ""
    assert "waits for input" in doubts["ddp/mpi"][4]
    assert doubts["ddp/mpi"][64] == f"at 4 ranks {doubts['ddp/mpi'][4]}"
    assert main(["predict", str(tmp_path), *words, "--criterion", "75"]) == 0
    assert "; in doubt from 4 ranks on: " in capsys.readouterr().out


def test_a_short_wait_is_in_the_band(tmp_path: Path) -> None:
    (tmp_path / "link.toml").write_text(STATED)
    widths = []
    for cores in (2, 64):
        folder = study(tmp_path / f"{cores}", (1, 2, 4), cores, busy=0.02)
        words = ("--link", str(tmp_path / "link.toml"), "--fit-ranks", "2")
        rows = predicted(folder, *words)
        assert rows["doubt"].isna().all()
        widths.append((rows["high"] - rows["low"])["ddp/mpi"][4])
    assert widths[0] > 1.2 * widths[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["STUDY"], "has no sweeps; record some with python -m bench collectives"),
        (["STUDY", "--from", "table.csv"], "name either a study's folder"),
        ([], "name either a study's folder"),
        (["STUDY", "--cycle-ms", "5"], "--cycle-ms is of --from"),
        (["--from", "table.csv", "--link", "x.toml"], "--link is of a study"),
        (["STUDY", "--link", "absent.toml"], "absent.toml"),
    ],
)
def test_wrong_words_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, (1, 2))
    assert main(["predict", *(str(tmp_path) if word == "STUDY" else word for word in words)]) == 2
    assert said in capsys.readouterr().err
