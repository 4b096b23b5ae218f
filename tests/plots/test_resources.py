"""Energy, memory and operations of runs whose true values are known, and the report on them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig
from bench.record import read_run
from plots.__main__ import main
from plots.analyse.resources import OLDER, Resources, of_run
from tests.plots import logs

pytestmark = pytest.mark.usefixtures("undrawn")

IMAGES = 32  # of a step of two ranks
STEPS = 5  # of a window
RATIOS = (1.10, 1.12, 1.08, 1.10, 1.11, 1.09)  # of joules, by block
T_95_5 = 2.570582  # of Student's t with 5 degrees of freedom (any table)


def counter(name: str, scope: str, joules: float, wraps_at: int | None = None) -> dict[str, Any]:
    return {"name": name, "scope": scope, "joules": joules, "wraps_at": wraps_at}


PACKAGE = counter("RAPL package-0", "part", 1e-6, 262_143_328_850)
MEMORY = counter("RAPL package-0 dram", "part", 1e-6, 65_712_999_613)
PLATFORM = counter("RAPL psys", "beside", 1e-6, 262_143_328_850)
GPU = counter("NVML", "device", 1e-3)
OTHER = counter("other", "device", 1e-3)
NODE = counter("pm_counters energy", "node", 1.0)


def place(*ranks: Mapping[str, Any]) -> dict[str, Any]:
    """Provenance of two ranks, with their counters."""
    host = logs.host(2)
    return {**host, "ranks": [a | dict(b) for a, b in zip(host["ranks"], ranks, strict=True)]}


def rank(*counters: Mapping[str, Any], absent: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"energy_counters": [*counters], "energy_absent": [*absent], **more}


def run(
    path: Path,
    ranks: Sequence[Mapping[str, Any]],
    counts: Sequence[Any],
    seconds: Sequence[float | None] = (0.5, None),
    config: RunConfig | None = None,
    end: Mapping[str, Any] | None = None,
    step_s: float = 0.1,
) -> Resources:
    """Of one run of 4 windows of 5 steps and 160 images, each with the same readings."""
    fields = {"energy_counts": counts, "energy_seconds": seconds}
    provenance = place(*ranks)
    config = config or logs.config("ddp/mpi", 2)
    logs.write(path, config, step_s, provenance=provenance, of_window=fields, end=end)
    log = read_run(path)
    assert log.problem is None
    return of_run(log)


def test_the_parts_of_a_node_add_up_and_the_platform_is_left_out(tmp_path: Path) -> None:
    counts = [[7, 60_000_007], [1, 20_000_001], [5, 900_000_005]]
    ranks = rank(PACKAGE, MEMORY, PLATFORM), rank()
    found = run(tmp_path / "a.jsonl", ranks, [counts, []])
    assert found.values["joules_per_image"] == pytest.approx(80 / 160)
    assert found.counters == ("RAPL package-0", "RAPL package-0 dram")
    assert found.energy_reason == ""


def test_readings_are_brought_from_their_own_seconds_to_the_windows(tmp_path: Path) -> None:
    ranks = rank(PACKAGE), rank()
    found = run(tmp_path / "a.jsonl", ranks, [[[0, 80_000_000]], []], (0.625, None))
    assert found.values["joules_per_image"] == pytest.approx(80 * 0.5 / 0.625 / 160)


def test_a_counter_that_begins_again_inside_a_window_goes_on(tmp_path: Path) -> None:
    ranks = rank(PACKAGE), rank()
    found = run(tmp_path / "a.jsonl", ranks, [[[262_143_328_000, 79_999_150]], []])
    assert found.values["joules_per_image"] == pytest.approx(80 / 160)


def test_a_node_that_counts_itself_has_its_devices_in_it(tmp_path: Path) -> None:
    ranks = rank(NODE, GPU), rank(GPU)
    counts = [[[100, 180], [0, 50_000]], [[0, 60_000]]]
    found = run(tmp_path / "a.jsonl", ranks, counts, (1.0, 1.0), step_s=0.2)
    assert found.values["joules_per_image"] == pytest.approx(80 / 160)
    assert found.counters == ("pm_counters energy",)


def test_devices_and_parts_of_two_nodes_add_up(tmp_path: Path) -> None:
    ranks = rank(PACKAGE, GPU), rank(PACKAGE, GPU, hostname="node2")
    counts = [[[0, 10_000_000], [0, 30_000]], [[0, 12_000_000], [5, 28_005]]]
    found = run(tmp_path / "a.jsonl", ranks, counts, (1.0, 1.0), step_s=0.2)
    assert found.values["joules_per_image"] == pytest.approx(80 / 160)
    assert found.counters == ("NVML", "RAPL package-0")


WRONG = {
    "none": ((rank(), rank()), [[], []], r"no counter could be read"),
    "none, and why": (
        (rank(absent=["no /sys/cray/pm_counters"]), rank()),
        [[], []],
        r"no counter could be read \(no /sys/cray/pm_counters\)",
    ),
    "one node of two": (
        (rank(PACKAGE), rank(hostname="node2")),
        [[[0, 5]], []],
        r"not all nodes, or not all ranks, have the same counters",
    ),
    "two nodes on one machine": (
        (rank(PACKAGE, boot_id="x"), rank(PACKAGE, boot_id="x", hostname="node2")),
        [[[0, 5]], [[0, 5]]],
        r"^nodes share a machine, whose counters each of them reads$",
    ),
    "one GPU of two": (
        (rank(GPU), rank(absent=["NVML: returned 4"])),
        [[[0, 5]], []],
        r"not all nodes, .* have the same counters \(NVML: returned 4\)",
    ),
    "stands still": ((rank(PACKAGE), rank()), [[[7, 7]], []], "the counters stood still"),
    "backwards": ((rank(OTHER), rank(OTHER)), [[[7, 6]], [[1, 2]]], "other went backwards"),
    "beyond its range": ((rank(PACKAGE), rank()), [[[10**12, 5]], []], "went backwards"),
    "not read": ((rank(PACKAGE), rank()), [[[7, None]], []], "RAPL package-0 could not be read"),
    "too short for one of two": (
        (rank(PACKAGE, GPU), rank(PACKAGE, GPU, hostname="node2")),
        [[[0, 9], [0, 9]], [[0, 9], [0, 9]]],
        r"^NVML has a new count every 0.1 s, and windows took less than 1 s$",
    ),
    "too short for the counter": (
        (rank(GPU), rank(GPU)),
        [[[7, 9]], [[1, 2]]],
        r"NVML has a new count every 0.1 s, and windows took less than 1 s",
    ),
    "too few counters": ((rank(PACKAGE), rank()), [[], []], "a window lacks a reading"),
    "too few ranks": ((rank(PACKAGE), rank()), [[[0, 5]]], "a window lacks its readings"),
}


@pytest.mark.parametrize(("ranks", "counts", "reason"), WRONG.values(), ids=WRONG)
def test_energy_that_is_not_known_is_no_number(
    tmp_path: Path, ranks: Any, counts: Any, reason: str
) -> None:
    found = run(tmp_path / "a.jsonl", ranks, counts, (0.5, 0.5))
    assert "joules_per_image" not in found.values
    assert re.search(reason, found.energy_reason)


def study(folder: Path, end: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The summary of six blocks in which DDP takes 2 J an image, or a little more, and Horovod
    RATIOS as much.
    """
    for block, ratio in enumerate(RATIOS):
        joules = 2 * (1 + block / 100)
        for cell, per_image in (("ddp/mpi", joules), ("horovod/mpi", joules * ratio)):
            count = round(per_image * IMAGES * STEPS * 1e6)
            name = f"{block}-{cell.replace('/', '-')}.jsonl"
            config = logs.config(cell, 2, block=block, peak_tflops=0.5)
            readings = [[[3, 3 + count]], []]
            run(folder / "runs" / name, (rank(PACKAGE), rank()), readings, config=config, end=end)
    logs.study_toml(folder)
    assert main(["report", str(folder), "--out", str(folder)]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_joules_are_compared_as_speed_is_paired_by_launch(tmp_path: Path) -> None:
    (comparison,) = study(tmp_path)["comparisons"]
    each = [math.log(ratio) for ratio in RATIOS]
    mean = sum(each) / 6
    sd = math.sqrt(sum((x - mean) ** 2 for x in each) / 5)
    half = T_95_5 * sd / math.sqrt(6)
    ratio = comparison["energy_ratio"]
    assert ratio["value"] == pytest.approx(math.exp(mean), rel=1e-6)
    assert ratio["low95"] == pytest.approx(math.exp(mean - half), rel=1e-5)
    assert ratio["high95"] == pytest.approx(math.exp(mean + half), rel=1e-5)
    assert ratio["n"] == 6
    (row,) = logs.rows((tmp_path / "report.md").read_text(), "Energy")
    assert (row["J/image, Horovod / DDP [95 %]"], row["n"]) == ("1.100 [1.085, 1.115]", "6")
    assert "energy_ratio_value" in (tmp_path / "comparisons.csv").read_text().splitlines()[0]


def test_joules_memory_and_operations_stand_beside_throughput(tmp_path: Path) -> None:
    end = {
        "peak_memory_bytes": [500_000_000, 700_000_000],
        "peak_device_memory_bytes": [None, 30_000_000],
        "flops_per_image": 1e9,
    }
    points = study(tmp_path, end)["throughput"]
    ddp = next(point for point in points if point["cell"] == "ddp/mpi")
    joules = 2 * math.exp(sum(math.log(1 + block / 100) for block in range(6)) / 6)
    assert ddp["joules_per_image"]["value"] == pytest.approx(joules, rel=1e-6)
    assert ddp["joules_per_image"]["n"] == 6
    assert ddp["rank_memory_bytes"]["value"] == pytest.approx(700e6)
    assert ddp["device_memory_bytes"]["value"] == pytest.approx(30e6)
    # 32 images in 0.1 s, by two ranks
    assert ddp["flops_per_s_and_rank"]["value"] == pytest.approx(160e9)
    assert ddp["flop_utilisation"]["value"] == pytest.approx(0.32)
    row = logs.rows((tmp_path / "report.md").read_text(), "Throughput")[0]
    assert row["J/image [95 %]"].startswith("2.05 [")
    assert row["energy of"] == "RAPL package-0"
    assert row["rank's memory MB [95 %]"] == "700.0 [700.0, 700.0]"
    assert row["rank's GFLOP/s [95 %]"] == "160.0 [160.0, 160.0]"
    assert row["of peak [95 %]"] == "32.0 % [32.0, 32.0]"


def test_a_peak_that_nobody_states_gives_no_utilisation(tmp_path: Path) -> None:
    end = {"flops_per_image": 1e9}
    found = run(tmp_path / "a.jsonl", (rank(), rank()), [[], []], (None, None), end=end)
    assert found.values["flops_per_image"] == 1e9
    assert "peak_flops_per_s" not in found.values


def test_logs_without_any_of_it_have_no_column_and_one_sentence(tmp_path: Path) -> None:
    logs.study(tmp_path)
    logs.study_toml(tmp_path)
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 0
    text, summary = (tmp_path / name for name in ("report.md", "summary.json"))
    assert f"- Energy is not known: {OLDER}." in text.read_text()
    assert text.read_text().count("nergy") == 1
    for name in ("joules", "memory", "flop", "energy"):
        assert name not in summary.read_text()
        assert name not in (tmp_path / "points.csv").read_text()


def test_other_counters_are_not_compared(tmp_path: Path) -> None:
    for cell, counters in (("ddp/mpi", [PACKAGE]), ("horovod/mpi", [PACKAGE, MEMORY])):
        name = f"{cell.replace('/', '-')}.jsonl"
        counts = [[[0, 5_000_000]] * len(counters), []]
        config = logs.config(cell, 2)
        run(tmp_path / name, (rank(*counters), rank()), counts, config=config)
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "energy_ratio" not in summary["comparisons"][0]
    each = sorted(point["joules_per_image"]["value"] for point in summary["throughput"])
    assert each == pytest.approx([5 / 160, 10 / 160])
