"""Trainings to a target: what is held out, when one is done, and what its log must show."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from bench import data
from bench.config import RunConfig, make_config, parse_argv
from bench.record import Run, outcome, read_run
from bench.train.device import Cpu
from bench.train.target import count_correct, training_seed
from tests.bench.ranks import bench

MLP = ("--model", "mlp", "--dataset", "digits", "--image-size", "8", "--base-lr", "0.8")
SHORT = ("--warmup-steps", "3", "--windows", "1", "--steps-per-window", "2")
LEARNT = (*MLP, *SHORT, "--epochs", "4", "--trainings", "2", "--target", "0.93")


def config(**fields: Any) -> RunConfig:
    return make_config({"dataset": "digits", "image_size": 8, "global_batch": 32, **fields})


def test_a_fifth_of_the_digits_is_held_out_and_the_same_for_every_seed() -> None:
    asked = config(epochs=3)
    trained, judged = data.load_images(asked), data.load_held_out(asked, data.load_images(asked))
    assert (trained.samples, judged.samples) == (1438, 359)

    def rows(images: Any) -> set[bytes]:
        pixels, _ = images.__getitems__(list(range(images.samples)))
        return {image.numpy().tobytes() for image in pixels}

    # digits that were written alike, to the pixel, may be on both sides; there is none
    assert not rows(trained) & rows(judged)
    other = config(epochs=3, seed=5)
    assert rows(data.load_held_out(other, data.load_images(other))) == rows(judged)
    assert data.load_images(config()).samples == 1797
    assert set(judged.__getitems__(list(range(359)))[1].tolist()) == set(range(10))
    # mean and deviation are those of what is trained on: nothing is learnt from what is held out
    pixels, _ = trained.__getitems__(list(range(1438)))
    assert pixels.mean().item() == pytest.approx(0, abs=1e-5)
    assert pixels.std(unbiased=False).item() == pytest.approx(1, abs=1e-4)
    assert abs(judged.__getitems__(list(range(359)))[0].mean().item()) > 1e-4


def test_generated_samples_are_of_their_seed_and_number_alone() -> None:
    asked = config(dataset="generated", epochs=1, image_size=16)
    trained, judged = data.load_images(asked), data.load_held_out(asked, data.load_images(asked))
    assert (trained.classes, trained.samples, judged.samples) == (32, 10_000, 2_000)
    images, labels = trained.__getitems__([7, 40, 7])
    assert (images.shape, images.dtype) == ((3, 3, 16, 16), torch.float32)
    assert labels.tolist() == [7, 8, 7]
    assert torch.equal(images[0], images[2])
    assert torch.equal(trained.__getitems__([40])[0][0], images[1])
    other = data.load_images(config(dataset="generated", image_size=16, seed=1))
    for images_of in (judged, other):
        assert not torch.equal(images_of.__getitems__([7])[0][0], images[0])
    # nine deviations between two centres, whatever the size: the means of many samples tell
    for size in (16, 32):
        made = data.load_images(config(dataset="generated", image_size=size))
        three, nine = (
            made.__getitems__([label + 32 * i for i in range(300)])[0][:, 0].mean(0)
            for label in (3, 9)
        )
        # the means' own noise adds 2 size^2 / 300 to the square
        expected = (81 + 2 * size**2 / 300) ** 0.5
        assert (three - nine).norm().item() == pytest.approx(expected, rel=0.2)


def test_every_training_has_a_seed_of_its_own() -> None:
    seeds = {training_seed(seed, training) for seed in range(50) for training in range(20)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_the_rate_falls_to_the_last_step() -> None:
    falling = config(base_lr=0.8, lr_warmup_steps=2, lr_decay="linear")
    assert falling.peak_learning_rate == pytest.approx(0.1)
    found = [falling.learning_rate(step, 6) for step in range(6)]
    assert found == pytest.approx([0.05, 0.1, 0.1, 0.075, 0.05, 0.025])
    assert config(base_lr=0.8).learning_rate(5, 6) == pytest.approx(0.1)
    assert falling.learning_rate(0) == falling.learning_rate(0, falling.steps)


class _Brightest(torch.nn.Module):
    """Says the class of the brightest of ten given pixels, so what it has right is known."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, 0].flatten(1)[:, 20:30]


def test_ranks_judge_each_sample_once() -> None:
    asked = config(epochs=1, backend="ddp", world_size=2)
    judged, network = data.load_held_out(asked, data.load_images(asked)), _Brightest()
    images, labels = judged.__getitems__(list(range(359)))
    right = network(images).argmax(1) == labels
    rig: Any = Mock(config=asked, place=Cpu())
    rig.workload.held_out = judged
    batches: list[None] = []
    for rank in (0, 1):
        counted = count_correct(rig, network, lambda: batches.append(None), rank, 2)
        assert counted == int(right[rank::2].sum()) > 0
    assert len(batches) == 2 * 12, "no more at once than a step of 16 images a rank"
    assert not network.training


@functools.cache
def learnt(backend: str, ranks: int) -> Run:
    """Train the MLP twice, 32 images a step, and read the log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        cell = ("--backend", backend, "--world-size", str(ranks), "--global-batch", "32")
        processes = parse_argv([*LEARNT, *cell]).world_size
        done = bench(processes, *LEARNT, *cell, "--log-path", str(log))
        assert done.returncode == 0, done.stderr
        return read_run(log)


def epochs(run: Run) -> list[tuple[int, int, int, float]]:
    return [
        (e["training"], e["index"], e["correct"], e["loss"])
        for e in run.events
        if e["event"] == "epoch"
    ]


def test_each_training_ends_with_the_first_epoch_at_the_target() -> None:
    run = learnt("single", 1)
    assert run.problem is None
    assert run.workload["held_out"] == 359
    assert run.workload["steps_per_epoch"] == 1438 // 32
    for training in (0, 1):
        shares = [correct / 359 for index, _, correct, _ in epochs(run) if index == training]
        assert [share >= 0.93 for share in shares[:-1]] == [False] * (len(shares) - 1)
        assert shares[-1] >= 0.93 or len(shares) == 4
    starts = [loss for _, epoch, _, loss in epochs(run) if epoch == 0]
    assert starts[0] != starts[1]  # other weights, other order


@pytest.mark.ranks
def test_backends_that_average_the_same_gradients_learn_the_same() -> None:
    """At two ranks a mean has one order, so every epoch of every training is equal to the bit."""
    backends = ("ddp", "horovod", "ps")
    ddp, *others = (epochs(learnt(backend, 2)) for backend in backends)
    assert others == [ddp] * len(others)
    assert len(ddp) >= 2
    # without BatchNorm two halves of a batch teach what the whole does, but for rounding, which a
    # training magnifies epoch by epoch
    two, one = (
        {index: loss for index, epoch, _, loss in rows if epoch == 0}
        for rows in (ddp, epochs(learnt("single", 1)))
    )
    assert two == pytest.approx(one, rel=1e-3)


def _change(name: str, value: Any, at: int = 0) -> Any:
    return lambda epochs: epochs[at].update({name: value})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda epochs: epochs.pop(0), "an epoch of training 0 is missing, or there twice"),
        (lambda epochs: epochs.pop(), "1 trainings of 2"),
        (_change("correct", 359), "training 0 did not end where it should"),
        (_change("correct", 1, at=-1), "training 1 did not end where it should"),
        (
            _change("parameters_equal", False),
            "after an epoch of training 0 ranks had other parameters",
        ),
    ],
)
def test_a_log_that_contradicts_its_trainings_is_not_believed(change: Any, said: str) -> None:
    run = learnt("single", 1)
    assert run.config is not None
    assert list(outcome.missing(run.config, run.schema, run.events)) == []
    epochs_of = [dict(event) for event in run.events if event["event"] == "epoch"]
    others = [event for event in run.events if event["event"] != "epoch"]
    change(epochs_of)
    first = next(outcome.missing(run.config, run.schema, [*others[:-1], *epochs_of, others[-1]]))
    assert first == said


def test_trainings_that_ended_apart_fail_the_run() -> None:
    run = learnt("single", 1)
    assert run.config is not None
    *before, end = run.events
    apart = [{**end, "checks": {**end["checks"], "trainings_equal": False}}]
    absent = [{**end, "checks": {k: v for k, v in end["checks"].items() if k[:4] != "trai"}}]
    for last in (apart, absent):
        said = next(outcome.missing(run.config, run.schema, [*before, *last]))
        assert said == "failed checks: trainings_equal"
