"""Ranks that find each other through a file: what the first to come may count on."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from bench.config import RunConfig, UsageError, make_config
from bench.launch import rendezvous
from bench.launch.rendezvous import _compare, open_store
from bench.launch.world import Launch


@pytest.fixture(autouse=True)
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)


def two_ranks(rank: Callable[[int], None], head_start_s: float = 0.0) -> None:
    """Call `rank` with 0 and 1, each in a thread; rank 0 a little earlier."""
    threads = [threading.Thread(target=rank, args=(n,), name=f"rank {n}") for n in (0, 1)]
    for thread in threads:
        thread.start()
        time.sleep(head_start_s)
    for thread in threads:
        thread.join(30)


def gloo(**fields: Any) -> RunConfig:
    base = {"backend": "ddp", "transport": "gloo", "world_size": 2, "batch_per_rank": 4}
    return make_config({**base, **fields})


def test_a_rank_that_comes_early_waits_as_long_as_it_was_told(tmp_path: Path) -> None:
    config = gloo(backend="horovod", stall_timeout_s=700, log_path=tmp_path / "run.jsonl")
    stores: dict[int, Any] = {}  # the stubs know no timeout

    def rank(number: int) -> None:
        stores[number] = open_store(config, Launch("srun", number, 2, 0, 1, "7.0"))

    two_ranks(rank)
    assert [stores[number].timeout for number in (0, 1)] == [timedelta(seconds=70)] * 2
    assert list(tmp_path.iterdir()) == [], "the file is gone once all have met"


def test_a_file_of_an_earlier_launch_is_not_followed(tmp_path: Path) -> None:
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    store.set("nonce", "now")
    for nonce in ("now", "before"):
        place = {"address": "127.0.0.1", "port": store.port, "nonce": nonce}
        (tmp_path / "x.json").write_text(json.dumps(place))
        assert (rendezvous._try(tmp_path / "x.json") is None) == (nonce == "before")


@pytest.mark.parametrize("no_port", ["", "port", "70000"])
def test_a_store_that_torchrun_does_not_serve_is_one_line(
    no_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = no_port or str(taken.getsockname()[1])
        for name, value in (("ADDR", "127.0.0.1"), ("PORT", port)):
            monkeypatch.setenv(f"MASTER_{name}", value)
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        wrong = f"MASTER_PORT='{port}': torchrun's store did not answer there within 0.5 s; .*, or"
        monkeypatch.setattr(rendezvous, "MEETING_S", 0.5)
        with pytest.raises(UsageError, match=wrong):
            open_store(gloo(stall_timeout_s=1), Launch("torchrun", 0, 2, 0, 2, "k"))


def met(folder: Path, source: str, key: str) -> list[str]:
    """Return what two ranks with different seeds are told, by rank."""
    told = ["", ""]

    def rank(number: int) -> None:
        config = gloo(seed=number, stall_timeout_s=1, log_path=folder / "run.jsonl")
        try:
            open_store(config, Launch(source, number, 2, 0, 1, key))
        except UsageError as error:
            told[number] = str(error)

    two_ranks(rank)
    assert list(folder.iterdir()) == [], "nothing is left to be followed later"
    return told


def test_ranks_with_other_options_are_told_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 asks late, when rank 0 and its store could be gone."""

    class Late(dist.PrefixStore):
        def get(self, key: str) -> bytes:
            if key == "problem" and threading.current_thread().name == "rank 1":
                time.sleep(0.5)
            answer: bytes = super().get(key)
            return answer

    monkeypatch.setattr(dist, "PrefixStore", Late)
    line = "ranks differ in seed: 0 on rank 0, 1 on rank 1; start every rank with the same options"
    assert met(tmp_path, "srun", "7.0") == [line, line]


def test_where_the_launcher_names_no_launch_they_do_not_meet_and_are_told_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches of Hydra look alike, so the run's options are part of the meeting's name."""
    monkeypatch.setattr(rendezvous, "MEETING_S", 1.0)
    first, second = met(tmp_path, "hydra", "unnamed")
    assert "1 of 2 ranks appeared within 1 s; did all of them start, with the same options" in first
    assert "rank 1 waited 1 s for rank 0" in second
    assert "with the same options" in second


def test_two_runs_in_one_store_are_compared_apart() -> None:
    """As under torchrun, whose agent keeps what was said in the one before."""
    store = dist.HashStore()

    def compare(backend: str) -> list[str]:
        config, said = gloo(backend=backend), ["", ""]

        def rank(number: int) -> None:
            said[number] = _compare(store, config, Launch("torchrun", number, 2, number, 2, "key"))

        two_ranks(rank, head_start_s=0.3)  # rank 0 reads, and rank 1 has not spoken yet
        return said

    assert compare("ddp") == ["", ""]
    assert compare("horovod") == ["", ""]
