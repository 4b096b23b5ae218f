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

import pandas as pd

from bench.config import UsageError
from plots.imports import FORMATS
from plots.imports.observation import COLUMNS, decode
from tests.plots.test_imports import SAMPLES

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


def outcome(name: str, data: bytes) -> str:
    try:
        found = FORMATS[name].read(decode(data))
    except UsageError:
        return "refused with a reason"
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == list(COLUMNS)
    assert found["quantity"].notna().all()
    found["value"].astype(float)
    return "nothing of the format" if found.empty else "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of an MXNet log to time")
    asked = parser.parse_args()
    chance, ends = random.Random(asked.seed), Counter[str]()
    for _ in range(asked.inputs):
        name, text = chance.choice(CASES)
        data = spoil(text.encode(), chance)
        try:
            ends[outcome(name, data)] += 1
        except Exception:
            print(f"{name}: {data!r}", file=sys.stderr)
            raise
    print(f"{asked.inputs} inputs: {dict(ends)}, 0 tracebacks")
    line = "INFO:root:Epoch[{}] Batch [{}]\tSpeed: 1764.83 samples/sec\tTrain-accuracy=0.400000\n"
    text = "".join(line.format(i // 1000, i % 1000) for i in range(asked.lines))
    began = time.monotonic()
    rows = len(FORMATS["mxnet"].read(text))
    print(f"mxnet: {asked.lines} lines, {rows} numbers, {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
