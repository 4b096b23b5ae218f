"""A thousand steps take no more memory than two hundred, on every rank; and a process group that is
closed leaves no thread behind, which would abort at the interpreter's exit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.models import build_model
from tests.bench.worker import Rank, on_ranks

pytestmark = pytest.mark.ranks

STEPS = (200, 1000)  # before the first look, and between the two


def resident_bytes(rank: Rank) -> list[int]:
    """Train, and read this process's resident set after 200 and after all steps."""
    loop, looks = rank.loop(rank.config, build_model(rank.config, 10)), []
    for steps in STEPS:
        for _ in range(steps):
            loop.step()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        looks.append(pages * os.sysconf("SC_PAGE_SIZE"))
    return looks


@pytest.mark.parametrize("cell", ["ddp/gloo", "horovod/mpi"])
def test_resident_memory_stays_flat_and_no_thread_of_torch_is_left(cell: str) -> None:
    backend, transport = cell.split("/")
    words = ["--model", "tests.bench.tiny:normalised", "--warmup-steps", str(STEPS[0])]
    words += ["--windows", "1", "--steps-per-window", str(STEPS[1])]
    cell_words = ["--backend", backend, "--transport", transport]
    by_rank, threads = on_ranks(2, resident_bytes, *cell_words, *words)
    torchs = {
        when: [name for name in names if name.startswith(("gloo_", "pt_"))]
        for when, names in threads.items()
    }
    assert bool(torchs["open"]) == (cell == "ddp/gloo"), "a thread of torch goes by other names"
    assert torchs["closed"] == []
    assert all(late <= 1.01 * early for early, late in by_rank), by_rank
