"""Ranks that find each other through a file: what the first to come may count on."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.config import make_config
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
