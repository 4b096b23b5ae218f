"""A thousand steps take no more memory than two hundred, in every cell, on every rank; and a
process group that is closed leaves no thread behind, which would abort at the interpreter's exit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench.ranks import mpirun, run, thorough

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(
    "cell",
    [
        thorough("single/none"),
        thorough("ddp/mpi"),
        "ddp/gloo",
        "horovod/mpi",
        thorough("horovod/gloo"),
    ],
)
def test_resident_memory_stays_flat_and_no_thread_of_torch_is_left(
    cell: str, tmp_path: Path
) -> None:
    backend, transport = cell.split("/")
    ranks, out = (1 if backend == "single" else 2), tmp_path / "out.json"
    words = [
        "-m",
        "tests.bench.leak_worker",
        str(out),
        "--backend",
        backend,
        "--transport",
        transport,
    ]
    words += ["--world-size", str(ranks), "--batch-per-rank", "4", "--dataset", "digits"]
    words += ["--image-size", "8"]
    done = run([sys.executable, *words] if ranks == 1 else mpirun(ranks, *words), timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(out.read_text())
    torchs = {
        when: [name for name in names if name.startswith(("gloo_", "pt_"))]
        for when, names in seen["threads"].items()
    }
    assert bool(torchs["open"]) == (cell == "ddp/gloo"), "a thread of torch goes by other names"
    assert torchs["closed"] == []
    looks = seen["resident_bytes"]
    assert len(looks) == ranks
    for early, late in looks:
        print(
            f"{cell}: {early / 2**20:.1f} MiB after 200 steps, {late / 2**20:.1f} MiB after 1,200"
        )
        assert late <= 1.01 * early
