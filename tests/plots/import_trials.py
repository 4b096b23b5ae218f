"""python -m tests.plots.import_trials: importers under many spoiled logs, and their speed.

Every input is a sample with bytes changed, lines cut, doubled, swapped or written into one another.
It must end in a table or in a reason; anything else ends the trial with the input. A sample whose
own total or mean can tell must not give another number without a word: other points, and neither
a warning nor a line that was not understood.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.config import UsageError
from plots.imports import find
from plots.imports.files import MOST_RANKS
from plots.imports.observation import COLUMNS, ImportOptions
from plots.imports.points import Imported, read
from tests.plots.test_import_collectives import nccl
from tests.plots.test_import_totals import HOROVOD, steps, synthetic, tf_cnn
from tests.plots.test_imports import IMAGENET, SAMPLES

TELL_THEIR_WORLD = ("horovod-synthetic", "ddp-benchmark", "itwinai", "csv", "nccl-tests")
# name, text, and the quantities that are held against something in the same file, with how far a
# spoiled one may stand from the clean one before a check can tell
CHECKED: list[tuple[str, str, dict[str, float]]] = [
    ("horovod-synthetic", synthetic([100.0, 102.0, 104.0], 102.0), {"images_per_s": 0.002}),
    ("horovod-synthetic", synthetic([20.0, 100.0, 104.0], 102.0), {"images_per_s": 0.002}),
    ("tf-cnn-benchmarks", tf_cnn(HOROVOD, "horovod", steps(250.0, 998.0)), {"images_per_s": 0.2}),
    ("nccl-tests", nccl("all_reduce", "sum", 8, 1.75), {"all_reduce_seconds": 0.007}),
]
CASES: list[tuple[str, str, dict[str, float]]] = [
    *((name, text, {}) for name, samples in SAMPLES.items() for text, _ in samples),
    *CHECKED,
]


def spoil(data: bytes, chance: random.Random) -> bytes:
    """One to four changes."""
    for _ in range(chance.randint(1, 4)):
        lines = data.split(b"\n")
        i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                data = data[: chance.randrange(len(data) + 1)]
            case 1:
                at = chance.randrange(len(data) + 1)
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                lines[i] = lines[i][: chance.randrange(len(lines[i]) + 1)] + lines[j]
                data = b"\n".join(lines)
            case 3:
                lines.insert(i, lines[j])
                data = b"\n".join(lines)
            case 4:
                word = chance.choice([b"nan", b"inf", b"-1", b"1e999", b"", b"9" * 40])
                words = lines[i].split(b" ")
                words[chance.randrange(len(words))] = word
                lines[i] = b" ".join(words)
                data = b"\n".join(lines)
            case 5:
                data = data.replace(b"\n", b"\r\n")
    return data


def imported(name: str, data: bytes, path: Path) -> Imported:
    path.write_bytes(data)
    world = None if name in TELL_THEIR_WORLD else 4
    given = ImportOptions(source="trial", backend="trial", world_size=world, patterns=[IMAGENET])
    if name == "tf-cnn-benchmarks" and b"Devices" in data:
        given = ImportOptions(source="trial")
    return read(find(name), name, [path], given)


def outcome(name: str, data: bytes, path: Path) -> Imported | str:
    try:
        found = imported(name, data, path)
    except UsageError as error:
        return "nothing of the format" if "nothing in it is" in str(error) else "refused"
    assert set(COLUMNS) < set(found.values.columns)
    assert found.values["quantity"].notna().all()
    assert np.isfinite(found.points["value"]).all()
    assert found.points["world_size"].between(1, MOST_RANKS).all()
    return found


def silently_other(clean: Imported, spoiled: Imported, allowed: dict[str, float]) -> str:
    """A quantity whose points differ by more than a check can miss, though nothing was said."""
    if any(
        re.search(r"^log: [1-9]\d* of|may be cut|cut off|left out", w) for w in spoiled.warnings
    ):
        return ""
    place = ["world_size", "bytes"] if "bytes" in clean.points else ["world_size"]
    for quantity, off in allowed.items():
        before, after = (
            x.points[x.points["quantity"] == quantity].set_index(place)["value"]
            for x in (clean, spoiled)
        )
        both = before.index.intersection(after.index)
        if (after.index.difference(before.index)).size or (
            (after[both] / before[both] - 1).abs() > off
        ).any():
            return quantity
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of an MXNet log to time")
    asked = parser.parse_args()
    chance, ends, silent = random.Random(asked.seed), Counter[str](), 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        clean = {text: imported(name, text.encode(), path) for name, text, checks in CHECKED}
        for _ in range(asked.inputs):
            name, text, checks = chance.choice(CASES)
            data = spoil(text.encode(), chance)
            try:
                end = outcome(name, data, path)
            except Exception:
                print(f"{name}: {data!r}", file=sys.stderr)
                raise
            ends[end if isinstance(end, str) else "read"] += 1
            other = (
                silently_other(clean[text], end, checks)
                if checks and isinstance(end, Imported)
                else ""
            )
            if other:
                silent += 1
                print(f"{name}: {other} is another, silently: {data!r}", file=sys.stderr)
    print(f"{asked.inputs} inputs: {dict(ends)}, 0 tracebacks, {silent} silently other")
    line = "INFO:root:Epoch[{}] Batch [{}]\tSpeed: 1764.83 samples/sec\tTrain-accuracy=0.400000\n"
    text = "".join(line.format(i // 1000, i % 1000) for i in range(asked.lines))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text)
        began = time.monotonic()
        rows = len(read(find("mxnet"), "mxnet", [path], ImportOptions(world_size=1)).values)
        print(f"mxnet: {asked.lines} lines, {rows} numbers, {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
