"""Our expansion of hostlists agrees with `scontrol show hostnames`, on random lists."""

from __future__ import annotations

import random

import pytest

from bench.config import UsageError
from bench.launch.hostlist import expand
from tests.cluster.steps import run

pytestmark = pytest.mark.cluster

LISTS = 300


def ranges(rng: random.Random) -> str:
    items = []
    for _ in range(rng.randint(1, 3)):
        width = rng.choice((1, 1, 2, 3))
        first = rng.randint(0, 12)
        last = first + rng.randint(0, 9)
        item = str(first).zfill(width)
        if rng.random() < 0.7:
            last_text = str(last).zfill(len(item))
            item += f"-{last_text}"
        items.append(item)
    return "[" + ",".join(items) + "]"


def host(rng: random.Random) -> str:
    word = rng.choice(("n", "node", "gpu-a", "r1c", "x0y", "a.b"))
    match rng.randint(0, 3):
        case 0:
            return word + str(rng.randint(0, 20))
        case 1:
            return word + ranges(rng) + rng.choice(("", "s")) + ranges(rng)
        case _:
            return word + ranges(rng)


def test_agrees_with_slurm_on_random_lists() -> None:
    rng = random.Random(1)
    texts = [",".join(host(rng) for _ in range(rng.randint(1, 4))) for _ in range(LISTS)]
    different = []
    for text in texts:
        theirs = run(["scontrol", "show", "hostnames", text]).stdout.split()
        try:
            ours = expand(text)
        except UsageError as error:
            ours = [str(error)]
        if ours != theirs:
            different.append((text, ours, theirs))
    assert not different, f"{len(different)} of {LISTS}: {different[:3]}"
