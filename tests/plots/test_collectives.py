"""The figure of collectives: what stands in it, and what it refuses to draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.study.collectives import read
from plots.__main__ import main
from plots.report.figures import collectives

SIZES = (2**10, 2**16, 2**22, 2**28)


def log(folder: Path, cell: str, seconds: float = 1.0, **end: Any) -> Path:
    """Write a log of two ranks with 10 us and 1 GB/s, of which rank 1 is the slower by a half."""
    rank = {"cpu": "Test CPU", "hostname": "node1"}
    start = {"config": {"world_size": 2}, "workload": {"cell": cell}, "host": {"ranks": [rank]}}
    events: list[dict[str, Any]] = [{"event": "start", **start}]
    for size in SIZES:
        fast = seconds * (10e-6 + size / 1e9)
        each = {"kind": "all_reduce", "bytes": size, "seconds": [[fast] * 3, [1.5 * fast] * 3]}
        events.append({"event": "collective", **each})
    events.append({"event": "end", "status": "ok", **end})
    folder.mkdir(exist_ok=True)
    path = folder / f"{cell.replace('/', '-')}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_cells_and_bus_bandwidths(tmp_path: Path) -> None:
    paths = [log(tmp_path, cell) for cell in ("ddp/mpi", "horovod/gloo", "mpi4py")]
    figure = collectives.draw([read(path) for path in paths])
    times, rates = figure.axes
    assert times.get_title(loc="left") == "all-reduce"
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["PyTorch DDP over MPI", "Horovod over Gloo", "MPI (mpi4py)"]
    bus = [size / (15e-6 + 1.5 * size / 1e9) for size in SIZES]
    assert rates.get_lines()[0].get_ydata() == pytest.approx(bus), "of the slowest rank"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path / "good", "ddp/mpi")
    log(tmp_path / "bad", "ddp/gloo", status="failed: 1 result")
    log(tmp_path / "zero", "ddp/gloo", seconds=0.0)
    log(tmp_path / "odd", "ddp/gloo").write_text('{"event": "start"}')
    (tmp_path / "empty").mkdir()
    out = tmp_path / "collectives.svg"
    assert main(["figure", "collectives", str(tmp_path / "good"), "-o", str(out)]) == 0
    assert out.read_text().startswith("<?xml")
    for name in ("bad", "zero", "odd", "empty"):
        assert main(["figure", "collectives", str(tmp_path / name), "-o", str(out)]) == 2
    failed, zero, odd, none = capsys.readouterr().err.splitlines()
    assert failed.endswith("has not ended well (failed: 1 result); measure again")
    assert zero.endswith("holds no times; measure again")
    assert odd.endswith("is no log of bench collectives; name one")
    assert none.startswith(f"error: {tmp_path / 'empty'} holds no log of")
