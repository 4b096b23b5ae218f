"""The user's own regular expressions; those of the README read the formats that it lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plots.importing import Import

README = (Path(__file__).parents[2] / "plots" / "README.md").read_text()
IMAGENET = (
    "=> creating model 'resnet50'\n"
    "Epoch: [34][ 5/53]\tTime  0.396 ( 1.135)\tData  0.000 ( 0.739)\tLoss 2.8e+00 (2.9e+00)\t"
    "Acc@1  40.62 ( 38.41)\n"
    "Epoch: [34][10/53]\tTime  0.404 ( 0.769)\tData  0.000 ( 0.370)\tLoss 2.7e+00 (2.9e+00)\t"
    "Acc@1  42.00 ( 39.01)\n"
    "Test: [ 0/10]\tTime  1.396 ( 1.396)\tLoss 2.8e+00 (2.8e+00)\n"
)
TQDM = (
    "  0%|          | 0/100 [00:00<?, ?it/s]\r 50%|#####     | 50/100 [00:10<00:10,  5.00it/s]"
    "\r100%|##########| 100/100 [00:20<00:00,  4.90it/s]\r"
    "100%|##########| 100/100 [00:20<00:00,  5.00it/s]\n"
)
SLOW = "100%|##########| 100/100 [05:00<00:00,  3.00s/it]\n"
KERAS = (
    "Epoch 1/2\n1875/1875 [==============================] - 9s 5ms/step - loss: 0.25\n"
    "Epoch 2/2\n1875/1875 ━━━━━━━━━━━━━━━━━━━━ 6s 3000us/step - accuracy: 0.9 - loss: 0.2\n"
)
DEEPSPEED = (
    "[2023-04-01 10:00:00,123] [INFO] [timer.py:199:stop] epoch=0/micro_step=20/global_step=10, "
    "RunningAvgSamplesPerSec=120.5, CurrSamplesPerSec=118.0, MemAllocated=1.0GB\n"
    "[2023-04-01 10:00:10,123] [INFO] [timer.py:199:stop] epoch=0/micro_step=40/global_step=20, "
    "RunningAvgSamplesPerSec=121.5, CurrSamplesPerSec=122.0, MemAllocated=1.0GB\n"
)
MEGATRON = (
    " [2024-01-01 10:00:00] iteration      100/  500000 | consumed samples:         1600 | elapsed "
    "time per iteration (ms): 234.5 | learning rate: 1.5E-04 | global batch size:    16 | lm loss: "
    "9.5E+00 | loss scale: 1.0 |\n"
)
TRAINER_FILE = (
    '{\n    "epoch": 3.0,\n    "train_loss": 0.5,\n    "train_samples_per_second": 91.25\n}\n'
)


def documented(name: str) -> list[str]:
    """List the patterns that the README shows in the row of a format."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {name} |")]
    found = re.findall(r"`([^`]*\(\?P<[^`]*)`", row)
    assert found
    return [word for pattern in found for word in ("--pattern", pattern)]


@pytest.mark.parametrize(
    ("name", "log", "wanted"),
    [
        ("PyTorch's ImageNet example", IMAGENET, {"step_seconds": 0.4}),
        ("tqdm", TQDM, {"step_seconds": 0.2}),
        ("tqdm", SLOW, {"step_seconds": 3.0}),
        ("Keras", KERAS, {"step_seconds": 0.004}),
        ("DeepSpeed", DEEPSPEED, {"images_per_s": 2 / (1 / 118 + 1 / 122)}),
        ("Megatron-LM", MEGATRON, {"step_seconds": 0.2345}),
        ("Hugging Face Trainer", TRAINER_FILE, {"images_per_s": 91.25}),
    ],
)
def test_the_readmes_patterns_read_their_formats(
    bring: Import, name: str, log: str, wanted: dict[str, float]
) -> None:
    ended = bring("pattern", log, *documented(name), "--world-size", "8", "--backend", "ddp")
    assert ended.quantities == wanted.keys()
    for quantity, value in wanted.items():
        batch = {"global_batch": 16} if log is MEGATRON else {}
        assert ended.value(quantity, world_size=8, **batch) == pytest.approx(value)


def test_ranks_that_all_print_are_refused_unless_tagged(bring: Import) -> None:
    words = (*documented("PyTorch's ImageNet example"), "--world-size", "2")
    other = IMAGENET.replace("0.396", "0.390").replace("0.404", "0.410")
    assert "where ranks wrote them, tag each" in bring("pattern", IMAGENET + other, *words).said
    tagged = "".join(
        f"{rank}: {line}"
        for rank, log in enumerate((IMAGENET, other))
        for line in log.splitlines(keepends=True)
    )
    ended = bring("pattern", tagged, *words)
    assert ended.value("step_seconds") == pytest.approx((0.396 + 0.410) / 2)
    assert "slowest rank, mean over epochs and steps" in ended.said


def test_a_part_of_a_number_is_not_read(bring: Import) -> None:
    log = "Time 0.396\nTime 2\n"
    ended = bring("pattern", log, "--pattern", r"Time (?P<step_seconds>\d+)", "--world-size", "1")
    assert ended.value("step_seconds") == 2
    assert "1 matches take a part of a number alone, and are not read" in ended.said


def test_a_marker_counts_what_did_not_match(bring: Import) -> None:
    words = ("--pattern", r"Time (?P<step_seconds>[\d.]+)", "--world-size", "1")
    log = "Time 2.0\nTime: 3.0\nwords\n"
    assert "1 of 3 lines match; --marker TEXT counts those" in bring("pattern", log, *words).said
    ended = bring("pattern", log, *words, "--marker", "Time")
    assert "1 of 2 lines with the format's marker were not understood" in ended.said


ROWS = "Train: 0 [{step}] Time: {seconds}s, {rate}/s\n"
RATE_OF_ROWS = r"Train: (?P<epoch>\d+) \[(?P<step>\d+)\] .*, +(?P<images_per_s>[\d.]+)/s"


def test_rates_are_averaged_over_seconds(bring: Import) -> None:
    """Eight times 256 images in 6 s."""
    seconds = [0.4] * 3 + [3.2] + [0.4] * 4
    log = "".join(ROWS.format(step=i, seconds=s, rate=256 / s) for i, s in enumerate(seconds))
    ended = bring("pattern", log, "--pattern", RATE_OF_ROWS, "--world-size", "4")
    assert ended.value("images_per_s") == pytest.approx(8 * 256 / 6)
    assert "harmonic mean over epochs and steps" in ended.said


def test_a_first_line_far_off_is_told_and_left_out(bring: Import) -> None:
    line = "Epoch: [0][{}/626]\tTime {} ( 1.0)\n"
    log = "".join(line.format(i, 0.4 if i else 12.8) for i in range(10))
    ended = bring("pytorch-imagenet", log, "--world-size", "4")
    assert ended.value("step_seconds") == pytest.approx(1.64)
    assert (
        "the first step_seconds is 12.8, and the median of the others 0.4; --skip 1" in ended.said
    )
    skipped = bring("pytorch-imagenet", log, "--world-size", "4", "--skip", "1")
    assert skipped.value("step_seconds") == pytest.approx(0.4)
    assert "n = 9;" in skipped.said
    assert "--skip" not in skipped.said


BAR = "Epoch {}/3{}: 100%|##########| 98/98 [00:49<00:00, {:5.2f}it/s, loss=2.1]\n"


def test_lines_that_differ_in_place_get_their_reason(bring: Import) -> None:
    size = ("--world-size", "2")
    log = "".join(BAR.format(i, "", rate) for i, rate in enumerate((1.96, 2.0, 2.01), 1))
    ended = bring("pattern", log, *documented("tqdm"), *size)
    assert ended.value("step_seconds") == pytest.approx(0.5026, abs=1e-4)
    bare = ("--pattern", r"100%.*, +(?P<steps_per_s>[\d.]+)it/s", *size)
    assert (
        "lines without a place; let the pattern name it, by (?P<epoch>"
        in bring("pattern", log, *bare).said
    )
    both = BAR.format(1, " train", 2) + BAR.format(1, " valid", 10)
    said = bring("pattern", both, *documented("tqdm"), *size).said
    assert "two bars or lines an epoch, such as training and validation" in said
