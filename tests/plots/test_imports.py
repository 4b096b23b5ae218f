"""Other tools' logs as a user imports them: what is read, how it is averaged, what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from plots.__main__ import main
from plots.imports.text import FORMATS

README = (Path(__file__).parents[2] / "plots" / "README.md").read_text()
Files = str | Mapping[str, str]


class Ended(NamedTuple):
    """One import: its exit code, its words, and the values of its points by quantity."""

    code: int
    words: str
    values: Mapping[str, float]
    points: pd.DataFrame


class Import:
    """Writes logs and imports them into a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.count = folder, capsys, 0

    def __call__(self, form: str, files: Files | bytes, *options: str) -> Ended:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for name, data in (files if isinstance(files, Mapping) else {"log.txt": files}).items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        logs = [str(path) for path in sorted(folder.iterdir())]
        code = main(["import", form, *logs, *options, "--out", str(folder / "out")])
        out, err = self.capsys.readouterr()
        if code:
            assert (err.count("\n"), (folder / "out").exists()) == (1, False), err
            return Ended(code, out + err, {}, pd.DataFrame())
        assert all(line.startswith("warning: ") for line in err.splitlines()), err
        points = pd.read_csv(next(folder.glob("out/*.csv")))
        values = dict(zip(points["quantity"], points["value"], strict=True))
        return Ended(code, out + err, values, points)


@pytest.fixture
def bring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    return Import(tmp_path, capsys)


def documented(name: str) -> list[str]:
    """List the patterns that the README shows in the row of a format."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {name} |")]
    found = re.findall(r"`([^`]*\(\?P<[^`]*)`", row)
    assert found
    return [word for pattern in found for word in ("--pattern", pattern)]


def patterns(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--pattern", text)]


ONE, TWO, FOUR, EIGHT = (["--world-size", n] for n in "1248")
RANK = "Rank: {} Epoch {}: train set accuracy 0.5 time {} throughput {} Sample Size 10000\n"
RANKS = RANK.format(1, 1, 10.0, 1000).replace("Rank:", "Rank :") + RANK.format(0, 1, 8.0, 1250)
SPEED = "INFO:root:Epoch[{}] Batch [{}]\tSpeed: {} samples/sec\taccuracy=0.5\n"
SPEEDS = SPEED.format(0, 20, 100) + "\nwords\n" + SPEED.format(0, "20-40", 300)
EPOCHS = "Epoch[{0}] Train-accuracy=0.{1}\nEpoch[{0}] Time cost={2}\n"
WORKERS = {
    f"worker-{w}.log": "".join(EPOCHS.format(e, 2 + w + e, 10 * (w + 1) + e) for e in (0, 1))
    for w in (0, 1)
}
SYNTHETIC = (
    "Model: ResNet50\nBatch size: 32\nNumber of GPUs: 4\nRunning benchmark...\n"
    "Iter #0: 103.5 img/sec per GPU\nIter #1: 101.5 img/sec per GPU\n"
    "Img/sec per GPU: 102.5 +-2.0\nTotal img/sec on 4 GPU(s): 410.0 +-8.0\n"
)
STALLED = SYNTHETIC.replace("#1: 101.5", "#1: 20.5").replace("102.5", "62.0")
TSV = "{}\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.01\t50.5\t80.0\n2\t0.025\t94.0\t98\n"
TSV += "3.5\t0.04\t94.5\t99\n"
RUNS = "".join(
    f"Train acc 0.9 loss 0.9, validation acc {accuracy} loss 0.99 wall time {seconds}s\n"
    for accuracy, seconds in ((0.942, 10), (0.938, 9), (0.94, 14))
)
TRAINED = {"validation_accuracy": 0.945, "validation_top5_accuracy": 0.99, "run_seconds": 144}
IMAGENET = "Epoch: [0][{}/626]\tTime {} ( 1.0)\tLoss 2.8e+00 (2.9e+00)\n"
SLOW_FIRST = "".join(IMAGENET.format(i, 0.4 if i else 12.8) for i in range(10))
BAR = "Epoch {}/3{}: 100%|##########| 98/98 [00:49<00:00, {:5.2f}it/s, loss=2.1]\n"
BARS = "".join(BAR.format(i, "", rate) for i, rate in enumerate((1.96, 2.0, 2.01), 1))
STATES = " 50%|#    | 50/100 [00:10<00:10,  9.00it/s]\r100%|###| 100/100 [00:20<00:00,  5.00it/s]\n"
KERAS = "Epoch 1/2\n1875/1875 [====] - 9s 5ms/step - loss: 0.25\n"
KERAS += "Epoch 2/2\n1875/1875 ━━━━━ 6s 3000us/step - accuracy: 0.9\n"
DEEPSPEED = (
    "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=1.5, "
    "CurrSamplesPerSec={1}, MemAllocated=1.0GB\n"
)
MEGATRON = (
    " iteration      100/  500000 | consumed samples:         1600 | elapsed time per iteration "
    "(ms): 234.5 | learning rate: 1.5E-04 | global batch size:    16 | lm loss: 9.5E+00 |\n"
)
STALL = "".join(
    f"Train: 0 [{i}] Time: {s}s, {256 / s}/s\n" for i, s in enumerate((0.4,) * 3 + (3.2,) * 1)
)
OF_STALL = r"Train: (?P<epoch>\d+) \[(?P<step>\d+)\] .*, +(?P<images_per_s>[\d.]+)/s"
TIME = r"Time (?P<step_seconds>[\d.]+)"
MONITORS = {
    "Training-loss.series.txt": "9 2.5\n19 2.25\n",
    "Training-time.timer.txt": "9 0.5 10 0.5\n19 1.0 10 1.5\n",
}

READ: list[tuple[str, Files, list[str], Mapping[str, float], str]] = [
    # each format, and what is done with its ranks and lines
    ("horovod-and-ddp", RANKS, [], {"images_per_s": 2250, "epoch_seconds": 10}, "sum over ranks"),
    ("horovod-and-ddp", RANKS, [], {}, "nobody said the backend; use --backend"),
    ("mxnet", SPEEDS, ONE, {"images_per_s": 150}, "harmonic mean over epochs and steps"),
    ("mxnet", SPEED.format(0, 1, 50) + SPEED.format(0, 2, "inf"), ONE, {"images_per_s": 50}, "inf"),
    ("mxnet", "2015-11 Node[3] Epoch[0] Time cost=1.06e1\n", FOUR, {"epoch_seconds": 10.6}, "1 of"),
    ("mxnet", "Epoch[0] Train-accuracy=nan\n" + EPOCHS.format(1, 4, 5), ONE, {}, "nan or inf, and"),
    ("mxnet", EPOCHS.format(1, 4, 5) + SPEEDS, FOUR, {"epoch_seconds": 5}, "make no sum; give the"),
    ("pathway2ai", "step 100 | train_loss 0.5 | test_loss 0.75 | step time 12.50ms\n", TWO,
     {"step_seconds": 0.0125, "test_loss": 0.75}, "a hundred"),
    ("nnabla", MONITORS, TWO, {"train_loss": 2.375, "step_seconds": 0.075}, "mean over steps"),
    ("nnabla", "iter=24 {Training time}=0.24[sec/12iter] 1.0[sec]\niter=24 {Learning rate}=0.1\n",
     ONE, {"step_seconds": 0.02, "learning_rate": 0.1}, ""),
    ("horovod-synthetic", STALLED, [], {"images_per_s": 8 / (1 / 103.5 + 1 / 20.5)},
     "one rank times world size, harmonic mean over steps"),
    ("dawnbench", TSV.format("epoch"), EIGHT, TRAINED, "(the last epoch of"),
    ("dawnbench", RUNS, EIGHT, {"run_seconds": 11}, "n = 3; mean over runs; no interval"),
    ("csv", ",world_size,step,images_per_s,step_ms\n0,2.0,1.0,100,20\n1,2,2,,30\n", [],
     {"images_per_s": 100, "step_seconds": 0.025}, ""),
    ("csv", "world_size,rank,epoch,images_per_s\n2,0,1,100\n2,1,1,110\n", [],
     {"images_per_s": 210}, "sum over ranks"),
    *(("csv", f"world_size,step,{name}\n2,0,100\n2,1,300\n", list[str](), {name: mean}, "")
      for name, mean in (("throughput", 150.0), ("ips", 150), ("images/s", 150), ("loss", 200))),
    # the README's own patterns, on lines of those tools
    ("pattern", STATES, [*documented("tqdm"), *EIGHT], {"step_seconds": 0.2}, "1 of 1 lines match"),
    ("pattern", BARS, [*documented("tqdm"), *EIGHT], {"step_seconds": 0.5025721731}, "over epochs"),
    ("pattern", KERAS, [*documented("Keras"), *EIGHT], {"step_seconds": 0.004}, "over epochs"),
    ("pattern", DEEPSPEED.format(1, 118) + DEEPSPEED.format(2, 122),
     [*documented("DeepSpeed"), *EIGHT], {"images_per_s": 2 / (1 / 118 + 1 / 122)}, ""),
    ("pattern", MEGATRON, [*documented("Megatron-LM"), *EIGHT], {"step_seconds": 0.2345}, ""),
    ("pattern", '{\n"train_samples_per_second": 91.25\n}\n',
     [*documented("Hugging Face Trainer"), *EIGHT], {"images_per_s": 91.25}, ""),
    # public cases: rates are averaged over seconds; a first line far off the rest is told
    ("pattern", STALL, [*patterns(OF_STALL), *FOUR], {"images_per_s": 4 * 256 / 4.4}, "harmonic"),
    ("pytorch-imagenet", SLOW_FIRST, FOUR, {"step_seconds": 1.64},
     "the first step_seconds is 12.8, and the median of the others 0.4; --skip 1 leaves it out"),
    ("pytorch-imagenet", SLOW_FIRST, [*FOUR, "--skip", "1"], {"step_seconds": 0.4}, "n = 9;"),
    # numbers that are cut, and lines that are not understood
    ("pattern", "Time 0.396\nTime 2\n", [*patterns(r"Time (?P<step_seconds>\d+)"), *ONE],
     {"step_seconds": 2}, "1 matches take a part of a number alone, and are not read"),
    ("pattern", "7,12,3\n8,14,2\n", [*patterns(r"(?P<step>\d+),(?P<step_ms>\d+),\d"), *ONE],
     {"step_seconds": 0.013}, ""),
    *(("mxnet", f"Epoch[0] Time cost={number}\nEpoch[1] Time cost=12.5\n", ONE,
       {"epoch_seconds": 12.5}, f"the first is line 1: 'Epoch[0] Time cost={number}'")
      for number in ("9,100.0", "1INFO:")),
    # ranks: lost ones make no sum; files are what the user says
    ("horovod-and-ddp", RANKS + RANK.format(0, 2, 9.0, 900), TWO, {"images_per_s": 2250},
     "images_per_s: 1 of 2 epochs are left out, as some of their ranks are not there"),
    ("mxnet", WORKERS, [*TWO, "--files", "ranks"], {"epoch_seconds": 20.5}, "slowest rank, mean"),
    ("mxnet", WORKERS, [*TWO, "--files", "runs"], {"epoch_seconds": 15.5}, "over runs and epochs"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "files", "options", "wanted", "words"), READ)
def test_numbers_are_read_and_averaged_as_they_must_be(
    bring: Import,
    form: str,
    files: Files,
    options: list[str],
    wanted: Mapping[str, float],
    words: str,
) -> None:
    ended = bring(form, files, *options)
    assert ended.code == 0, ended.words
    assert {name: ended.values[name] for name in wanted} == pytest.approx(wanted)
    assert words in ended.words
    assert "no interval" in ended.words


MIXED = r"(?:Epoch (?P<epoch>\d+)|Validation) took (?P<step_seconds>[\d.]+)"
REFUSED: list[tuple[str, Files, list[str], str]] = [
    *((name, content, patterns(TIME) if name == "pattern" else list[str](), "nothing in it is of")
      for name in FORMATS for content in ("", "no log\n", "\0\n")),
    ("nope", "x", [], "format 'nope' is none of horovod-and-ddp, nnabla,"),
    ("csv", "epoch,epoch,images_per_s\n1,2,3\n", [], "column epoch is there twice"),
    ("csv", "epoch,images_per_s\n1\n", [], "line 2 has 1 values for 2 columns"),
    ("csv", "epoch,images_per_s\n1,fast\n", [], "line 2: images_per_s='fast' is no number"),
    ("csv", "world_size,images_per_s\n0,5\n", [], "world_size is 0; mend it"),
    ("csv", "world_size,images_per_s\n2,1e400\n", [], "1 values are nan or inf, and not aver"),
    ("horovod-and-ddp", RANK.format(2, 1, 8, 9), TWO, "world_size is 2, and rank 2 is in it"),
    ("horovod-synthetic", SYNTHETIC, TWO, "it says world_size 4 itself, not 2; leave out"),
    ("mxnet", "Epoch[0] Time cost=1\n", [], "tells the world size; use --world-size"),
    ("mxnet", "Node[0] Epoch[0] Time cost=1\nEpoch[0] Time cost=1\n", [], "name no rank, others"),
    ("mxnet", "x", ["--batch", "1", "--global-batch", "2"], "two ways of scaling; give one"),
    ("mxnet", "x", ["--pattern", "Time"], "--pattern is of the format pattern"),
    ("pattern", "x", [], "--pattern '' has no named group; name one"),
    ("pattern", "x", ["--pattern", "("], "--pattern '(': missing ), unterminated subpattern"),
    # two numbers in one place: of ranks, of epochs that have no name, of training and validation
    ("horovod-and-ddp", RANKS + RANK.format(0, 1, 9, 9), [], "is 8 and 9 at rank 0, epoch 1; let"),
    ("mxnet", "".join(WORKERS.values()), TWO, "where ranks or runs wrote them, tag each (srun -l,"),
    ("pattern", BARS, [*patterns("100%.* (?P<steps_per_s>[0-9.]+)it/s"), *TWO],
     "step_seconds is 0.510204 and 0.5 in lines without a place; let the pattern name each line's"),
    ("pattern", BAR.format(1, " train", 2) + BAR.format(1, " valid", 10),
     [*documented("tqdm"), *TWO], "at epoch 1; let the pattern name each line's place, by (?P<"),
    ("pattern", "Epoch 0 took 0.5\nValidation took 0.1\n", [*patterns(MIXED), *ONE],
     "some lines of step_seconds name an epoch, and others none"),
    ("mxnet", WORKERS, TWO, "of one size; say what they are, --files runs or --files ranks"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "files", "options", "words"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(
    bring: Import, form: str, files: Files, options: list[str], words: str
) -> None:
    ended = bring(form, files, *options)
    assert ended.code == 2
    assert words in ended.words


@pytest.mark.parametrize(
    ("wrapped", "ranks"),
    [
        *((lambda log, tag=tag: re.sub("(?m)^", tag, log[:-1]), 1) for tag in (
            "[1,0]<stdout>:", "[prterun-node-1-123@1,0]<stdout>: ", "0: ", "[default0]:")),
        (lambda log: log.replace("Speed", "\x1b[32mSp\x1b[0meed"), 1),
        (lambda log: "\ufeff" + log.replace("\n", "\r\r\n"), 1),
        (lambda log: "srun: job 7 queued\n" + re.sub("(?m)^", "0: ", log[:-1])
         + "\n" + re.sub("(?m)^", "1: ", log[:-1]) + "\nslurmstepd: error: CANCELLED\n", 2),
    ],
)  # fmt: skip
def test_tags_colours_and_line_ends_change_no_number(
    bring: Import, wrapped: object, ranks: int
) -> None:
    ended = bring("mxnet", wrapped(SPEEDS), *(ONE if ranks == 1 else []))  # type: ignore[operator]
    assert ended.values["images_per_s"] == pytest.approx(ranks * 150)
    assert set(ended.points["world_size"]) == {ranks}


def test_epochs_as_a_markdown_table(bring: Import) -> None:
    ended = bring("mxnet", WORKERS, *TWO, "--files", "ranks", "--epochs")
    assert ended.words.splitlines()[:4] == [
        "| epoch | train_accuracy (mean) | epoch_seconds (slowest rank) |",
        "| --- | --- | --- |",
        "| 0 | 0.25 | 20 |",
        "| 1 | 0.35 | 21 |",
    ]


def test_each_model_is_a_source_of_its_own_and_a_line_counts_once(bring: Import) -> None:
    other = SYNTHETIC.replace("ResNet50", "VGG16")
    ended = bring("horovod-synthetic", {"a.log": 2 * SYNTHETIC, "b.log": other})
    assert {*ended.points["source"]} == {"a-b, ResNet50", "a-b, VGG16"}
    assert "4 numbers stand there twice, and count once" in ended.words


def test_nothing_is_overwritten_and_no_log_counts_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("world_size,images_per_s\n2,5\n")
    words = ["import", "csv", str(path), "--out"]
    assert main([*words, str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "out"), str(path)]) == 2
    assert "name each once" in capsys.readouterr().err
    assert (main([*words, str(tmp_path / "out")]), main([*words, str(tmp_path / "out")])) == (0, 0)
    path.write_text("world_size,images_per_s\n2,6\n")
    assert main([*words, str(tmp_path / "out")]) == 2
    assert main([*words, str(tmp_path / "out"), "--force"]) == 0
    assert "2.0,,,images_per_s,6.0," in (tmp_path / "out" / "plain.csv").read_text()
