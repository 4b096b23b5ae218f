"""Tables of nccl-tests and OSU: each row, their own means, and how they stand beside ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.study.collectives import read as read_ours
from plots.__main__ import main
from plots.imports.collectives import measured
from plots.report.figures import collectives
from tests.plots.importing import Import
from tests.plots.test_collectives import log as ours
from tests.plots.test_imports import NCCL, OSU

HEAD = "#{:>12}{:>13}{:>10}{:>8}{:>8}" + 2 * "{:>9}{:>8}{:>8}{:>7}" + "\n"
NAMES = ("size", "count", "type", "redop", "root", *(2 * ("time", "algbw", "busbw", "#wrong")))
UNITS = (
    "#         (B)    (elements)                     (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)\n"
)


def nccl(
    kind: str, redop: str, ranks: int, factor: float, *, name: bool = True, root: int = -1
) -> str:
    """A run of two sizes, 10 us and 10 GB/s, in place a tenth slower."""
    text = f"# Collective test starting: {kind}_perf\n" if name else ""
    text += f"# nThread 1 nGpus {ranks} minBytes 1048576 maxBytes 16777216 step: 16(factor)\n#\n"
    text += "# Using devices\n"
    for rank in range(ranks):
        text += f"#  Rank {rank:2} Group  0 Pid  22 on  node1 device {rank} [0x07] NVIDIA H100\n"
    text += "#\n#                                 out-of-place           in-place\n"
    text += HEAD.format(*NAMES) + UNITS
    buses = []
    for size in (0, 2**20, 2**24):
        row = f"{size:>13}{size // 4:>13}     float{redop:>8}{root:>8}"
        for slower in (1.0, 1.1):
            us = round((10 + size / 1e4) * slower, 2)
            rate = size / us / 1e3
            buses.append(rate * factor)
            row += (
                f"{us:>9.2f}{rate:>8.2f}{rate * factor:>8.2f}{'N/A' if redop == 'none' else 0:>7}"
            )
        text += row + "\n"
    mean = sum(buses) / len(buses)
    return f"{text}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:g}\n#\n"


def test_collectives_of_one_log_stay_apart(bring: Import) -> None:
    log = nccl("all_reduce", "sum", 8, 1.75) + nccl("all_gather", "none", 8, 0.875)
    ended = bring("nccl-tests", log, "--backend", "nccl", "--source", "me")
    large = {"bytes": 2**24, "world_size": 8}
    us = round(10 + 2**24 / 1e4, 2)
    assert ended.value("all_reduce_seconds", **large) == pytest.approx(us / 1e6)
    assert ended.value("all_gather_in_place_seconds", **large) == pytest.approx(
        round(1.1 * (10 + 2**24 / 1e4), 2) / 1e6
    )
    assert "0 of 6 lines with the format's marker were not understood" in ended.out
    assert 0 not in set(ended.points["bytes"])


@pytest.mark.parametrize(
    ("kind", "redop", "factor", "root"),
    [
        ("all_reduce", "sum", 1.75, -1),
        ("all_reduce", "max", 1.75, -1),
        ("reduce_scatter", "sum", 0.875, -1),
        ("reduce", "sum", 1, 0),
    ],
)
def test_the_collective_follows_from_rates(
    bring: Import, kind: str, redop: str, factor: float, root: int
) -> None:
    log = nccl(kind, redop, 8, factor, name=False, root=root)
    assert f"{kind}_seconds" in bring("nccl-tests", log).quantities


def test_an_unnamed_collective_that_could_be_another_is_refused(bring: Import) -> None:
    log = nccl("all_gather", "none", 8, 0.875, name=False)
    assert "does not say which collective" in bring("nccl-tests", log).err
    named = bring("nccl-tests", {"all_gather-8.txt": log})
    assert "all_gather_seconds" in named.quantities


def test_algorithm_rates_of_before_2020(bring: Import) -> None:
    """Then an all-gather's algorithm bandwidth was its bus bandwidth."""
    log = NCCL.replace("all_reduce", "all_gather").replace("root  ", "").replace("    -1", "")
    log = (
        log.replace("sum", "")
        .replace("1.64   1.64", "0.82   0.82")
        .replace("3.28   3.28", "1.64   1.64")
    )
    log = log.replace("1.82   1.82", "0.91   0.91").replace("2.05   2.05", "1.02   1.02")
    ended = bring("nccl-tests", log.replace("2.1975", "1.0975"))
    assert ended.value("all_gather_seconds", bytes=65536) == pytest.approx(20e-6)


def test_the_last_line_of_a_table_names_its_collective(bring: Import) -> None:
    ends = {kind: f"# Collective test concluded: {kind}_perf\n" for kind in ("gather", "alltoall")}
    log = "".join(nccl(kind, "none", 8, 0.875, name=False) + end for kind, end in ends.items())
    ended = bring("nccl-tests", log)
    assert {"gather_seconds", "all_to_all_seconds"} < ended.quantities


def test_a_row_may_end_with_the_time_of_day(bring: Import) -> None:
    log = nccl("all_reduce", "sum", 8, 1.75)
    dated = re.sub(r"(float.*)", r"\1     2025-09-12 12:23:34", log)
    assert bring("nccl-tests", dated).points.equals(bring("nccl-tests", log).points)


def test_seconds_of_the_processor_are_none_of_the_collective(bring: Import) -> None:
    log = nccl("all_reduce", "sum", 8, 1.75).replace(" time ", " cputime ")
    assert "cputime, of the processor alone; run it without -C" in bring("nccl-tests", log).err


def test_a_time_below_a_microsecond_is_rounded_much(bring: Import) -> None:
    row = "    33554432       8388608     float    none      -1    18.48  1816.16    0.00      0"
    log = nccl("all_gather", "none", 1, 0)
    head, _, _ = log.partition("           0 ")
    ended = bring("nccl-tests", f"{head}{row}     0.05  619657.10    0.00      0\n")
    assert ended.value("all_gather_in_place_seconds") == pytest.approx(0.05e-6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2.1975", "2.5", "its mean bus bandwidth is 2.5 GB/s, and its rows make"),
        ("  65536 ", "  655360 ", "and its row says"),
        ("3.28   3.28", "3.28   6.56", "and its row says 6.56"),
        ("#  Rank  1", "#  Rank  0", "processes that ran apart"),
        ("values : 0 OK", "values : 3 FAILED", "3 of its values are wrong"),
        ("3.28      0 ", "3.28      7 ", "holds wrong results"),
        ("#  size   count  type", "#  bytes  N  type", "nccl-tests 1"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(
    bring: Import, old: str, new: str, said: str
) -> None:
    assert old in NCCL
    ended = bring("nccl-tests", NCCL.replace(old, new))
    assert ended.code == 2
    assert said in ended.err


def test_a_row_that_another_line_broke_is_told(bring: Import) -> None:
    log = NCCL.replace("   2.05   2.05      0\n", " node1:1 NCCL INFO x\n").split("# Avg")[0]
    ended = bring("nccl-tests", log)
    assert "1 of 2 lines with the format's marker were not understood" in ended.out
    assert "1 tables state no mean bus bandwidth: cut off?" in ended.out


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:", "2016-10-06T00:17:09.66Z stdout F "])
def test_osu_latencies_of_ranks(bring: Import, before: str) -> None:
    log = "".join(before + line for line in OSU.splitlines(keepends=True))
    ended = bring("osu", log, "--world-size", "4")
    assert ended.value("all_reduce_seconds", bytes=8) == pytest.approx(3.5e-6)
    assert ended.value("all_reduce_fastest_rank_seconds", bytes=4) == pytest.approx(2.5e-6)
    assert "0 of 2 lines with the format's marker were not understood" in ended.out


def test_osu_between_two_ranks(bring: Import) -> None:
    log = (
        "# OSU MPI-CUDA Latency Test v5.9\n# Size          Latency (us)\n0     1.50\n8     1.75\n"
        "# OSU MPI-CUDA Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n8     12.50\n"
        "# OSU MPI-CUDA Bi-Directional Bandwidth Test v5.9\n# Size   Bandwidth (MB/s)\n8 20.0\n"
    )
    ended = bring("osu", log)
    assert ended.value("point_to_point_seconds", bytes=8, world_size=2) == pytest.approx(1.75e-6)
    assert ended.value("bandwidth_bytes_per_s", bytes=8) == 12.5e6
    assert ended.value("bi_directional_bandwidth_bytes_per_s", bytes=8) == 20e6


def test_osus_all_gather_counts_the_bytes_of_all(bring: Import) -> None:
    log = "# OSU MPI Allgather Latency Test v5.6\n# Size       Avg Latency(us)\n1024      5.00\n"
    ended = bring("osu", log, "--world-size", "4")
    assert ended.value("all_gather_seconds", bytes=4096) == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("3.50 ", "9.50 ", "is none; mend the line"), ("3.50 ", "3.5x ", "is no number")],
)
def test_osu_rows_that_cannot_be(bring: Import, old: str, new: str, said: str) -> None:
    assert said in bring("osu", OSU.replace(old, new), "--world-size", "4").err


def test_osu_wants_the_world_size_and_passed_checks(bring: Import) -> None:
    assert "use --world-size" in bring("osu", OSU).err
    log = OSU.replace("Iterations", "Validation").replace("1000\n", "Fail\n")
    assert "its validation says 'Fail'" in bring("osu", log, "--world-size", "4").err


def test_they_stand_beside_ours(tmp_path: Path) -> None:
    table, other = tmp_path / "nccl.txt", tmp_path / "osu.txt"
    table.write_text(nccl("broadcast", "none", 2, 1.0, root=0))
    other.write_text(OSU.replace("Allreduce", "Broadcast"))
    theirs = measured("nccl-tests", [table]) + measured("osu", [other], 2)
    figure = collectives.draw([read_ours(ours(tmp_path, "ddp/mpi")), *theirs])
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["PyTorch DDP over MPI", "nccl-tests, float none 0", "osu, MPI"]
    times, _ = figure.axes
    drawn = [c[0].get_ydata().tolist() for c in times.containers]
    assert drawn[2] == pytest.approx([4e-6, 4.5e-6]), "OSU's slowest rank"


def test_the_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "nccl.txt"
    table.write_text(NCCL)
    words = ["collectives", "--nccl-tests", str(table), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert (tmp_path / "out" / "collectives.svg").exists()
    assert main(["collectives"]) == 2
    assert "no LOG is named" in capsys.readouterr().err
    assert main([*words, "--nccl-tests", str(table)]) == 2
    assert "two tables are of nccl-tests, float sum and 2 ranks" in capsys.readouterr().err
