"""Energy counters, from a tree of files as the kernel and Cray document them to the report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.instrument.energy import Meters, meters_of
from bench.instrument.nvml import Clocks
from bench.lifecycle.turn_table import VARIABLE, Place
from bench.record import Run, read_run
from bench.train import device
from plots.__main__ import main
from tests.bench import tiny
from tests.bench.ranks import ROOT, bench, environment, mpirun

# name, count and range as Documentation/power/powercap shows them; the zones of a 2-socket server
ZONES = {
    "intel-rapl:0": ("package-0", 1_000_000, 262_143_328_850),
    "intel-rapl:0:0": ("core", 400_000, 262_143_328_850),
    "intel-rapl:0:1": ("dram", 50_000, 65_712_999_613),
    "intel-rapl:1": ("package-1", 262_143_000_000, 262_143_328_850),  # soon begins again
    "intel-rapl:1:0": ("dram", 60_000, 65_712_999_613),
    "intel-rapl:2": ("psys", 7_000_000, 262_143_328_850),
    "intel-rapl-mmio:0": ("package-0", 1_000_000, 262_143_328_850),  # the same package once more
}
SUMMED = ["RAPL package-0", "RAPL package-0 dram", "RAPL package-1", "RAPL package-1 dram"]
ALL = [*SUMMED, "RAPL psys"]
SHORT = ["--model", "tests.bench.tiny:plain", "--dataset", "digits", "--batch-per-rank", "4"]
SHORT += ["--warmup-steps", "3", "--windows", "4", "--steps-per-window", "5", "--world-size", "2"]
SHORT += ["--inject-ms", "40"]  # windows in which a tree's counters surely rise


def rapl(root: Path) -> Path:
    """A tree of RAPL's zones below `root`."""
    for zone, (name, count, wraps_at) in ZONES.items():
        folder = root / "class" / "powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{count}\n")
        (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    (root / "class" / "powercap" / "intel-rapl").mkdir()  # the control type: no zone
    return root


def cray(root: Path) -> Path:
    """A tree of pm_counters below `root`, in their form 'count unit time us'."""
    folder = root / "cray" / "pm_counters"
    folder.mkdir(parents=True)
    for name, text in {
        "energy": "219190482 J 1616063478213374 us",
        "cpu_energy": "88180481 J 1616063478213374 us",
        "accel0_energy": "51003 J 1616063478213374 us",
        "power": "268 W 1616063478213374 us",
        "freshness": "1254911",
        "raw_scan_hz": "10",
    }.items():
        (folder / name).write_text(f"{text}\n")
    return root


def node(root: Path) -> Meters:
    return meters_of(root, None, first_of_node=True)


def names(meters: Meters, *scopes: str) -> list[str]:
    return [meter.name for meter in meters.meters if meter.scope in scopes]


def test_packages_and_memory_add_up_and_no_part_is_read_twice(tmp_path: Path) -> None:
    meters = node(rapl(tmp_path))
    assert names(meters, "part") == SUMMED
    assert names(meters, "node", "device", "beside") == ["RAPL psys"]
    assert meters.absent == [f"no {tmp_path}/cray/pm_counters"]
    record = meters.record()["energy_counters"][1]
    assert record["joules"] == 1e-6
    assert record["wraps_at"] == 65_712_999_613
    assert meters.edge().counts == [1_000_000, 50_000, 262_143_000_000, 60_000, 7_000_000]


def test_the_node_of_a_cray_is_one_counter_in_joules(tmp_path: Path) -> None:
    meters = node(cray(tmp_path))
    assert names(meters, "node") == ["pm_counters energy"]
    assert names(meters, "part", "device", "beside") == ["pm_counters accel0_energy"]
    assert [meter.joules for meter in meters.meters] == [1.0, 1.0]
    begin = meters.edge()
    (tmp_path / "cray/pm_counters/energy").write_text("219190745 J 1616063479213374 us\n")
    reading = meters.since(begin)
    assert reading is not None
    assert reading[0] > 0
    assert reading[1] == [[51003, 51003], [219190482, 219190745]]


def test_a_counter_that_cannot_be_read_is_named_and_not_read(tmp_path: Path) -> None:
    zone = rapl(tmp_path) / "class/powercap/intel-rapl:0"
    (zone / "energy_uj").unlink()
    (zone / "energy_uj").mkdir()  # root may read every file, but no folder
    (zone.with_name("intel-rapl:1") / "energy_uj").write_text("\n")
    meters = node(tmp_path)
    assert names(meters, "part") == ["RAPL package-0 dram", "RAPL package-1 dram"]
    assert "RAPL package-0: Is a directory" in meters.absent
    assert [reason.partition(":")[0] for reason in meters.absent[1:]] == SUMMED[::2]


def test_a_counter_that_goes_away_costs_no_run(tmp_path: Path) -> None:
    meters = node(cray(tmp_path))
    begin = meters.edge()
    (tmp_path / "cray/pm_counters/energy").unlink()
    reading = meters.since(begin)
    assert reading is not None
    assert reading[1] == [[51003, 51003], [219190482, None]]


def test_a_number_that_no_log_takes_is_none(tmp_path: Path) -> None:
    meters = node(cray(tmp_path))
    for text in ("-5 J 1 us", "9" * 30):
        (tmp_path / "cray/pm_counters/energy").write_text(text)
        assert meters.edge().counts == [51003, None]
    zone = rapl(tmp_path) / "class/powercap/intel-rapl:0"
    for text in ("-1", "9" * 40):
        (zone / "max_energy_range_uj").write_text(text)
        assert "RAPL package-0" not in names(node(tmp_path), "part")


def test_only_the_first_rank_of_a_node_reads_the_node(tmp_path: Path) -> None:
    meters = meters_of(rapl(tmp_path), None, first_of_node=False)
    assert meters.record() == {"energy_counters": [], "energy_absent": []}
    assert meters.since(meters.edge()) is None


ASK = """
import json, sys
from pathlib import Path
from bench.instrument.energy import meters_of
meters = meters_of(Path("/nowhere"), sys.argv[1], first_of_node=False)
print(json.dumps([meters.record(), meters.since(meters.edge())]))
"""


ASK_CLOCKS = """
import json, sys
from bench.instrument.nvml import Clocks
clocks = Clocks(sys.argv[1])
print(json.dumps(clocks.since(clocks.edge())))
"""


def stub(folder: Path, *flags: str) -> dict[str, str]:
    """Variables with which a process finds the stub of NVML."""
    gcc = str(shutil.which("gcc"))
    source, library = Path(__file__).with_name("nvml_stub.c"), folder / "libnvidia-ml.so.1"
    subprocess.run([gcc, *flags, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


def nvml(folder: Path, uuid: str, *flags: str, ask: str = ASK) -> Any:
    """What a process says that finds the stub of NVML."""
    env = environment(stub(folder, *flags))
    command = [sys.executable, "-c", ask, uuid]
    done = subprocess.run(command, env=env, cwd=ROOT, check=True, capture_output=True)
    return json.loads(done.stdout)


def test_a_gpu_is_read_in_millijoules_through_nvml(tmp_path: Path) -> None:
    record, reading = nvml(tmp_path, "7a")
    counter = {"name": "NVML", "scope": "device", "joules": 1e-3, "wraps_at": None}
    assert record == {"energy_counters": [counter], "energy_absent": []}
    assert reading[1] == [[5_000_003_000, 5_000_004_500]]  # the first reading tells that it works


def test_a_gpu_that_nvml_does_not_know_is_named(tmp_path: Path) -> None:
    record, reading = nvml(tmp_path, "b8")
    wrong = "NVML: [Errno 6] nvmlDeviceGetHandleByUUID returned 6"
    assert record == {"energy_counters": [], "energy_absent": [wrong]}
    assert reading is None


def test_an_nvml_without_that_counter_is_named(tmp_path: Path) -> None:
    record, _ = nvml(tmp_path, "7a", "-DnvmlDeviceGetTotalEnergyConsumption=another")
    wrong = "NVML: nvmlDeviceGetTotalEnergyConsumption is not in libnvidia-ml.so.1"
    assert record == {"energy_counters": [], "energy_absent": [wrong]}


def test_a_gpus_clock_and_what_lowered_it(tmp_path: Path) -> None:
    read = nvml(tmp_path, "7a", ask=ASK_CLOCKS)
    assert read == {
        "sm_mhz": [1755, 1755],
        "power_ns": [9_000_000_000, 10_000_000_000],  # after a first reading, as above
        "thermal_ns": [0, 0],
    }
    assert nvml(tmp_path, "b8", ask=ASK_CLOCKS) == {}, "a GPU that NVML does not know"
    old = nvml(tmp_path, "7a", "-DnvmlDeviceGetFieldValues=another", ask=ASK_CLOCKS)
    assert old == {"sm_mhz": [1755, 1755]}
    assert Clocks(None).since(Clocks(None).edge()) == {}


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Path]:
    """A recorded tree whose counters go on while a run lasts: all rise together, package-1 wraps.

    A real one rises by itself; the files are replaced whole, as a reader never sees half a count.
    """
    root, stop = rapl(tmp_path / "sys"), threading.Event()
    counts = {zone: count for zone, (_, count, _) in ZONES.items()}

    def count() -> None:
        while not stop.wait(0.002):
            for zone in counts:
                counts[zone] = (counts[zone] + 20_000) % ZONES[zone][2]
                new = root / "class/powercap" / zone / "new"
                new.write_text(f"{counts[zone]}\n")
                new.replace(new.with_name("energy_uj"))

    counter = threading.Thread(target=count)
    counter.start()
    yield root
    stop.set()
    counter.join()


def counts_of(run: Run, counter: int = 0) -> list[tuple[int, int]]:
    """Before and after each window, of one of rank 0's counters."""
    return [tuple(window["energy_counts"][0][counter]) for window in run.windows]


def joules(run: Run) -> float:
    """Of all windows, by this test's own arithmetic: rank 0's first four counters, to the window's
    seconds.
    """
    total = 0.0
    for window in run.windows:
        (before_after, _), seconds = window["energy_counts"], window["energy_seconds"][0]
        ranges = [262_143_328_850, 65_712_999_613, 262_143_328_850, 65_712_999_613]
        both = zip(before_after[:4], ranges, strict=True)
        microjoules = sum((after - before) % wraps_at for (before, after), wraps_at in both)
        total += microjoules / 1e6 * window["seconds"] / seconds
    return total


@pytest.mark.ranks
def test_from_a_recorded_counter_to_the_report(counting: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    runs = {}
    for backend in ("ddp", "horovod"):
        log = folder / f"{backend}.jsonl"
        words = [*SHORT, "--backend", backend, "--sysfs", str(counting), "--log-path", str(log)]
        done = bench(2, *words, "--peak-tflops", "0.05")
        assert done.returncode == 0, done.stderr
        runs[f"{backend}/mpi"] = read_run(log)
    for run in runs.values():
        assert run.problem is None
        assert [c["name"] for c in run.host["ranks"][0]["energy_counters"][:4]] == SUMMED
        assert run.host["ranks"][1]["energy_counters"] == []
        assert all(before < after for before, after in counts_of(run))
    assert main(["report", str(folder), "--out", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    per_image = {cell: joules(run) / (4 * 5 * 8) for cell, run in runs.items()}
    for point in summary["throughput"]:
        cell = point["cell"]
        assert point["joules_per_image"]["value"] == pytest.approx(per_image[cell])
        assert point["energy_counters"] == SUMMED
        done_per_s = runs[cell].end["flops_per_image"] * runs[cell].images_per_s / 2
        assert point["flop_utilisation"]["value"] == pytest.approx(done_per_s / 0.05e12)
    (comparison,) = summary["comparisons"]
    ratio = per_image["horovod/mpi"] / per_image["ddp/mpi"]
    assert comparison["energy_ratio"]["value"] == pytest.approx(ratio)
    text = (folder / "report.md").read_text()
    assert "## Energy" in text
    assert "Energy is not known" not in text


@pytest.mark.ranks
def test_a_node_is_charged_to_the_world_whose_turn_it_is(counting: Path, tmp_path: Path) -> None:
    place, launched = Place("energy", 0, (2, 2)), []
    for turn, backend in enumerate(("ddp", "horovod")):
        log = tmp_path / f"{backend}.jsonl"
        words = [*SHORT, "--backend", backend, "--sysfs", str(counting), "--log-path", str(log)]
        env = environment({VARIABLE: Place(place.launch, turn, place.sizes).words})
        launched.append(subprocess.Popen(mpirun(2, "-m", "bench", *words), cwd=ROOT, env=env))
    assert [process.wait(300) for process in launched] == [0, 0]
    windows = [read_run(tmp_path / f"{name}.jsonl") for name in ("ddp", "horovod")]
    charged = sorted(span for run in windows for span in counts_of(run))
    assert len(charged) == 8
    assert all(before < after for before, after in charged)
    assert all(first[1] <= second[0] for first, second in pairwise(charged)), "counted twice"


def on_the_stubs_gpu(classes: int) -> torch.nn.Module:
    """A model after whose making a rank takes its CPU for the GPU that the stub knows."""
    device.Cpu.uuid = "7a"
    return tiny.plain(classes)


@pytest.mark.ranks
def test_from_the_clocks_of_a_stub_to_the_report(tmp_path: Path) -> None:
    log = tmp_path / "study" / "run.jsonl"
    words = [*SHORT, "--backend", "ddp", "--sysfs", str(tmp_path), "--log-path", str(log)]
    words += ["--model", "tests.bench.test_energy:on_the_stubs_gpu"]
    done = bench(2, *words, extra=stub(tmp_path))
    assert done.returncode == 0, done.stderr
    run = read_run(log)
    assert run.problem is None
    assert [len(window["clocks"]) for window in run.windows] == [2] * 4
    edges = [tuple(window["clocks"][1]["power_ns"]) for window in run.windows]
    assert all(after - before == 10**9 for before, after in edges)
    assert all(after < before for (_, after), (before, _) in pairwise(edges))
    assert main(["report", str(log.parent), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "clocks lowered by power in 4 of 4 windows" in text
    assert "ddp/mpi 4 by power, 0 by heat of 4 windows, 1755 to 1755 MHz" in text


@pytest.mark.ranks
def test_where_nothing_counts_the_report_says_why(tmp_path: Path) -> None:
    for core in os.sched_getaffinity(0):
        (tmp_path / f"none/devices/system/cpu/cpu{core}/node3").mkdir(parents=True)
    words = [*SHORT, "--backend", "ddp", "--sysfs", str(tmp_path / "none")]
    done = bench(2, *words, "--log-path", str(tmp_path / "study" / "run.jsonl"))
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "study" / "run.jsonl")
    assert not any("energy_counts" in window for window in run.windows)
    assert [rank["numa_nodes"] for rank in run.host["ranks"]] == [[3], [3]]
    assert main(["report", str(tmp_path / "study"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    absent = (
        f"no {tmp_path}/none/class/powercap/intel-rapl:\\*; no {tmp_path}/none/cray/pm_counters"
    )
    assert f"- Energy is not known: no counter could be read ({absent})." in text
    assert text.count("nergy") == 1
    assert "joules" not in (tmp_path / "out" / "summary.json").read_text()
