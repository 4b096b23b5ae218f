"""The overhead bench: its bars on known answers, and that it trains on the study's own samples."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

from bench.config import RunConfig
from bench.data import batches, load_images
from tests.overhead import __main__ as overhead
from tests.overhead.loops import bare_batches

CONFIG = RunConfig(backend="ddp", world_size=2, global_batch=600, dataset="digits")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_bare_loop_sees_the_same_samples(rank: int) -> None:
    # two steps an epoch, so this crosses into the second
    ours = islice(batches(CONFIG, rank, load_images(CONFIG)), 4)
    for (images, labels), bare in zip(ours, bare_batches(CONFIG, rank), strict=False):
        assert torch.equal(images, bare[0])
        assert torch.equal(labels, bare[1])


@pytest.mark.parametrize(
    ("ours_seconds", "own_share", "status", "good"),
    [
        ((2.0, 2.0, 2.0), 0.001, "ok", True),
        ((2.0, 2.1, 1.9), 0.001, "ok", False),  # the interval is too wide
        ((2.1, 2.1, 2.1), 0.001, "ok", False),  # 5 % slower
        ((2.0, 2.0, 2.0), 0.01, "ok", False),
        ((2.0, 2.0, 2.0), 0.001, "failed: parameters differ", False),
    ],
)
def test_the_bars_of_turns(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ours_seconds: tuple[float, ...],
    own_share: float,
    status: str,
    good: bool,
) -> None:
    launches = []
    for number, seconds in enumerate(ours_seconds):
        start = {"event": "start", "config": CONFIG.model_dump(mode="json")}
        pair = {"event": "pair", "seconds": {"ours": seconds, "bare": 2.0}}
        end = {"event": "end", "status": status, "own_share": own_share}
        log = tmp_path / f"{number}.jsonl"
        log.write_text("".join(json.dumps(event) + "\n" for event in (start, pair, end)))
        launches.append(overhead.Turns(log))
    assert overhead.turns_hold("ddp/mpi", launches) == good
    assert ("  holds: " if good else "DOES NOT HOLD") in (said := capsys.readouterr().out)
    assert "bare 900.0 images/s" in said, "three steps of 600 in two seconds"


def test_a_word_it_does_not_know_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["overhead", "--cells", "ddp/nccl"])
    assert overhead.main() == 2
    known = "single, ddp/mpi, horovod/mpi"
    wrong = f"argument --cells: 'ddp/nccl' is none of {known}"
    assert capsys.readouterr().err == f"error: {wrong}; see python -m tests.overhead --help\n"
