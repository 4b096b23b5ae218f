"""Timelines: recorded from a real step, refused where they are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.config import RunConfig, UsageError
from bench.instrument.emulation import Emulation
from bench.instrument.timeline import Timeline, read, read_for
from bench.models import build_model
from bench.tools.timeline import main

ROOT = Path(__file__).parents[2]
P100 = ROOT / "bench/instrument/timelines/resnet50-p100-32px.json"
SHIPPED = sorted((ROOT / "bench/instrument/timelines").glob("*.json"))
TINY = ["--model", "tests.bench.tiny:normalised", "--batch-per-rank", "4", "--dataset", "digits"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which the tool adds threads to


def test_a_recording_is_of_a_real_step(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "t.json"), *TINY, "--warmup-steps", "3", "--steps", "21"]
    assert main(words) == 0
    recorded = read(tmp_path / "t.json")[0]
    assert (recorded.steps, recorded.images, recorded.classes) == (21, 4, 10)
    assert min(recorded.forward_seconds, recorded.optimizer_seconds) > 0
    first, *_, last = recorded.gradients
    assert len(recorded.gradients) == 9
    assert first.name.startswith("9."), "the last layer's are ready first"
    assert 0 < first.ready_seconds < last.ready_seconds
    assert (last.name, last.shape, last.bytes) == ("0.weight", (8, 3, 3, 3), 8 * 27 * 4)
    assert recorded.provenance["config"]["model"] == recorded.model
    assert Timeline.model_validate_json(recorded.to_json()) == recorded
    assert main(words) == 2, "never overwritten"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_timelines_name_their_source_and_hold_every_parameter(path: Path) -> None:
    timeline, _ = read(path)
    assert path.stem.startswith(f"{timeline.model}-")
    # tensors and numbers of torchvision's model
    assert len(timeline.gradients) == 161
    assert sum(gradient.bytes for gradient in timeline.gradients) == 4 * 25_557_032
    assert len(timeline.source) > 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "19"], "--steps '19': Input should be greater than or equal to 20; see"),
        (["--accumulate", "2"], "in one pass; leave"),
        (["--backend", "ddp"], "of one process that trains"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["--out", str(tmp_path / "t.json"), *TINY, *words]) == 2
    line = capfd.readouterr().err
    assert line.startswith("error: ")
    assert said in line
    assert line.count("\n") == 1
    assert not (tmp_path / "t.json").exists()


def test_what_is_no_timeline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = json.loads(P100.read_text())
    later = [{**gradient, "ready_seconds": 1.0} for gradient in good["gradients"]]
    for change, said in (
        ({"schema": 2}, "schema"),
        ({"gradients": []}, "gradients"),
        ({"gradients": good["gradients"][::-1]}, "order in which they become ready"),
        ({"gradients": later}, "after the end of the backward pass"),
        ({"more": 1}, "more"),
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(UsageError, match="is no timeline") as error:
            read(path)
        assert said in str(error.value)
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.json")


def test_a_run_follows_a_timeline_of_its_own_model() -> None:
    with pytest.raises(UsageError, match="is of image_size=32; use --image-size 32"):
        read_for(RunConfig(batch_per_rank=1, emulate=P100, image_size=224))
    config = RunConfig(batch_per_rank=1, emulate=P100, image_size=32, model="resnet50")
    with pytest.raises(UsageError, match="the timeline's parameters are not the model's"):
        Emulation(build_model(config, 10), config, 0)
