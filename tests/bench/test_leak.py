"""A thousand steps take no more memory than two hundred, in every cell, on every rank; and a
process group that is closed leaves no thread behind, which would abort at the interpreter's exit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.ranks import together

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("cell", ["ddp/gloo", "horovod/mpi"])
def test_resident_memory_stays_flat_and_no_thread_of_torch_is_left(
    cell: str, tmp_path: Path
) -> None:
    backend, transport = cell.split("/")
    out = tmp_path / "out.json"
    words = ["--backend", backend, "--transport", transport, "--world-size", "2"]
    words += ["--batch-per-rank", "4", "--dataset", "digits", "--image-size", "8"]
    done = together(2, "tests.bench.leak_worker", str(out), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(out.read_text())
    torchs = {
        when: [name for name in names if name.startswith(("gloo_", "pt_"))]
        for when, names in seen["threads"].items()
    }
    assert bool(torchs["open"]) == (cell == "ddp/gloo"), "a thread of torch goes by other names"
    assert torchs["closed"] == []
    looks = seen["resident_bytes"]
    assert len(looks) == 2
    for early, late in looks:
        print(
            f"{cell}: {early / 2**20:.1f} MiB after 200 steps, {late / 2**20:.1f} MiB after 1,200"
        )
        assert late <= 1.01 * early
