"""Who holds a run up, told from what its ranks were doing; pure but for the folder of reports."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn

import pytest

from bench import backends
from bench.config import make_config
from bench.launch.world import Launch
from bench.lifecycle import stall
from bench.lifecycle.ending import Ending
from bench.lifecycle.pulse import Beat, Pulse
from bench.lifecycle.stall import Board, Report, activity, explain, place
from bench.lifecycle.watchdog import Watchdog
from bench.progress import make_screen

PACKAGE = Path(stall.__file__).parents[1]
USER = (str(Path.cwd() / "my_data.py"), "Mine.__getitem__", 30)
INPUT = (str(PACKAGE / "train" / "input.py"), "Input.step", 33)
FORWARD = (str(PACKAGE / "train" / "loop.py"), "Loop._forward", 95)
BACKEND = (str(Path(backends.__file__).parent / "ddp.py"), "Ddp.backward", 57)
LIBRARIES = stall._LIBRARIES[-1]
DDP = f"{LIBRARIES}/torch/nn/parallel/distributed.py"
WRAPPED = (DDP, "DistributedDataParallel.forward", 1600)
BUFFERS = (DDP, "DistributedDataParallel._sync_buffers", 2100)
LIBRARY = (f"{LIBRARIES}/threading.py", "Event.wait", 600)
AT_FORWARD = " (bench/train/loop.py:95 Loop._forward)"
AT_BACKEND = " (bench/backends/ddp.py:57 Ddp.backward)"
AT_USER = " (my_data.py:30 Mine.__getitem__)"
EXCHANGE = "waiting in the exchange of step 12"
FETCHING, STEPPING = Beat("warm-up", 0, 11, 11), Beat("warm-up", 0, 12, 11)


def test_what_is_taken_for_library_code() -> None:
    assert place([LIBRARY, USER, INPUT]) == "my_data.py:30 Mine.__getitem__"
    assert place([LIBRARY]) == ""
    assert place([LIBRARY, ("/home/me/model.py", "f", 7)]) == "/home/me/model.py:7 f"


def test_an_installed_copy_knows_its_own_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies among the libraries."""
    monkeypatch.setattr(stall, "_LIBRARIES", (*stall._LIBRARIES, str(stall._HERE)))
    assert activity(STEPPING, [LIBRARY, BACKEND, FORWARD], 2) == (EXCHANGE, True)
    assert activity(STEPPING, [LIBRARY, USER, FORWARD], 2)[1] is False


@pytest.mark.parametrize(
    ("beat", "stack", "doing", "waits"),
    [
        (FETCHING, [LIBRARY, USER, INPUT], f"waiting for its batch of step 12{AT_USER}", False),
        (STEPPING, [LIBRARY, USER, WRAPPED, FORWARD], f"in step 12{AT_USER}", False),
        (STEPPING, [LIBRARY, WRAPPED, FORWARD], f"in step 12{AT_FORWARD}", False),
        (STEPPING, [LIBRARY, BUFFERS, WRAPPED, FORWARD], f"{EXCHANGE}{AT_FORWARD}", True),
        (STEPPING, [LIBRARY, BACKEND], f"{EXCHANGE}{AT_BACKEND}", True),
        (FETCHING, [LIBRARY, BACKEND], f"waiting for the others after step 11{AT_BACKEND}", True),
        (Beat("loading data"), [USER], f"loading data{AT_USER}", False),
        (Beat("start"), [BACKEND], f"start, waiting for the other ranks{AT_BACKEND}", True),
    ],
)
def test_activity(beat: Beat, stack: list[tuple[str, str, int]], doing: str, waits: bool) -> None:
    assert activity(beat, stack, 2) == (doing, waits)


def test_a_lone_process_waits_for_nobody() -> None:
    assert activity(STEPPING, [BACKEND], 1) == (f"in step 12{AT_BACKEND}", False)


def test_loading_processes_are_named() -> None:
    assert Path(INPUT[0]).exists(), "where stall.py looks for it"
    doing, _ = activity(FETCHING, [INPUT], 2, ["loading process 7 is stopped"])
    waiting = "waiting for its batch of step 12, loading process 7 is stopped"
    assert doing == f"{waiting} (bench/train/input.py:33 Input.step)"


def report(rank: int, doing: str, waits: bool) -> Report:
    return Report(rank=rank, doing=doing, waits=waits)


def test_a_rank_that_waits_for_others_is_not_the_cause() -> None:
    reports = {r: report(r, EXCHANGE, True) for r in (0, 1, 3)} | {2: report(2, "in step 3", False)}
    cause = f"no progress for 10 s: in step 3; meanwhile rank 0,1,3: {EXCHANGE}"
    assert explain(reports, 9.8, 4, {}, shared=True) == [(2, cause)]


def test_a_rank_without_a_word_is_the_cause() -> None:
    silent, meanwhile = "no sign of life for 10 s", f"; meanwhile rank 0: {EXCHANGE}"
    states = {2: "its process 7 is stopped"}
    assert explain({0: report(0, EXCHANGE, True)}, 9.8, 3, states, shared=True) == [
        (1, f"{silent} (stopped, ended, or its node is gone){meanwhile}"),
        (2, f"{silent} (its process 7 is stopped){meanwhile}"),
    ]


def test_without_a_shared_folder_nobody_else_is_blamed() -> None:
    reports = {1: report(1, EXCHANGE, True)}
    ((rank, message),) = explain(reports, 9.8, 2, {}, shared=False)
    assert rank == 1
    assert "what the other ranks do is not known" in message


def test_ranks_that_all_wait_for_each_other() -> None:
    reports = {r: report(r, EXCHANGE, True) for r in (0, 1)}
    what = "all ranks wait for each other, so what carries the exchange has stopped"
    cause = f"no progress for 10 s, {what}: rank 0,1: {EXCHANGE}"
    assert explain(reports, 9.8, 2, {}, shared=True) == [(0, cause)]


def board(folder: Path | None, rank: int) -> Board:
    fields = {"backend": "ddp", "transport": "gloo", "world_size": 2, "batch_per_rank": 1}
    return Board(folder, make_config(fields), Launch("srun", rank, 2, rank, 2, "7.0"))


def test_reports_are_read_by_the_others_and_taken_back(tmp_path: Path) -> None:
    mine, other = board(tmp_path, 0), board(tmp_path, 1)
    mine.post(report(0, "in step 3", False))
    other.post(report(1, "in step 4", False))
    doing = {rank: r.doing for rank, r in mine.reports().items()}
    assert doing == {0: "in step 3", 1: "in step 4"}
    (tmp_path / next(tmp_path.glob("*.1.json")).name).write_text("torn {")
    assert set(mine.reports()) == {0}
    mine.withdraw()
    assert mine.reports() == {}
    other.clear()
    assert list(tmp_path.iterdir()) == []


class Judged(Exception):
    """What the run was ended with."""


class NoEnding(Ending):
    """Raises what it is told instead of ending the process."""

    def __init__(self) -> None: ...

    def is_orphan(self) -> bool:
        return False

    def stalled(self, reports: Mapping[int, Report], silent_s: float) -> NoReturn:
        raise Judged(sorted(reports), silent_s)


def judged(folder: Path, rank: int, limit_s: float = 0.4) -> tuple[list[int], float]:
    """The ranks that a rank without progress judges by, and when it does."""
    pulse = Pulse(make_screen(1, make_config({"batch_per_rank": 1})))
    watchdog = Watchdog(pulse, board(folder, rank), NoEnding(), rank, 2, limit_s)
    with pytest.raises(Judged) as caught:
        watchdog._watch()
    ranks, silent_s = caught.value.args
    return ranks, silent_s


def test_the_lowest_rank_that_has_reported_speaks_for_all(tmp_path: Path) -> None:
    ranks, silent_s = judged(tmp_path, 0)
    assert ranks == [0]
    assert 0.4 <= silent_s < 0.8
    # its report is still there: it is thought to be on its way
    ranks, silent_s = judged(tmp_path, 1)
    assert ranks == [0, 1]
    assert silent_s >= 0.8, "nobody is waited for any longer"
    board(tmp_path, 0).withdraw()
    assert judged(tmp_path, 1)[0] == [1], "one that cannot write is not waited for"


def test_a_report_says_what_its_rank_does_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At half of its limit a rank may still compute; at the limit of another it waits."""
    reports = chain([report(0, "in step 3", False)], repeat(report(0, EXCHANGE, True)))
    monkeypatch.setattr(Watchdog, "_report", lambda *_: next(reports))
    judged(tmp_path, 0)
    assert board(tmp_path, 0).reports()[0].waits


def test_a_folder_that_is_gone_or_none_is_no_error(tmp_path: Path) -> None:
    for mine in (board(tmp_path / "gone", 0), board(None, 0)):
        mine.post(report(0, "in step 3", False))
        assert mine.reports() == {}
        mine.withdraw()
        mine.clear()
