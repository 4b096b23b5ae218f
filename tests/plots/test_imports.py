"""Other tools' logs: each format read as it is written, and what holds for every one of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import UsageError
from plots.__main__ import main
from plots.imports import FORMATS, find
from plots.imports.observation import COLUMNS, ImportOptions
from plots.imports.text import decode
from tests.plots import logs

ROOT = Path(__file__).parents[2]
Wanted = Sequence[tuple[str, float, dict[str, int]]]  # quantity, value, places

IMAGENET = r"Epoch: \[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/\d+\]\s+Time +(?P<step_seconds>[\d.]+)"
# per format: a text in its grammar, with values of our own, and numbers that stand in it
SAMPLES: dict[str, list[tuple[str, Wanted]]] = {
    "horovod-and-ddp": [
        (
            "Batch Size 512, Sample Size 20000\n"
            "[n2:7] MPI\n"
            "Rank : 1 Epoch 2: train set accuracy 0.5 time 10.0 throughput 1000 Sample Size 10000\n"
            "Rank: 0 Epoch 2: train set accuracy 0.25 time 8.00 throughput 1250 Sample Size 10000\n"
            "srun: error: node2: task 1: Segmentation fault\n",
            [
                ("rank_images_per_s", 1000, {"rank": 1, "epoch": 2}),
                ("rank_images_per_s", 1250, {"rank": 0, "epoch": 2}),
                ("epoch_seconds", 8, {"rank": 0}),
            ],
        )
    ],
    "mxnet": [
        (
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
            "INFO:root:Waiting for Node[1]\nINFO:root:Epoch[0] Time cost=10.5\n",
            [("epoch_seconds", 10.5, {"epoch": 0})],
        ),
        (
            "2015-11-10 22:04:41,123 Node[3] Epoch[0] Time cost=10.5\n"
            "2015-11-10 22:04:42,123 Node[2] Epoch[0] Time cost=9.5\n",
            [("epoch_seconds", 10.5, {"rank": 3}), ("epoch_seconds", 9.5, {"rank": 2})],
        ),
    ],
    "dawnbench": [
        (
            "Train acc 0.9 loss 0.9, validation acc 0.94 loss 0.99 wall time 10.5s\n"
            "Train acc 0.8 loss 0.9, validation acc 0.93 loss 0.99 wall time 9.5s\n",
            [("run_seconds", 10.5, {"run": 0}), ("run_seconds", 9.5, {"run": 1})],
        ),
        (
            "epoch\thours\ttop1Accuracy\n0\t0.001\t38.5\n1\t0.002\t51.25\n",
            [("run_seconds", 7.2, {"epoch": 1}), ("validation_accuracy", 0.5125, {"epoch": 1})],
        ),
    ],
    "pathway2ai": [
        (
            "{'n_layers': 4}\nstep 100 | train_loss 0.5 | test_loss 0.75 | step time 12.50ms\n",
            [("step_seconds", 0.0125, {"step": 100}), ("test_loss", 0.75, {"step": 100})],
        )
    ],
    "nnabla": [
        (
            "2017-01-01 [nnabla][INFO]: iter=24 {Training time}=0.24[sec/12iter] 1.0[sec]\n"
            "2017-01-01 [nnabla][INFO]: iter=24 {Training loss}=1.5\n",
            [("step_seconds", 0.02, {"step": 24}), ("train_loss", 1.5, {"step": 24})],
        ),
        ("9 0.5 10 0.5\n19 1.0 10 1.5\n", [("step_seconds", 0.1, {"step": 19})]),
        ("9 2.5\n19 2.25\n", [("log", 2.25, {"step": 19})]),
    ],
    "horovod-synthetic": [
        (
            "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 4\nRunning benchmark...\n"
            "Iter #0: 103.5 img/sec per GPU\nIter #1: 101.5 img/sec per GPU\n"
            "Img/sec per GPU: 102.5 +-2.0\nTotal img/sec on 4 GPU(s): 410.0 +-8.0\n",
            [
                ("rank_images_per_s", 101.5, {"step": 1, "world_size": 4, "batch_per_rank": 32}),
                ("rank_mean_images_per_s", 102.5, {}),
                ("total_images_per_s", 410, {}),
            ],
        )
    ],
    "pytorch-imagenet": [
        (
            "Epoch: [3][ 5/53]\tTime  0.400 ( 1.135)\tLoss 2.5 (2.6)\n"
            "Test: [ 0/10]\tTime  1.396 ( 1.396)\tLoss 2.8e+00 (2.8e+00)\n",
            [("step_seconds", 0.4, {"epoch": 3, "step": 5})],
        )
    ],
    "csv": [
        (
            "backend,world_size,step,images_per_s,step_ms\nddp,2,0,100.5,20\nddp,2,1,,25\n",
            [
                ("images_per_s", 100.5, {"world_size": 2, "step": 0}),
                ("step_seconds", 0.025, {"step": 1}),
            ],
        )
    ],
    "pattern": [
        (
            "Epoch: [3][ 5/53]\tTime  0.400 ( 1.135)\tLoss 2.5 (2.6)\n"
            "Epoch: [3][10/53]\tTime  0.300 ( 0.735)\tLoss 2.4 (2.5)\n",
            [("step_seconds", 0.3, {"epoch": 3, "step": 10})],
        )
    ],
}
CASES = [(name, *sample) for name, samples in SAMPLES.items() for sample in samples]


def require(found: pd.DataFrame, wanted: Wanted) -> None:
    assert set(COLUMNS) <= set(found.columns)
    for quantity, value, places in wanted:
        rows = found[found["quantity"] == quantity]
        for name, number in places.items():
            rows = rows[rows[name] == number]
        values = rows["value"].tolist()
        assert any(v == pytest.approx(value, nan_ok=True) for v in values), (
            quantity,
            places,
            values,
        )


def values(name: str, data: str | bytes, **options: Any) -> pd.DataFrame:
    """Of one log, as its format reads it."""
    log = decode(data.encode() if isinstance(data, str) else data)
    return (
        find(name)
        .read(log, ImportOptions(**{"world_size": 4, "patterns": [IMAGENET], **options}))
        .values
    )


def test_every_format_has_a_sample() -> None:
    assert SAMPLES.keys() == set(FORMATS)


@pytest.mark.parametrize(("name", "text", "wanted"), CASES)
def test_numbers_are_read_as_they_stand(name: str, text: str, wanted: Wanted) -> None:
    require(values(name, text), wanted)


@pytest.mark.parametrize(("name", "text", "wanted"), CASES)
@pytest.mark.parametrize("spoil", ["crlf", "bom"])
def test_line_ends_and_encodings_change_nothing(
    name: str, text: str, wanted: Wanted, spoil: str
) -> None:
    coded = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
    }
    require(values(name, coded[spoil]), wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_holds_nothing_of_the_format_is_an_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"", b"no log\n", b"\x00\xff\xfe" * 20):
        path = tmp_path / "log.txt"
        path.write_bytes(content)
        assert main(["import", name, str(path), "--out", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {path}: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, text, _ in CASES])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_spoiled_log_is_read_or_refused_with_a_reason(
    name: str, text: str, data: st.DataObject
) -> None:
    """Cut off, with bytes changed, with lines written into one another: never another end."""
    raw = bytearray(text.encode())
    cut = data.draw(st.integers(0, len(raw)))
    raw = raw[:cut]
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = values(name, bytes(raw))
    except UsageError:
        return
    assert set(COLUMNS) <= set(found.columns)
    assert found["quantity"].notna().all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch,epoch,images_per_s\n1,2,3\n", "column epoch is there twice"),
        ("epoch,images_per_s\n1\n", "row 2 has 1 values for 2 columns"),
        ("epoch,images_per_s\n1,fast\n", "row 2: images_per_s='fast' is no number"),
        ("step,images_per_s\n1.5,3\n", "row 2: step='1.5' is no whole number"),
        ("epoch,images_per_s\n1," + 200_000 * "3" + "\n", "it is no CSV: field larger"),
    ],
)
def test_a_csv_that_says_nothing_certain_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        values("csv", text)
    assert str(error.value).startswith(said)


LINE = "Rank: {} Epoch {}: train set accuracy 0.5 time 10.0 throughput 1000 Sample Size 10000\n"
SYNTHETIC = SAMPLES["horovod-synthetic"][0][0]
TSV = "epoch\thours\ttop1Accuracy\n0\t0.001\t38.5\n1\t0.002\t51.25\n"
RUN = "Train acc 0.9 loss 0.9, validation acc 0.{} loss 0.99 wall time {}s\n"


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        # a lost worker makes no sum; the epochs that all ranks finished do
        (
            "horovod-and-ddp",
            "".join(LINE.format(rank, 1) for rank in (0, 1, 3)),
            ["--world-size", "4"],
            "images_per_s: 1 of 1 sums over 4 ranks are left out",
        ),
        (
            "horovod-and-ddp",
            LINE.format(0, 1) + LINE.format(1, 1) + LINE.format(0, 2),
            ["--world-size", "2"],
            "2 ranks: images_per_s 2000 (n = 1; sum over ranks, mean over epochs",
        ),
        (
            "horovod-and-ddp",
            LINE.format(0, 1) + LINE.format(1, 1) + LINE.format(0, 2),
            ["--world-size", "2"],
            "images_per_s: 1 of 2 sums over 2 ranks are left out",
        ),
        (
            "horovod-synthetic",
            SYNTHETIC,
            [],
            "4 ranks: images_per_s 409.961 (n = 2; one rank times",
        ),
        (
            "dawnbench",
            TSV,
            ["--world-size", "8"],
            "run_seconds 7.2 (n = 1; mean over runs (the last epoch",
        ),
        (
            "dawnbench",
            "".join(RUN.format(94 + i, 10 + 2 * i) for i in (0, 1, 4)),
            ["--world-size", "8"],
            "run_seconds 12 (n = 3; median over runs",
        ),
    ],
)
def test_points_are_of_whole_runs(
    name: str,
    text: str,
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    assert main(["import", name, str(path), *options, "--out", str(tmp_path / "out")]) == 0
    ended = capsys.readouterr()
    assert said in ended.out + ended.err


def test_epochs_as_a_markdown_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "Node[0] Epoch[0] Train-accuracy=0.25\nNode[0] Epoch[0] Time cost=10.5\n"
        "Node[1] Epoch[0] Train-accuracy=0.75\nNode[1] Epoch[0] Time cost=12.5\n"
    )
    words = ["import", "mxnet", str(path), "--out", str(tmp_path / "out"), "--epochs"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| epoch | train_accuracy (mean) | epoch_seconds (slowest rank) |",
        "| --- | --- | --- |",
        "| 0 | 0.5 | 12.5 |",
    ]


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("horovod-and-ddp", LINE.format(2, 1), ["--world-size", "2"], "rank 2 is in it, and none"),
        ("horovod-synthetic", SYNTHETIC, ["--world-size", "2"], "it says world_size 4 itself"),
        ("horovod-synthetic", 2 * SYNTHETIC.replace("32", "64") + SYNTHETIC, [], "32 and 64"),
        ("mxnet", "Epoch[0] Time cost=1\n", [], "tells the world size; use --world-size"),
        ("mxnet", "Node[0] Epoch[0] Time cost=1\nEpoch[0] Time cost=1\n", [], "name no rank"),
        ("csv", "world_size,images_per_s\n0,5\n", [], "world size 0 is none"),
        ("csv", f"world_size,images_per_s\n{400 * '9'},5\n", [], "is no whole number"),
        ("csv", "world_size,images_per_s\n2,-5\n", [], "images_per_s -5 is below 0"),
        (
            "csv",
            "world_size,images_per_s\n2,1e400\n",
            [],
            "1 values are nan or inf, and not averaged",
        ),
        (
            "horovod-and-ddp",
            LINE.replace("10.0", 5000 * "9").replace("10000", 5000 * "9").format(0, 1),
            [],
            "does not follow from",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    name: str,
    text: str,
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    assert main(["import", name, str(path), *options, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ")
    assert said in line
    assert not (tmp_path / "out").exists()


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


def test_a_table_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.csv").write_text("")
    assert main(["published", str(tmp_path)]) == 2
    assert "empty.csv is no CSV" in capsys.readouterr().err


def test_two_ranks_in_one_line_are_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.txt"
    line = "Rank: 0 Epoch 2: train set accuracy 0.25 time 8.00 throughput 12{} Sample Size 10000\n"
    path.write_text(line.format("Rank: 1 50") + line.format("9950"))
    assert main(["import", "horovod-and-ddp", str(path), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "throughput 129950 does not follow from 10000 samples in 8 s" in said


# images/s of each rank as the direct ancestor published them, weak scaling at 512 per rank
PUBLISHED = {
    "horovod": {1: [1689], 2: [1472, 1476], 4: [1425, 1424, 1433, 1424]},
    "ddp": {1: [2076], 2: [1517, 1518], 4: [1386, 1387, 1389, 1387]},
}


def ancestor_log(path: Path, rates: Sequence[int], mark: str) -> Path:
    lines = ["Batch Size 512, Sample Size 73257\n"]
    for rank, rate in enumerate(rates):
        seconds = 10.0
        lines.append(
            f"Rank{mark} {rank} Epoch 1: train set accuracy 0.5 time {seconds:.2f} "
            f"throughput {rate} Sample Size {int(rate * seconds)}\n"
        )
    path.write_text("".join(lines))
    return path


def test_the_direct_ancestors_efficiencies(tmp_path: Path) -> None:
    out = tmp_path / "out"
    common = ["--batch", "512", "--source", "OSC", "--out", str(out)]
    alone = ancestor_log(tmp_path / "single.log", [2238], ":")
    assert main(["import", "horovod-and-ddp", str(alone), "--backend", "single", *common]) == 0
    for backend, worlds in PUBLISHED.items():
        for size, rates in worlds.items():
            log = ancestor_log(tmp_path / f"{backend}-{size}.log", rates, " :")
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


def test_the_shipped_tables_say_the_same(tmp_path: Path) -> None:
    out = tmp_path / "page"
    assert main(["published", str(ROOT / "results" / "published"), "--out", str(out)]) == 0
    page = (out / "published.md").read_text()
    weak = [x for x in page.splitlines() if "| weak |" in x and " | 4 | " in x]
    assert len(weak) == 2
    assert all("63.7 %" in x or "62.0 %" in x for x in weak)
    assert (out / "published.svg").exists()


def test_what_is_assumed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    path.write_text(SAMPLES["horovod-and-ddp"][0][0].replace("Epoch 2", "Epoch 1", 1))
    words = ["import", "horovod-and-ddp", str(path), "--out", str(tmp_path / "out"), "--values"]
    assert main(words) == 0
    said = "".join(capsys.readouterr())
    assert "warning: log.txt: world size 2 is inferred from the ranks in it" in said
    assert "nobody said the backend; use --backend" in said
    assert "note: the first epoch holds the warm-up" in said
    assert "no interval" in said
    values = pd.read_csv(tmp_path / "out" / "log-values.csv")
    assert len(values) == 8, "every number of the file is kept"


def test_a_varying_number_of_ranks_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.txt"
    two = SAMPLES["horovod-and-ddp"][0][0]
    path.write_text(two + two.splitlines()[2].replace("Epoch 2", "Epoch 3") + "\n")
    words = ["import", "horovod-and-ddp", str(path), "--out", str(tmp_path / "out")]
    assert main([*words, "--backend", "ddp", "--world-size", "2"]) == 0
    assert "epochs hold different numbers of ranks (1, 2)" in capsys.readouterr().err


def test_ours_beside_theirs(tmp_path: Path) -> None:
    study = logs.study(tmp_path / "study")
    logs.study_toml(study)
    shipped = str(ROOT / "results" / "published")
    words = ["published", shipped, "--study", str(study), "--out", str(tmp_path / "page")]
    assert main(words) == 0
    page = (tmp_path / "page" / "published.md").read_text()
    assert "horovod/mpi" in page
    assert "n = 6 launches" in page
    measured = next(line for line in page.splitlines() if "| horovod/mpi | 2 |" in line)
    assert re.search(r"[0-9.]+ \[[0-9.]+, [0-9.]+\] \| [0-9.]+ % \[[0-9.]+, [0-9.]+\]", measured)


def test_two_ways_of_scaling_are_refused(tmp_path: Path) -> None:
    words = ["import", "mxnet", "x.log", "--batch", "1", "--global-batch", "2"]
    assert main(words) == 2
