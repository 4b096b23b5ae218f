"""Ranks that find each other through a file: what the first to come may count on."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError, make_config
from bench.launch import Launch
from bench.rendezvous import open_store


def test_a_rank_that_comes_early_waits_as_long_as_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    fields = {"backend": "horovod", "transport": "gloo", "world_size": 2, "batch_per_rank": 1, "rendezvous_timeout_s": 40}
    config = make_config({**fields, "rendezvous_dir": tmp_path})
    stores: dict[int, Any] = {}  # the stubs know no timeout

    def rank(number: int) -> None:
        stores[number] = open_store(config, Launch("srun", number, 2, number, 2, "7.0"))

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {number: store.timeout for number, store in stores.items()} == dict.fromkeys((0, 1), timedelta(seconds=40))
    assert list(tmp_path.iterdir()) == [], "the file is gone once all have met"


def met(folder: Path, source: str, key: str, timeout_s: float) -> list[str]:
    """What two ranks with different seeds are told, by rank."""
    told = ["", ""]

    def rank(number: int) -> None:
        fields = {"backend": "ddp", "transport": "gloo", "world_size": 2, "batch_per_rank": 1, "seed": number}
        try:
            open_store(
                make_config({**fields, "rendezvous_timeout_s": timeout_s, "rendezvous_dir": folder}),
                Launch(source, number, 2, number, 2, key),
            )
        except UsageError as error:
            told[number] = str(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert list(folder.iterdir()) == [], "nothing is left to be followed later"
    return told


def test_ranks_with_other_options_are_told_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    line = "ranks differ in seed: 0 on rank 0, 1 on rank 1; start every rank with the same options"
    assert met(tmp_path, "srun", "7.0", 20) == [line, line]


def test_where_the_launcher_names_no_launch_they_do_not_meet_and_are_told_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches of Hydra at a time look alike, so there the run's options are part of the meeting's name."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    first, second = met(tmp_path, "hydra", "unnamed", 1)
    assert "1 of 2 ranks appeared within 1 s; did all of them start, with the same options" in first
    assert "rank 1 waited 1 s for rank 0" in second
    assert "with the same options" in second
