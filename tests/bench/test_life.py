"""What a run says from first to last, and that streams, disk and signals do not end it badly."""

from __future__ import annotations

import math
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.config import make_config
from bench.lifecycle.ending import describe
from bench.progress import opening, quantity, result, say
from bench.record import read_run
from tests.bench.ranks import bench, run

ranks = pytest.mark.ranks
TINY = ["--model", "tests.bench.faulty:model", "--dataset", "tests.bench.faulty:images"]
TINY += ["--image-size", "8", "--batch-per-rank", "4"]
TINY += ["--warmup-steps", "3", "--windows", "2", "--steps-per-window", "3"]
BENCH = [sys.executable, "-m", "bench", *TINY]
FIRST = (
    "single, 1 rank, tests.bench.faulty:model at 8 px, 4 images per rank, 3 + 2 x 3 steps; "
    "loading torch ..."
)
NO_FAULT = {"FAULT": "none", "FAULT_AT": "/dev/null"}


def test_numbers_for_people() -> None:
    written = {261437.2: "261,400", 1000.4: "1,000", 999.96: "1,000", 999.4: "999", 29.123: "29.1"}
    written |= {2.3149: "2.31", 0.012345: "0.0123", 0.0: "0", math.inf: "inf"}
    assert [quantity(value) for value in written] == [*written.values()]


def test_a_terminal_obeys_nothing_that_a_run_says(capfd: pytest.CaptureFixture[str]) -> None:
    say("error: planted \x1b[31m\u2028é\n\ttrace")
    assert capfd.readouterr().err == "error: planted \\x1b[31m\\u2028é\n\ttrace\n"


def test_the_cause_in_a_loading_process_is_named() -> None:
    """torch puts it last, behind a first line that says only where."""
    text = "Caught LookupError in DataLoader worker process 0.\nOriginal ...\nLookupError: planted"
    cause = "LookupError: planted (in DataLoader worker process 0)"
    assert describe(LookupError(text)) == cause
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_first_and_last_line_of_a_run() -> None:
    config = make_config(
        {"backend": "ddp", "world_size": 2, "batch_per_rank": 16, "log_path": "ddp.jsonl"}
    )
    run = "ddp/mpi, 2 ranks, resnet50 at 32 px, 16 images per rank, 10 + 4 x 5 steps"
    assert opening(config) == f"{run}; loading torch ..."
    # 20 images at 10 and at 40 images/s are 40 images in 2.5 s
    rate = "16.0 images/s (windows 10.0 to 40.0)"
    last = result(config, [10.0, 40.0], 2.3149, [])
    assert last == f"{rate}, 2 ranks, loss 2.31; log ddp.jsonl"
    failed = "2 ranks, loss nan, FAILED CHECKS loss_finite"
    cure = "(use --max-lr, --lr-warmup-steps or a lower --base-lr)"
    last = result(config, [10.0], float("nan"), ["loss_finite"])
    assert last == f"10.0 images/s (windows 10.0 to 10.0), {failed} {cure}; log ddp.jsonl"


@ranks
def test_what_a_run_says(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    done = bench(1, *TINY, "--log-path", str(log), extra=NO_FAULT)
    assert done.returncode == 0
    *before, one, two, last = done.stderr.splitlines()
    assert before == [FIRST, "loading data", "building the model", "starting single", "warm-up"]
    assert one.startswith("window 1/2: ")
    assert two.startswith("window 2/2: ")
    rate = quantity(read_run(log).images_per_s)
    rest = rf"images/s \(windows \S+ to \S+\), 1 rank, loss \S+; log {log}"
    assert re.fullmatch(f"{re.escape(rate)} {rest}", last)
    assert "e+" not in done.stderr


@ranks
def test_a_full_stream_ends_no_run(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    command = f"{shlex.join([*BENCH, '--log-path', str(log)])} 2>/dev/full"
    done = run(["bash", "-c", command], NO_FAULT)
    assert done.returncode == 0
    assert read_run(log).problem is None
    assert log.read_text().count('"event"') == log.read_text().count("\n"), "and nothing else"


@ranks
def test_ctrl_c_while_modules_load_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    # whoever starts the tests in the background has Ctrl-C ignored, and children inherit that
    done = run(["env", "--default-signal=INT", *BENCH], {**NO_FAULT, "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@ranks
def test_a_log_that_cannot_be_written_fails_the_run_in_one_line(tmp_path: Path) -> None:
    """As on a full disk; the limit falls between two windows."""
    log = tmp_path / "run.jsonl"
    words = [*BENCH, "--windows", "1000", "--log-path", str(log)]
    done = run(["bash", "-c", f"ulimit -f 20; exec {shlex.join(words)}"], NO_FAULT)
    assert done.returncode == 1
    wrong = f"cannot write {log}: File too large"
    assert [line for line in done.stderr.splitlines() if "error" in line.lower()] == [
        f"error: rank 0 {wrong}"
    ]
    assert "Traceback" not in done.stderr
    result = read_run(log)
    assert result.problem is not None
    assert len(result.windows) > 1, "but the rest is there"


def ends(fault: str, log: Path) -> subprocess.CompletedProcess[str]:
    extra = {"FAULT": fault, "FAULT_AT": str(log.with_suffix(".moment"))}
    return run([*BENCH, "--log-path", str(log), "--stall-timeout-s", "20"], extra)


@ranks
def test_a_run_that_hangs_after_its_end_keeps_its_record(tmp_path: Path) -> None:
    """Its last breath is ended by the kernel. Both at once: each is idle most of the while."""
    faults = ["hung at the close", "hung at exit"]
    logs = [tmp_path / "close.jsonl", tmp_path / "exit.jsonl"]
    with ThreadPoolExecutor() as pool:
        closing, exiting = pool.map(ends, faults, logs)
    assert closing.returncode == 1
    assert re.search(r"error: rank 0: no progress for \d+ s: closing", closing.stderr)
    assert exiting.returncode == -signal.SIGALRM
    assert [read_run(log).problem for log in logs] == [None, None]
