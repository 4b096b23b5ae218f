"""Figures of merit: the lines that suites parse, on standard output and nothing else there."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from bench import fom
from bench.config import make_config
from bench.record import read_run
from tests.bench.ranks import bench

# EESSI's sanity check of its PyTorch test, and LUMI's figures of its Horovod test, as they stand
# in those repositories; the format of Horovod's pytorch_synthetic_benchmark.py
EESSI = r"Total img/sec on %s .PU\(s\):.*"
LUMI = (r"img/sec on \d+ GPU\(s\): (\S+) \+", r"Img/sec per GPU: (\S+) \+")
HOROVOD = ("Img/sec per %s: %.1f +-%.1f", "Total img/sec on %d %s(s): %.1f +-%.1f")
GPUS = {"backend": "horovod", "transport": "nccl", "device": "cuda", "world_size": 8}
RATES = [1000.0, 1250.0, 1000.0]  # 1, 0.8 and 1 ms for each image


def merits(ok: bool = True, rates: list[float] = RATES) -> dict[str, Any]:
    config = make_config({**GPUS, "batch_per_rank": 16})
    return fom.merits(config, rates, {"nccl transport": "NET/IB"}, ok=ok)


def test_the_interval_is_that_of_the_mean_time_of_an_image() -> None:
    run, mean, sd = merits(), 2.8e-3 / 3, math.sqrt(0.04 / 3) * 1e-3
    assert run["images_per_s"] == pytest.approx(1 / mean)
    half = stats.t.ppf(0.975, 2) * sd / math.sqrt(3)
    assert run["plus_minus"] == pytest.approx(half / mean**2)
    assert merits(rates=[512.0])["plus_minus"] is None


def test_three_suites_read_the_lines() -> None:
    run = merits(rates=[8090.0, 8110.0, 8100.0])
    text, half = fom.text(run), run["plus_minus"] or 0.0
    assert re.search(EESSI % 8, text)
    assert not re.search(EESSI % 4, text), "it proves the number of ranks"
    assert [float(re.search(p, text)[1]) for p in LUMI] == [8100.0, 1012.5]  # type: ignore[index]
    each, total, _ = text.splitlines()
    assert total == HOROVOD[1] % (8, "GPU", 8100.0, half)
    assert each == HOROVOD[0] % ("GPU", 1012.5, half / 8)
    assert half > 8
    slow = fom.text(merits(rates=[0.5124, 0.5124]))
    assert "Total img/sec on 8 GPU(s): 0.5124 +-0.0000\n" in slow, "digits that count"


def test_json_has_every_digit_and_a_failed_run_no_number() -> None:
    word, line = fom.text(merits()).splitlines()[-1].split(" ", 1)
    assert word == "hvd-ddp-fom"
    assert json.loads(line)["images_per_s"] == merits()["images_per_s"]
    failed = fom.text(merits(ok=False))
    assert len(failed.splitlines()) == 1, "no number that does not count"
    read = json.loads(failed.split(" ", 1)[1])
    assert (read["ok"], read["images_per_s"], read["plus_minus"]) == (False, None, None)
    assert (read["cell"], read["ranks"], read["network"]) == ("horovod/nccl", 8, "NET/IB")


@pytest.mark.ranks
def test_two_ranks_print_the_figures_of_their_log_once(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    model = ["--model", "tests.bench.faulty:model", "--dataset", "tests.bench.faulty:images"]
    cell = ["--backend", "ddp", "--transport", "gloo", "--log-path", str(log)]
    size = ["--world-size", "2", "--image-size", "8", "--batch-per-rank", "4", "--windows", "2"]
    done = bench(2, *model, *cell, *size, extra={"FAULT": "none", "FAULT_AT": "/dev/null"})
    assert done.returncode == 0, done.stderr
    _, total, line = done.stdout.splitlines()
    read = json.loads(line.removeprefix("hvd-ddp-fom "))
    assert read["images_per_s"] == pytest.approx(read_run(log).images_per_s)
    assert (read["cell"], read["ranks"], read["compute"]) == ("ddp/gloo", 2, "trained")
    assert re.search(EESSI % 2, total)
