"""Emulated compute: on time, through the real autograd engine, its gradients checked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.data import batches, load_images
from bench.instrument import emulation as module
from bench.instrument.emulation import Emulation, mean_weight, size, weight
from bench.instrument.timeline import Timeline
from bench.models import build_model
from bench.record import read_run
from bench.train.loop import Input, Loop
from tests.bench.ranks import bench

MODEL = "tests.bench.tiny:normalised"
FORWARD_S, BACKWARD_S, IMAGES = 0.02, 0.05, 4


def timeline(path: Path) -> Path:
    """Write a timeline of the tiny model: the first layers' gradients first, unlike its real order,
    and the end of the backward pass after the last of them.
    """
    network = build_model(RunConfig(batch_per_rank=1, model=MODEL), 10)
    gradients = [
        {"name": n, "shape": p.shape, "bytes": p.nbytes, "ready_seconds": 0.004 * at}
        for at, (n, p) in enumerate(network.named_parameters(), start=1)
    ]
    seconds = {"forward": FORWARD_S, "backward": BACKWARD_S, "optimizer": 0.0}
    facts = {"source": "a test", "steps": 0, "model": MODEL, "image_size": 32, "classes": 10}
    facts |= {f"{name}_seconds": value for name, value in seconds.items()}
    facts |= {"precision": "float32", "images": IMAGES, "gradients": gradients}
    path.write_text(Timeline.model_validate(facts).to_json())
    return path


class Clock:
    """Time that passes in sleep alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Trial:
    """A loop of an emulated run, of which this process is one rank."""

    def __init__(self, path: Path, rank: int = 0, **fields: object) -> None:
        own = {"warmup_steps": 3, "windows": 1, "steps_per_window": 9, "batch_per_rank": IMAGES}
        self.config = RunConfig.model_validate(
            {"emulate": timeline(path), "model": MODEL, **own, **fields}
        )
        images = load_images(self.config)
        network = build_model(self.config, images.classes)
        self.emulation = Emulation(network, self.config, rank)
        samples = Input(self.config, batches(self.config, rank, images), torch.device("cpu"))
        self.loop = Loop(self.config, Backend(), self.emulation.model, samples, self.emulation)
        self.parameters = dict(network.named_parameters())


def test_a_step_is_the_timeline_and_gradients_come_at_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of our own, so that no load of the machine moves it: exact, not within 1 %."""
    clock, scale = Clock(), 3
    monkeypatch.setattr(module, "time", clock)
    trial = Trial(tmp_path / "t.json", batch_per_rank=scale * IMAGES)
    came: list[tuple[str, float]] = []
    for name, parameter in trial.parameters.items():
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: came.append((name, clock.now))
        )
    for step in range(trial.config.steps):
        came.clear()
        began = clock.now
        trial.loop.step()
        assert clock.now - began == pytest.approx(scale * (FORWARD_S + BACKWARD_S))
        forward_ended = began + scale * FORWARD_S
        wanted = [forward_ended + scale * 0.004 * at for at in range(1, 10)]
        assert [at for _, at in came] == pytest.approx(wanted), step
        assert [name for name, _ in came] == list(trial.parameters)
    assert trial.emulation.averaged_steps == trial.config.steps


def spoil(parameter: torch.Tensor) -> None:
    """Change one number of a gradient."""
    assert parameter.grad is not None
    parameter.grad[1, 7] += 1


def test_gradients_that_are_not_the_mean_fail_the_run(tmp_path: Path) -> None:
    """This process is rank 1 of two that exchange nothing; later, a single row of one is wrong."""
    trial = Trial(tmp_path / "t.json", rank=1, backend="ddp", transport="gloo", world_size=2)
    with pytest.raises(RuntimeError, match=r"step 0 .* gradient of 0\.weight holds 1,"):
        trial.loop.step()
    alone = Trial(tmp_path / "t.json")
    alone.loop.step()
    alone.parameters["9.weight"].register_post_accumulate_grad_hook(spoil)
    with pytest.raises(RuntimeError, match=r"step 1 the exchanged gradient of 9\.weight"):
        alone.loop.step()


def test_no_rank_and_no_other_step_or_tensor_looks_like_the_mean() -> None:
    for ranks in range(2, 33):
        weights = [weight(rank, ranks) for rank in range(ranks)]
        assert sum(weights) / ranks == pytest.approx(mean_weight(ranks))
        apart = [abs(w / mean_weight(ranks) - 1) for w in weights]
        assert min(apart) > 1e-4, "one rank's in place of all ranks'"
        assert max(apart) > 0.05, "every rank its own, where gradients travel in 16 bits"
    assert all(
        size(i, s) not in (size(i, s + 1), size(i + 1, s)) for i in range(9) for s in range(9)
    )


@pytest.mark.ranks
def test_frameworks_exchange_what_is_handed_over(tmp_path: Path) -> None:
    """From three ranks on, no rank's share of the sum can be mistaken for another's."""
    log, ranks = tmp_path / "r.jsonl", 3
    path = timeline(tmp_path / "t.json")
    words = ["--backend", "horovod", "--transport", "mpi", "--world-size", str(ranks)]
    words += ["--model", MODEL, "--batch-per-rank", str(IMAGES), "--emulate", str(path)]
    words += ["--warmup-steps", "3", "--windows", "2", "--steps-per-window", "8"]
    done = bench(ranks, *words, "--log-path", str(log))
    assert done.returncode == 0, done.stderr
    run = read_run(log)
    assert run.problem is None
    assert run.end["checks"] == dict.fromkeys(
        ("samples_per_step", "torch_settings_kept", "parameters_equal", "gradients_averaged"), True
    )
    assert run.workload["emulated"] is True
    slowest = [min(steps) for steps in run.step_seconds()]
    assert min(slowest) >= FORWARD_S + BACKWARD_S, "two ranks' compute sleeps side by side"
