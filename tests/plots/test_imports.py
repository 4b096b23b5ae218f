"""Other tools' logs: each format read as it is written, what is refused, and the page of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from plots.__main__ import main
from plots.imports import FORMATS, find
from plots.imports.observation import COLUMNS, ImportOptions
from plots.imports.text import decode
from tests.plots import logs
from tests.plots.importing import Import

ROOT = Path(__file__).parents[2]
Wanted = Sequence[tuple[str, float, dict[str, int]]]  # quantity, value, places

LINE = "Rank: {} Epoch {}: train set accuracy 0.5 time 10.0 throughput 1000 Sample Size 10000\n"
SYNTHETIC = (
    "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 4\nRunning benchmark...\n"
    "Iter #0: 103.5 img/sec per GPU\nIter #1: 101.5 img/sec per GPU\n"
    "Img/sec per GPU: 102.5 +-2.0\nTotal img/sec on 4 GPU(s): 410.0 +-8.0\n"
)
# a text in each format's grammar, with values of our own, and numbers that stand in it
SAMPLES: list[tuple[str, str, Wanted]] = [
    (
        "horovod-and-ddp",
        "Batch Size 512, Sample Size 20000\n[n2:7] MPI\n"
        + LINE.format(1, 2).replace("Rank:", "Rank :")
        + "Rank: 0 Epoch 2: train set accuracy 0.25 time 8.00 throughput 1250 Sample Size 10000\n"
        "srun: error: node2: task 1: Segmentation fault\n",
        [
            ("rank_images_per_s", 1000, {"rank": 1, "epoch": 2}),
            ("rank_images_per_s", 1250, {"rank": 0, "epoch": 2}),
            ("epoch_seconds", 8, {"rank": 0}),
        ],
    ),
    (
        "mxnet",
        "INFO:root:Iter[0] Batch [10]\tSpeed: 842.5 samples/sec\n"
        "INFO:root:Epoch[1] Batch [20]\tSpeed: 1764.5 samples/sec\tTrain-accuracy=0.4\n"
        "INFO:root:Epoch[1] Batch [20-30]\tSpeed: inf samples/sec\taccuracy=0.5\n"
        "INFO:root:Epoch[1] Train-accuracy=nan\n"
        "INFO:root:Epoch[1] Validation-accuracy=0.45\n"
        "INFO:root:Epoch[1] Time cost=1.06e1\n",
        [
            ("rank_images_per_s", 842.5, {"epoch": 0, "step": 10}),
            ("rank_images_per_s", 1764.5, {"epoch": 1, "step": 20}),
            ("rank_images_per_s", math.inf, {"step": 30}),
            ("train_accuracy", math.nan, {"epoch": 1}),
            ("validation_accuracy", 0.45, {"epoch": 1}),
            ("epoch_seconds", 10.6, {"epoch": 1}),
        ],
    ),
    (
        "mxnet",
        "2015-11-10 22:04:41,123 Node[3] Epoch[0] Time cost=10.5\n",
        [("epoch_seconds", 10.5, {"rank": 3})],
    ),
    (
        "dawnbench",
        "Train acc 0.9 loss 0.9, validation acc 0.94 loss 0.99 wall time 10.5s\n"
        "Train acc 0.8 loss 0.9, validation acc 0.93 loss 0.99 wall time 9.5s\n",
        [("run_seconds", 10.5, {"run": 0}), ("run_seconds", 9.5, {"run": 1})],
    ),
    (
        "pathway2ai",
        "{'n_layers': 4}\nstep 100 | train_loss 0.5 | test_loss 0.75 | step time 12.50ms\n",
        [("step_seconds", 0.0125, {"step": 100}), ("test_loss", 0.75, {"step": 100})],
    ),
    (
        "nnabla",
        "2017-01-01 [nnabla][INFO]: iter=24 {Training time}=0.24[sec/12iter] 1.0[sec]\n"
        "2017-01-01 [nnabla][INFO]: iter=24 {Training loss}=1.5\n",
        [("step_seconds", 0.02, {"step": 24}), ("train_loss", 1.5, {"step": 24})],
    ),
    ("nnabla", "9 0.5 10 0.5\n19 1.0 10 1.5\n", [("step_seconds", 0.1, {"step": 19})]),
    ("nnabla", "9 2.5\n19 2.25\n", [("train_error", 2.25, {"step": 19})]),
    (
        "horovod-synthetic",
        SYNTHETIC,
        [
            ("rank_images_per_s", 101.5, {"step": 1, "world_size": 4, "batch_per_rank": 32}),
            ("rank_mean_images_per_s", 102.5, {"world_size": 4}),
            ("total_images_per_s", 410, {"world_size": 4}),
        ],
    ),
]


@pytest.mark.parametrize(("name", "text", "wanted"), SAMPLES)
@pytest.mark.parametrize("spoil", [False, True])
def test_numbers_are_read_as_they_stand(name: str, text: str, wanted: Wanted, spoil: bool) -> None:
    """Also with the line ends and the mark of Windows."""
    data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() if spoil else text.encode()
    log = decode(data, "Training-error.series.txt")
    found = find(name).read(log, ImportOptions(world_size=4)).values
    assert set(COLUMNS) <= set(found.columns)
    for quantity, value, places in wanted:
        rows = found[found["quantity"] == quantity]
        for place, number in places.items():
            rows = rows[rows[place] == number]
        assert rows["value"].tolist() == [pytest.approx(value, nan_ok=True)], (quantity, places)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_holds_nothing_of_the_format_is_an_error(bring: Import, name: str) -> None:
    words = ["--pattern", r"Time (?P<step_seconds>\d+)"] if name == "pattern" else []
    for content in (b"", b"no log\n", b"\x00\xff\xfe" * 20):
        assert bring(name, content, *words).code == 2


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("csv", "epoch,epoch,images_per_s\n1,2,3\n", [], "column epoch is there twice"),
        ("csv", "epoch,images_per_s\n1\n", [], "row 2 has 1 values for 2 columns"),
        ("csv", "epoch,images_per_s\n1,fast\n", [], "row 2: images_per_s='fast' is no number"),
        ("csv", "step,images_per_s\n1.5,3\n", [], "row 2: step='1.5' is no whole number"),
        ("csv", "world_size,images_per_s\n0,5\n", [], "world size 0 is none"),
        ("csv", "world_size,images_per_s\n2,1e400\n", [], "1 values are nan or inf, and not aver"),
        ("horovod-and-ddp", LINE.format(2, 1), ["--world-size", "2"], "rank 2 is in it, and none"),
        ("horovod-synthetic", SYNTHETIC, ["--world-size", "2"], "it says world_size 4 itself"),
        ("horovod-synthetic", SYNTHETIC, ["--batch", "64"], "batch_per_rank 32 itself; leave out"),
        ("mxnet", "Epoch[0] Time cost=1\n", [], "tells the world size; use --world-size"),
        ("mxnet", "Node[0] Epoch[0] Time cost=1\nEpoch[0] Time cost=1\n", [], "name no rank"),
        ("mxnet", "x", ["--batch", "1", "--global-batch", "2"], "two ways of scaling; give one"),
        ("mxnet", "x", ["--pattern", "Time"], "are of the format pattern"),
        ("mxnet", "x", ["--target", "94"], "is of the format dawnbench"),
        ("pattern", "x", [], "needs --pattern"),
        ("pattern", "x", ["--pattern", "("], "is no regular expression"),
        ("pattern", "x", ["--pattern", "Time"], "names no group"),
        ("pattern", "Time", ["--pattern", r"T(?P<step_ms>\w+)"], "step_ms='ime' is no number"),
    ],
)
def test_what_cannot_be_is_refused(
    bring: Import, name: str, text: str, options: list[str], said: str
) -> None:
    ended = bring(name, text, *options)
    assert ended.code == 2
    assert said in ended.said


def test_nothing_is_overwritten_and_no_log_counts_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("world_size,images_per_s\n2,5\n")
    assert main(["import", "csv", str(path), "--out", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["import", "csv", str(path), str(path), "--out", str(tmp_path / "out")]) == 2
    assert "name each once" in capsys.readouterr().err
    again = ["import", "csv", str(path), "--out", str(tmp_path / "out")]
    assert (main(again), main(again)) == (0, 0)
    path.write_text("world_size,images_per_s\n2,6\n")
    assert (main(again), main([*again, "--force"])) == (2, 0)
    assert "2.0,,,images_per_s,6.0," in (tmp_path / "out" / "plain.csv").read_text()


def test_what_is_assumed_is_said_and_every_number_is_kept(bring: Import) -> None:
    text = SAMPLES[0][1].replace("Epoch 2", "Epoch 1", 1)
    ended = bring("horovod-and-ddp", text, "--values")
    assert "warning: log.txt: world size 2 is inferred from the ranks in it" in ended.said
    assert "nobody said the backend; use --backend" in ended.said
    assert "note: the first epoch holds the warm-up" in ended.said
    assert "no interval" in ended.said
    assert len(pd.read_csv(bring.folder / "1" / "out" / "log-values.csv")) == 8


# images/s of each rank as the direct ancestor published them, weak scaling at 512 per rank
PUBLISHED = {
    "single": {1: [2238]},
    "horovod": {1: [1689], 2: [1472, 1476], 4: [1425, 1424, 1433, 1424]},
    "ddp": {1: [2076], 2: [1517, 1518], 4: [1386, 1387, 1389, 1387]},
}


def test_the_direct_ancestors_efficiencies(tmp_path: Path) -> None:
    out = tmp_path / "out"
    common = ["--batch", "512", "--source", "OSC", "--out", str(out)]
    for backend, worlds in PUBLISHED.items():
        for size, rates in worlds.items():
            log = tmp_path / f"{backend}-{size}.log"
            lines = (
                f"Rank : {rank} Epoch 1: train set accuracy 0.5 time 10.00 throughput {rate} "
                f"Sample Size {10 * rate}\n"
                for rank, rate in enumerate(rates)
            )
            log.write_text("".join(lines))
            words = ["import", "horovod-and-ddp", str(log), "--backend", backend]
            assert main([*words, *common]) == 0
    assert main(["published", str(out)]) == 0
    page = (out / "published.md").read_text()
    found = {
        row["backend"]: (row["efficiency, own"], row["efficiency, common"])
        for row in logs.rows(f"## All\n{page}", "All")
        if row["ranks"] == "4"
    }
    assert found == {"horovod": ("84.5 %", "63.7 %"), "ddp": ("66.8 %", "62.0 %")}


def test_ours_beside_the_shipped_tables(tmp_path: Path) -> None:
    study = logs.study(tmp_path / "study")
    logs.study_toml(study)
    shipped = str(ROOT / "results" / "published")
    words = ["published", shipped, "--study", str(study), "--out", str(tmp_path / "page")]
    assert main(words) == 0
    page = (tmp_path / "page" / "published.md").read_text()
    weak = [x for x in page.splitlines() if "| weak |" in x and " | 4 | " in x]
    assert len(weak) == 2
    assert all("63.7 %" in x or "62.0 %" in x for x in weak)
    measured = next(line for line in page.splitlines() if "| horovod/mpi | 2 |" in line)
    assert re.search(r"[0-9.]+ \[[0-9.]+, [0-9.]+\] \| [0-9.]+ % \[[0-9.]+, [0-9.]+\]", measured)
    assert "n = 6 launches" in measured
    assert (tmp_path / "page" / "published.svg").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([""], "0.csv is no CSV"),
        (["source,value\na,1\n"], "0.csv has no column backend, world_size"),
        (
            [
                f"source,backend,world_size,quantity,value,reducer\nme,ddp,1,images_per_s,{n},mean\n"
                for n in (100, 120)
            ],
            "me: ddp at 1 ranks has two rates",
        ),
        (
            ["source,backend,world_size,quantity,value,reducer\nme,ddp,,images_per_s,5,mean\n"],
            "a row of images_per_s lacks its world_size or value",
        ),
        ([], "no tables of imported points"),
    ],
)
def test_tables_that_make_no_curve_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: list[str], said: str
) -> None:
    for i, text in enumerate(tables):
        (tmp_path / f"{i}.csv").write_text(text)
    assert main(["published", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_runs_keep_their_mean_in_the_curve(bring: Import) -> None:
    bring(
        "csv",
        "backend,world_size,run,images_per_s\nddp,1,0,100\nddp,1,1,120\nddp,2,0,180\nddp,2,1,180\n",
    )
    out = bring.folder / "1" / "out"
    assert main(["published", str(out)]) == 0
    page = (out / "published.md").read_text()
    assert "82.5 %" in page, "180 over twice the harmonic mean of 100 and 120"
    assert "median over runs" in page.split("## Other quantities")[1]
