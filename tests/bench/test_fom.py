"""Figures of merit: the lines that suites parse, on standard output and nothing else there."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from scipy import stats

from bench import fom
from bench.config import make_config

# EESSI's sanity check of its PyTorch test, and LUMI's figures of its Horovod test, as they stand
# in those repositories; the format of Horovod's pytorch_synthetic_benchmark.py
EESSI = r"Total img/sec on %s .PU\(s\):.*"
LUMI = (r"img/sec on \d+ GPU\(s\): (\S+) \+", r"Img/sec per GPU: (\S+) \+")
HOROVOD = ("Img/sec per %s: %.1f +-%.1f", "Total img/sec on %d %s(s): %.1f +-%.1f")
GPUS = {"backend": "horovod", "transport": "nccl", "device": "cuda", "world_size": 8}


def merits(*rates: float, ok: bool = True) -> dict[str, Any]:
    config = make_config({**GPUS, "batch_per_rank": 16})
    return fom.merits(config, rates, {"nccl transport": "NET/IB"}, ok=ok)


def test_the_interval_is_that_of_the_mean_time_of_an_image() -> None:
    run, mean, sd = merits(1000, 1250, 1000), 2.8e-3 / 3, math.sqrt(0.04 / 3) * 1e-3
    assert run["images_per_s"] == pytest.approx(1 / mean)
    half = stats.t.ppf(0.975, 2) * sd / math.sqrt(3)
    assert run["plus_minus"] == pytest.approx(half / mean**2)
    assert merits(512.0)["plus_minus"] is None


def test_three_suites_read_the_lines_and_a_failed_run_has_no_number() -> None:
    run = merits(8090.0, 8110.0, 8100.0)
    text, half = fom.text(run), run["plus_minus"]
    assert re.search(EESSI % 8, text)
    assert not re.search(EESSI % 4, text), "it proves the number of ranks"
    assert [float(re.search(p, text)[1]) for p in LUMI] == [8100.0, 1012.5]  # type: ignore[index]
    each, total, line = text.splitlines()
    assert total == HOROVOD[1] % (8, "GPU", 8100.0, half)
    assert each == HOROVOD[0] % ("GPU", 1012.5, half / 8)
    assert json.loads(line.removeprefix("hvd-ddp-fom ")) == run
    assert "8 GPU(s): 0.5124 +-0.0000\n" in fom.text(merits(0.5124, 0.5124)), "digits that count"
    read = json.loads(fom.text(merits(8100.0, ok=False)).removeprefix("hvd-ddp-fom "))
    assert (read["ok"], read["images_per_s"], read["plus_minus"]) == (False, None, None)
    assert (read["cell"], read["ranks"], read["network"]) == ("horovod/nccl", 8, "NET/IB")
