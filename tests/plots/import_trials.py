"""python -m tests.plots.import_trials: importers under many spoiled logs, and their speed.

Every input is a sample with bytes changed, lines cut, doubled, swapped or written into one another.
It must end in a table or in a reason; anything else ends the trial with the input.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.config import UsageError
from plots.imports import FORMATS
from plots.imports.observation import COLUMNS
from plots.imports.points import MOST_RANKS, Given, read
from tests.plots.test_imports import SAMPLES

TELL_THEIR_WORLD = ("horovod-synthetic", "ddp-benchmark", "itwinai", "csv")
CASES = [(name, text) for name, samples in SAMPLES.items() for text, _ in samples]


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


def outcome(name: str, data: bytes, path: Path) -> str:
    path.write_bytes(data)
    try:
        given = Given(source="trial", world_size=None if name in TELL_THEIR_WORLD else 4)
        found = read(FORMATS[name], name, [path], given)
    except UsageError as error:
        return "nothing of the format" if "nothing in it is" in str(error) else "refused"
    assert set(COLUMNS) < set(found.values.columns)
    assert found.values["quantity"].notna().all()
    assert np.isfinite(found.points["value"]).all()
    assert found.points["world_size"].between(1, MOST_RANKS).all()
    return "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of an MXNet log to time")
    asked = parser.parse_args()
    chance, ends = random.Random(asked.seed), Counter[str]()
    with TemporaryDirectory() as folder:
        for _ in range(asked.inputs):
            name, text = chance.choice(CASES)
            data = spoil(text.encode(), chance)
            try:
                ends[outcome(name, data, Path(folder) / "log")] += 1
            except Exception:
                print(f"{name}: {data!r}", file=sys.stderr)
                raise
    print(f"{asked.inputs} inputs: {dict(ends)}, 0 tracebacks")
    line = "INFO:root:Epoch[{}] Batch [{}]\tSpeed: 1764.83 samples/sec\tTrain-accuracy=0.400000\n"
    text = "".join(line.format(i // 1000, i % 1000) for i in range(asked.lines))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text)
        began = time.monotonic()
        rows = len(read(FORMATS["mxnet"], "mxnet", [path], Given(world_size=4)).values)
        print(f"mxnet: {asked.lines} lines, {rows} numbers, {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
