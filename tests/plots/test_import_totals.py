"""Lines put together: what is of one run, and a file's own totals held against ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from plots.__main__ import main
from tests.plots.importing import Import

RANK = "Rank: {} Epoch {}: train set accuracy 0.5 time 10.00 throughput {} Sample Size {}\n"


def synthetic(rates: list[float], mean: float, world: int = 4) -> str:
    lines = "".join(f"Iter #{i}: {r:.1f} img/sec per GPU\n" for i, r in enumerate(rates))
    return (
        f"Model: resnet50\nBatch size: 32\nNumber of GPUs: {world}\nRunning warmup...\n"
        f"Running benchmark...\n{lines}Img/sec per GPU: {mean:.1f} +-2.0\n"
        f"Total img/sec on {world} GPU(s): {world * mean:.1f} +-8.0\n"
    )


def test_a_log_that_a_restart_repeated_counts_once(bring: Import) -> None:
    log = RANK.format(0, 1, 1689, 16890)
    ended = bring("horovod-and-ddp", 2 * log)
    assert ended.value("images_per_s") == 1689
    assert "4 numbers stand there twice, and count once" in ended.out


def test_unequal_repeats_are_refused(bring: Import) -> None:
    ended = bring(
        "horovod-and-ddp", RANK.format(0, 1, 1689, 16890) + RANK.format(0, 1, 1500, 15000)
    )
    assert ended.code == 2
    assert "rank_images_per_s is 1689 and 1500 at rank 0, epoch 1" in ended.err


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
    assert "0 of 6 lines with the format's marker were not understood" in ended.out


def test_batch_ranges_that_all_begin_at_zero_are_steps(bring: Import) -> None:
    line = "Epoch[0] Batch [0-{}]\tSpeed: {} samples/sec\taccuracy=0.5\n"
    ended = bring("mxnet", line.format(20, 100) + line.format(40, 300), "--world-size", "1")
    assert ended.value("images_per_s") == 150


def test_a_csv_with_ranks_is_summed(bring: Import) -> None:
    ended = bring("csv", "world_size,rank,epoch,images_per_s\n2,0,1,100\n2,1,1,110\n")
    assert ended.value("images_per_s") == 210
    assert "sum over ranks" in ended.out


def test_the_warm_up_of_keras_script_is_left_out_as_its_own_mean_does(bring: Import) -> None:
    log = synthetic([20.0, 100.0, 102.0, 104.0], 102.0)
    assert (
        "leave out the warm-up of Keras' script by --skip 1" in bring("horovod-synthetic", log).err
    )
    ended = bring("horovod-synthetic", log, "--skip", "1")
    assert ended.value("images_per_s") == pytest.approx(4 * 3 / (1 / 100 + 1 / 102 + 1 / 104))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (synthetic([100.0, 102.0, 104.0], 90.0), "its lines have the mean 102.0"),
        (synthetic([100.0, 104.0], 102.0).replace(": 408.0", ": 608.0"), "its total is 608, and 4"),
        (synthetic([100.0, 104.0], 102.0).replace("Iter #1: 104.0 img", "Iter #1: 1"), "the mean"),
        (2 * synthetic([100.0, 104.0], 102.0).replace("#0: 100", "#0: 98"), "the mean"),
    ],
)
def test_a_mean_or_total_that_is_not_ours_is_refused(bring: Import, log: str, said: str) -> None:
    ended = bring("horovod-synthetic", log)
    assert ended.code == 2
    assert said in ended.err


def test_a_pasted_total_alone_is_the_rate(bring: Import) -> None:
    ended = bring("horovod-synthetic", "Total img/sec on 16 GPU(s): 1656.8 +-8.0\n")
    assert ended.value("images_per_s", world_size=16) == 1656.8


EPOCHS = "Epoch[{0}] Train-accuracy=0.{1}\nEpoch[{0}] Time cost={2}\n"
WORKERS = {
    f"worker-{w}.log": "".join(EPOCHS.format(e, 2 + w + e, 10 * (w + 1) + e) for e in (0, 1))
    for w in (0, 1)
}


def test_workers_without_names_in_one_file_are_refused(bring: Import) -> None:
    ended = bring("mxnet", "".join(WORKERS.values()), "--world-size", "2")
    assert ended.code == 2
    assert "train_accuracy is 0.2 and 0.3 at epoch 0: two bars or lines an epoch" in ended.err


def test_files_of_one_size_are_what_the_user_says(bring: Import) -> None:
    size = ("--world-size", "2")
    assert "say what they are, --files runs or --files ranks" in bring("mxnet", WORKERS, *size).err
    ranks = bring("mxnet", WORKERS, *size, "--files", "ranks")
    assert ranks.value("epoch_seconds") == 20.5
    assert "slowest rank, mean over epochs" in ranks.out
    runs = bring("mxnet", WORKERS, *size, "--files", "runs")
    assert runs.value("epoch_seconds") == 15.5
    assert "mean over runs and epochs" in runs.out
    again = bring("mxnet", WORKERS, *size, "--files", "ranks", "--epochs")
    assert "| 1 | 0.35 | 21 |" in again.out


@pytest.mark.parametrize("node", ["", "Node[0] "])
def test_one_worker_of_mxnet_speaks_for_all_its_gpus(bring: Import, node: str) -> None:
    said = "INFO:root:Namespace(batch_size=256, gpus='4,5,6,7', kv_store='device', lr=0.1)"
    speeds = [f"INFO:root:{node}Epoch[0] Batch [{i}0]\tSpeed: {i}00 samples/sec" for i in (1, 2)]
    log = "\n".join([said, *speeds]) + "\n"
    assert bring("mxnet", log).value("images_per_s", world_size=4) == pytest.approx(400 / 3)
    assert "says world_size 4 itself" in bring("mxnet", log, "--world-size", "1").err


def test_gpus_of_several_workers_are_no_world(bring: Import) -> None:
    line = "Node[{0}] Epoch[0] Batch [20]\tSpeed: {1} samples/sec\n"
    log = line.format(0, 90) + line.format(1, 110)
    for said in ("gpus='0,1', kv_store='dist_sync'\n", "Start training with [gpu(0), gpu(1)]\n"):
        ended = bring("mxnet", said + log)
        assert ended.value("images_per_s", world_size=2) == 200
        assert "a worker has 2 GPUs: the world size counts workers" in ended.out


def test_a_worker_lost_in_the_last_epoch_is_told(bring: Import) -> None:
    lost = {**WORKERS, "worker-1.log": WORKERS["worker-1.log"].split("Epoch[1]")[0]}
    ended = bring("mxnet", lost, "--world-size", "2", "--files", "ranks")
    assert ended.value("epoch_seconds") == 20
    assert "epoch_seconds: 1 of 2 epochs are left out" in ended.out


def test_one_workers_rate_is_not_multiplied(bring: Import) -> None:
    log = "Epoch[0] Batch [20]\tSpeed: 100 samples/sec\nEpoch[0] Time cost=5\n"
    ended = bring("mxnet", log, "--world-size", "4")
    assert ended.quantities == {"epoch_seconds"}
    assert "rates of one rank of 4, which is not named, make no sum" in ended.out


TSV = "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.01\t50.5\t80.0\n{}\n3.5\t0.04\t94.5\t99\n"


@pytest.mark.parametrize("spaces", ["\t", "    "])
def test_a_training_to_a_target(bring: Import, spaces: str) -> None:
    log = TSV.format("2.00096\t0.025\t94.0\t98").replace("\t", spaces)
    ended = bring("dawnbench", log, "--world-size", "8", "--target", "94")
    assert ended.value("top1_target_94_seconds") == pytest.approx(90)
    assert ended.value("top5_target_94_seconds") == pytest.approx(90)
    assert ended.value("run_seconds") == pytest.approx(144)
    assert ended.value("validation_top5_accuracy") == pytest.approx(0.99)
    never = bring("dawnbench", log, "--world-size", "8", "--target", "99.5")
    assert "it never reaches 99.5: its best is 99" in never.err


def test_hours_that_fall_are_of_two_trainings(bring: Import) -> None:
    ended = bring("dawnbench", TSV.format("2\t0.0\t94.0\t98"), "--world-size", "8")
    assert ended.code == 2
    assert "hours at epoch 2 are 0, and 0.01 at 1" in ended.err


def test_runs_at_a_target(bring: Import) -> None:
    line = "Train acc 0.9 loss 0.9, validation acc {} loss 0.99 wall time {}s\n"
    log = line.format(0.942, 10) + line.format(0.938, 9)
    ended = bring("dawnbench", log, "--world-size", "8", "--target", "94")
    assert ended.value("share_of_runs_at_target") == 0.5
    assert ended.value("run_seconds") == 9.5


def test_series_keep_their_names(bring: Import) -> None:
    files: dict[str, str | bytes] = {
        "Training-loss.series.txt": "9 2.5\n19 2.25\n",
        "Training-error.series.txt": "9 0.9\n19 0.8\n",
        "Training-time.timer.txt": "9 0.5 10 0.5\n19 1.0 10 1.5\n",
    }
    ended = bring("nnabla", files, "--world-size", "2")
    assert ended.value("train_loss") == 2.375
    assert ended.value("train_error") == pytest.approx(0.85)
    assert ended.value("step_seconds") == pytest.approx(0.075)


def test_console_monitors_keep_their_names(bring: Import) -> None:
    lines = (
        "[nnabla][INFO]: iter=12 {Training loss}=2.5\n"
        "[nnabla][INFO]: iter=12 {Learning rate}=0.1\n"
        "[nnabla][INFO]: iter=12 {Training time}=0.24[sec/12iter] 0.24[sec]\n"
    )
    ended = bring("nnabla", lines, "--world-size", "1")
    assert ended.quantities == {"train_loss", "learning_rate", "step_seconds"}


def test_a_csv_that_pandas_wrote(bring: Import) -> None:
    table = ",world_size,global_batch,step,images_per_s\n0,2.0,128.0,1.0,100.0\n1,2.0,128.0,2,120\n"
    ended = bring("csv", table)
    assert ended.value("images_per_s", global_batch=128) == pytest.approx(2 / (1 / 100 + 1 / 120))
    assert ended.quantities == {"images_per_s"}
    assert "has no name" in bring("csv", table.replace("\n1,", "\n5,")).err


def test_two_rates_of_one_point_make_no_baseline(
    tmp_path: Path, bring: Import, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tables"
    for i, rate in enumerate((100, 120)):
        path = tmp_path / f"{i}.csv"
        path.write_text(f"backend,world_size,images_per_s\nddp,1,{rate}\n")
        words = ["import", "csv", str(path), "--source", "me", "--out", str(out)]
        assert main(words) == 0
    assert main(["published", str(out)]) == 2
    assert "ddp at 1 ranks has two rates" in capsys.readouterr().err


def test_runs_keep_their_mean_in_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "backend,world_size,run,images_per_s\nddp,1,0,100\nddp,1,1,120\nddp,2,0,180\nddp,2,1,180\n"
    )
    out = str(tmp_path / "out")
    assert main(["import", "csv", str(path), "--source", "me", "--out", out]) == 0
    assert main(["published", out]) == 0
    page = (tmp_path / "out" / "published.md").read_text()
    assert "82.5 %" in page, "180 over twice the harmonic mean of 100 and 120"
    assert "median over runs" in page.split("## Other quantities")[1]


def test_an_imported_table_of_values_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("Epoch[0] Time cost=10\nEpoch[1] Time cost=nan\nEpoch[2] Time cost=12\n")
    words = ["--backend", "ps", "--world-size", "1", "--values", "--out", str(tmp_path / "once")]
    assert main(["import", "mxnet", str(path), *words]) == 0
    values = tmp_path / "once" / "log-values.csv"
    assert main(["import", "csv", str(values), "--out", str(tmp_path / "again")]) == 0
    points = (tmp_path / "again" / "log-values.csv").read_text()
    assert "ps,1.0,,,epoch_seconds,11.0,2,mean over epochs" in points


def test_a_heading_is_held_against_the_options(bring: Import) -> None:
    ended = bring("horovod-synthetic", synthetic([100.0, 104.0], 102.0), "--batch", "64")
    assert "it says batch_per_rank 32 itself; leave out --batch 64" in ended.err


def test_two_lines_in_one_are_not_understood(bring: Import) -> None:
    log = "Epoch[0] Time cost=1Epoch[0] Time cost=10\nEpoch[1] Time cost=12.5\n"
    ended = bring("mxnet", log, "--world-size", "1")
    assert "1 of 2 lines with the format's marker were not understood" in ended.out
