"""Lines put together: what is of one run, of ranks and of epochs, and how they are averaged."""

from __future__ import annotations

import pytest

from tests.plots.importing import Import
from tests.plots.test_imports import LINE, SYNTHETIC

RANK = "Rank: {} Epoch {}: train set accuracy 0.5 time 10.00 throughput {} Sample Size {}\n"


def test_repeats_of_a_restart_count_once_and_unequal_ones_are_refused(bring: Import) -> None:
    log = RANK.format(0, 1, 1689, 16890)
    ended = bring("horovod-and-ddp", 2 * log)
    assert ended.value("images_per_s") == 1689
    assert "4 numbers stand there twice, and count once" in ended.said
    ended = bring("horovod-and-ddp", log + RANK.format(0, 1, 1500, 15000))
    assert ended.code == 2
    assert "rank_images_per_s is 1689 and 1500 at rank 0, epoch 1" in ended.said
    assert bring("horovod-synthetic", 2 * SYNTHETIC).value("images_per_s") == pytest.approx(
        409.961, abs=1e-3
    )
    assert bring("horovod-synthetic", SYNTHETIC + SYNTHETIC.replace("103.5", "98.5")).code == 2


def test_a_stated_mean_that_the_lines_do_not_have_is_refused(bring: Import) -> None:
    lost = "".join(line for line in SYNTHETIC.splitlines(True) if "Iter #1" not in line)
    for log in (SYNTHETIC.replace("102.5", "90.0"), lost.replace("103.5", "93.5")):
        ended = bring("horovod-synthetic", log)
        assert ended.code == 2
        assert "images/s, and it states " in ended.said
    stalled = SYNTHETIC.replace("#1: 101.5", "#1: 20.5").replace("102.5", "62.0")
    assert bring("horovod-synthetic", stalled).value("images_per_s") == pytest.approx(
        4 * 2 / (1 / 103.5 + 1 / 20.5)
    )


def test_a_speed_line_for_each_metric_is_one_speed(bring: Import) -> None:
    """As MXNet wrote them from March 2016 to May 2017."""
    line = "INFO:root:Epoch[0] Batch [{}]\tSpeed: {} samples/sec\tTrain-{}=0.{}\n"
    metrics = ("accuracy", "top_k_accuracy_5", "cross-entropy")
    log = "".join(
        line.format(batch, speed, metric, i)
        for batch, speed in ((20, 47.0), (40, 47.6))
        for i, metric in enumerate(metrics, 3)
    )
    ended = bring("mxnet", log, "--world-size", "1")
    assert ended.value("images_per_s") == pytest.approx(2 / (1 / 47 + 1 / 47.6))
    assert "0 of 6 lines with the format's marker were not understood" in ended.said


def test_a_csv_with_ranks_is_summed(bring: Import) -> None:
    ended = bring("csv", "world_size,rank,epoch,images_per_s\n2,0,1,100\n2,1,1,110\n")
    assert ended.value("images_per_s") == 210
    assert "sum over ranks" in ended.said


def test_a_csv_that_pandas_wrote(bring: Import) -> None:
    table = ",world_size,global_batch,step,images_per_s\n0,2.0,128.0,1.0,100.0\n1,2.0,128.0,2,120\n"
    ended = bring("csv", table)
    assert ended.value("images_per_s", global_batch=128) == pytest.approx(2 / (1 / 100 + 1 / 120))
    assert ended.quantities == {"images_per_s"}
    ended = bring(
        "csv", "backend,world_size,step,images_per_s,step_ms\nddp,2,0,100,20\nddp,2,1,,30\n"
    )
    assert ended.value("images_per_s", backend="ddp") == 100
    assert ended.value("step_seconds", world_size=2) == pytest.approx(0.025)


def test_a_lost_worker_makes_no_sum(bring: Import) -> None:
    log = LINE.format(0, 1) + LINE.format(1, 1) + LINE.format(0, 2)
    ended = bring("horovod-and-ddp", log, "--world-size", "2")
    assert ended.value("images_per_s") == 2000, "of the epoch that all ranks finished"
    assert "images_per_s: 1 of 2 sums over 2 ranks are left out" in ended.said
    ended = bring("horovod-and-ddp", log, "--world-size", "4")
    assert "images_per_s: 2 of 2 sums over 4 ranks are left out" in ended.said


def test_a_rate_is_multiplied_only_where_its_tool_does_so(bring: Import) -> None:
    ended = bring("horovod-synthetic", SYNTHETIC)
    assert ended.value("images_per_s", world_size=4) == pytest.approx(8 / (1 / 103.5 + 1 / 101.5))
    log = "Epoch[0] Batch [20]\tSpeed: 100 samples/sec\nEpoch[0] Time cost=5\n"
    ended = bring("mxnet", log, "--world-size", "4")
    assert ended.quantities == {"epoch_seconds"}
    assert "rates of one rank of 4, which is not named, make no sum" in ended.said


EPOCHS = "Epoch[{0}] Train-accuracy=0.{1}\nEpoch[{0}] Time cost={2}\n"
WORKERS = {
    f"worker-{w}.log": "".join(EPOCHS.format(e, 2 + w + e, 10 * (w + 1) + e) for e in (0, 1))
    for w in (0, 1)
}


def test_workers_without_names_in_one_file_are_refused(bring: Import) -> None:
    ended = bring("mxnet", "".join(WORKERS.values()), "--world-size", "2")
    assert ended.code == 2
    assert "train_accuracy is 0.2 and 0.3 at epoch 0: two bars or lines an epoch" in ended.said


def test_files_of_one_size_are_what_the_user_says(bring: Import) -> None:
    size = ("--world-size", "2")
    assert "say what they are, --files runs or --files ranks" in bring("mxnet", WORKERS, *size).said
    ranks = bring("mxnet", WORKERS, *size, "--files", "ranks")
    assert ranks.value("epoch_seconds") == 20.5
    assert "slowest rank, mean over epochs" in ranks.said
    runs = bring("mxnet", WORKERS, *size, "--files", "runs")
    assert runs.value("epoch_seconds") == 15.5
    assert "mean over runs and epochs" in runs.said
    lost = {**WORKERS, "worker-1.log": WORKERS["worker-1.log"].split("Epoch[1]")[0]}
    ended = bring("mxnet", lost, *size, "--files", "ranks")
    assert ended.value("epoch_seconds") == 20
    assert "epoch_seconds: 1 of 2 epochs are left out" in ended.said


def test_epochs_as_a_markdown_table(bring: Import) -> None:
    ended = bring("mxnet", WORKERS, "--world-size", "2", "--files", "ranks", "--epochs")
    assert ended.said.splitlines()[:4] == [
        "| epoch | train_accuracy (mean) | epoch_seconds (slowest rank) |",
        "| --- | --- | --- |",
        "| 0 | 0.25 | 20 |",
        "| 1 | 0.35 | 21 |",
    ]


TSV = "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.01\t50.5\t80.0\n{}\n3.5\t0.04\t94.5\t99\n"


@pytest.mark.parametrize("spaces", ["\t", "    "])
def test_a_training_to_a_target(bring: Import, spaces: str) -> None:
    log = TSV.format("2.00096\t0.025\t94.0\t98").replace("\t", spaces)
    ended = bring("dawnbench", log, "--world-size", "8", "--target", "94")
    assert ended.value("top1_target_94_seconds") == pytest.approx(90)
    assert ended.value("top5_target_94_seconds") == pytest.approx(90)
    assert ended.value("run_seconds") == pytest.approx(144)
    assert "mean over runs (the last epoch" in ended.said
    assert ended.value("validation_top5_accuracy") == pytest.approx(0.99)
    never = bring("dawnbench", log, "--world-size", "8", "--target", "99.5")
    assert "it never reaches 99.5: its best is 99" in never.said


def test_runs_at_a_target(bring: Import) -> None:
    line = "Train acc 0.9 loss 0.9, validation acc {} loss 0.99 wall time {}s\n"
    log = line.format(0.942, 10) + line.format(0.938, 9) + line.format(0.94, 14)
    ended = bring("dawnbench", log, "--world-size", "8", "--target", "94")
    assert ended.value("share_of_runs_at_target") == pytest.approx(2 / 3)
    assert ended.value("run_seconds") == 11
    assert "run_seconds 10 (n = 3; median over runs" in ended.said


def test_series_and_console_monitors_keep_their_names(bring: Import) -> None:
    files = {
        "Training-loss.series.txt": "9 2.5\n19 2.25\n",
        "Training-time.timer.txt": "9 0.5 10 0.5\n19 1.0 10 1.5\n",
    }
    ended = bring("nnabla", files, "--world-size", "2")
    assert ended.value("train_loss") == 2.375
    assert ended.value("step_seconds") == pytest.approx(0.075)
    lines = "INFO: iter=12 {Training loss}=2.5\nINFO: iter=12 {Learning rate}=0.1\n"
    ended = bring("nnabla", lines, "--world-size", "1")
    assert ended.quantities == {"train_loss", "learning_rate"}


def test_whatever_is_named_as_a_rate_is_averaged_as_one(bring: Import) -> None:
    for name in ("throughput", "samples_per_sec", "ips", "images/s"):
        ended = bring("csv", f"world_size,step,{name}\n2,0,100\n2,1,300\n")
        assert ended.value(name) == 150


def test_lines_with_and_without_an_epoch_make_no_mean(bring: Import) -> None:
    log = "Epoch 0 took 0.5\nEpoch 1 took 0.5\nValidation took 0.1\n"
    pattern = r"(?:Epoch (?P<epoch>\d+)|Validation) took (?P<step_seconds>[\d.]+)"
    ended = bring("pattern", log, "--pattern", pattern, "--world-size", "1")
    assert ended.code == 2
    assert "some lines of step_seconds name an epoch, and others none" in ended.said
