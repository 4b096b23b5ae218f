"""python -m tests.plots.mutations --inputs 100000: damaged run logs through the reader; what became
of them, by kind of damage.

Each input is a real log of which one to three places were damaged by a seeded generator. A log that
the present writer wrote must come out unusable with a reason, or with every number and fact that
the report takes from it unchanged. Older logs carry no digest: for them only what contradicts
itself can be noticed, and no input may end in a traceback.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.record import CHECKS, READABLE, SCHEMA, STATES, RunLog, append_event, parse_run
from bench.study.plan import PlannedPoint, PlannedRun
from bench.study.status import look
from plots.analyse import runs
from plots.analyse.row import row_of
from plots.read.runs import find_study
from tests.plots.logs import resealed

FIXTURES = Path(__file__).parents[1] / "fixtures"
OLD = tuple((FIXTURES / f"run-schema-{schema}.jsonl").read_bytes() for schema in READABLE[:-1])
BATCH = 250  # inputs that go through files, `slurm status` and `plots.read.runs` together

Mutation = Callable[[random.Random, bytes], bytes]

ODD: tuple[Any, ...] = (
    *(True, False, None, "", "0.5", "ok", -1, 0, 1, 2.5, 10**30, 10**400, 1e308, 1e-320, -0.0),
    *(float("nan"), float("inf")),
    *([], [1], ["a", 1], [[0.5]], [None], {}, {"a": 1}, {"rank": 0}),
    *("\ud800", "$\\bad$ <b>", "x\ny", [[[[[[]]]]]]),
)
NUMBERS = (
    *(b"1e308", b"1e-320", b"1" + b"0" * 400, b"NaN", b"-Infinity"),
    *(b"1E5", b"-0", b"00", b"0.1e1", b"true"),
)
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
PAIR = re.compile(rb'"(\w+)": ("[^"]*"|-?[\d.e+-]+|true|false|null)')


def _flip(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1 :]


def _delete(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return data[:at] + data[at + r.randint(1, 8) :]


def _insert(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return (
        data[:at]
        + r.choice([r.randbytes(r.randint(1, 8)), b"\n", b"\r", b" ", b"\x00", b"0", b'"', b"}"])
        + data[at:]
    )


def _digit(r: random.Random, data: bytes) -> bytes:
    at = r.choice([match.start() for match in re.finditer(rb"\d", data)] or [0])
    return data[:at] + str(r.randrange(10)).encode() + data[at + 1 :]


def _number(r: random.Random, data: bytes) -> bytes:
    found = r.choice([*NUMBER.finditer(data)] or [re.match(b"", data)])
    assert found is not None
    return data[: found.start()] + r.choice(NUMBERS) + data[found.end() :]


def _key_twice(r: random.Random, data: bytes) -> bytes:
    """The same key once more, with another value, before or after."""
    pairs = [*PAIR.finditer(data)]
    if not pairs:
        return data
    here, other = r.choice(pairs), r.choice(pairs)
    words = [here[0], b'"' + here[1] + b'": ' + r.choice([other[2], *NUMBERS[:1], b"0.5", b"7"])]
    return data[: here.start()] + b", ".join(r.sample(words, 2)) + data[here.end() :]


def _truncate(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def _lines(change: Callable[[random.Random, list[bytes]], None]) -> Mutation:
    def mutate(r: random.Random, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        if lines:
            change(r, lines)
        return b"".join(lines)

    return mutate


def _delete_line(r: random.Random, lines: list[bytes]) -> None:
    del lines[r.randrange(len(lines))]


def _double_line(r: random.Random, lines: list[bytes]) -> None:
    lines.insert(r.randrange(len(lines) + 1), r.choice(lines))


def _move_line(r: random.Random, lines: list[bytes]) -> None:
    line = lines.pop(r.randrange(len(lines)))
    lines.insert(r.randrange(len(lines) + 1), line)


def _splice(r: random.Random, lines: list[bytes]) -> None:
    """A line of another log, in place of one or beside it."""
    other = r.choice(r.choice(SOURCES + OLD).splitlines(keepends=True) or [b"\n"])
    at = r.randrange(len(lines))
    lines[at : at + r.randint(0, 1)] = [other]


def _odd_line(r: random.Random, lines: list[bytes]) -> None:
    odd = (
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[]",
        b"3",
        b'{"event": []}',
        b"{}",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"",
    )
    lines.insert(r.randrange(len(lines) + 1), r.choice(odd) + b"\n")


def _value(r: random.Random, lines: list[bytes]) -> None:
    """Some value in an event is replaced by one of another type, dropped, or doubled."""
    at = r.randrange(len(lines))
    try:
        event = json.loads(lines[at])
    except (ValueError, RecursionError):
        return
    holders = [*_containers(event)]
    if not holders:
        return
    place = r.choice(holders)
    key: Any = r.choice(list(place) if isinstance(place, dict) else range(len(place)))
    match r.randrange(8):
        case 0:
            del place[key]
        case 1 if isinstance(place, list):
            place.insert(key, place[key])
        case 2:
            place[key] = [place[key]]
        case 3:
            place[key] = {"a": place[key]}
        case 4:
            place[key] = "x" * r.choice([5_000, 200_000])
        case _:
            place[key] = r.choice(ODD)
    lines[at] = json.dumps(event).encode() + b"\n"


def _containers(value: Any) -> list[Any]:
    """Every object and list inside, itself too, that holds something."""
    inside = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    return [*([value] if inside else []), *(found for one in inside for found in _containers(one))]


MUTATIONS: dict[str, Mutation] = {
    "flipped bit": _flip,
    "deleted bytes": _delete,
    "inserted bytes": _insert,
    "changed digit": _digit,
    "odd number": _number,
    "key twice": _key_twice,
    "cut off": _truncate,
    "deleted line": _lines(_delete_line),
    "doubled line": _lines(_double_line),
    "moved line": _lines(_move_line),
    "spliced line": _lines(_splice),
    "odd line": _lines(_odd_line),
    "odd value": _lines(_value),
}


def as_written_now(old: bytes, folder: Path, name: str, *, exit_line: bool = True) -> bytes:
    """A real log of an older schema as the present writer writes it: the same events, in one go."""
    path = folder / name
    log = RunLog(path)
    for line in filter(None, old.splitlines()):
        event = json.loads(line)
        kind = event.pop("event")
        own = {"start": {"schema": SCHEMA}, "end": {"checks": dict.fromkeys(CHECKS, True)}}
        event |= own.get(kind, {})
        if kind != "exit":
            log.write(kind, **event)
        elif exit_line:
            append_event(path, kind, **event)
    return path.read_bytes()


def _new_logs() -> tuple[bytes, ...]:
    """Two of a study, one by hand, one each that failed, was killed, and is running."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        whole = [as_written_now(old, folder, f"{i}.jsonl") for i, old in enumerate(OLD)]
        by_hand = as_written_now(OLD[2], folder, "by-hand.jsonl", exit_line=False)
        lines = whole[2].splitlines(keepends=True)
        failed, killed = folder / "failed.jsonl", folder / "killed.jsonl"
        failed.write_bytes(b"".join(lines[:4]))
        append_event(failed, "error", rank=1, type="RuntimeError", message="RuntimeError: boom")
        append_event(failed, "end", status="failed: RuntimeError: boom")
        asked = {"timed_out": False, "interrupted": False, "limit_s": 60}
        append_event(failed, "exit", code=1, **asked, said=["error: boom"])
        killed.write_bytes(b"".join(lines[:4]) + lines[4][:50])
        append_event(killed, "exit", code=137, **asked, said=[])
        return (*whole, by_hand, failed.read_bytes(), killed.read_bytes(), b"".join(lines[:5]))


SOURCES = _new_logs()
NO_STUDY, _ = find_study(Path("nowhere"))
_OF_ITS_EXIT = re.compile(r"'(allocation|exit_code|session|wall_s)': [^,]+")


def used(data: bytes) -> dict[str, Any]:
    """All that status and report take from a log: state, reason, numbers and facts."""
    run = parse_run(Path("x.jsonl"), data)
    assert run.state in STATES
    assert (run.problem is None) == (run.state == "ok")
    assert "\n" not in (run.problem or "")
    assert isinstance(run.exit.get("wall_s", 0), int | float)
    found: dict[str, Any] = {"state": run.state, "reason": run.problem}
    if run.state == "ok":
        found |= {"row": row_of(run, NO_STUDY), "host": run.host, "workload": run.workload}
        found["processes"] = run.processes
    json.dumps(found, default=str).encode()  # what a report writes must be text
    return found


@dataclass
class Tally:
    """What became of the inputs; each list holds what is needed to look at a fault again."""

    inputs: int = 0
    unusable: int = 0
    same: int = 0
    # cut off after a complete run and before its launcher's line: the log of a moment earlier
    exit_lost: int = 0
    changed: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        return (
            f"{name}: {self.inputs} inputs, {len(self.tracebacks)} tracebacks, {self.unusable} "
            f"unusable with a reason, "
            f"{self.same} unchanged in all that is used, {self.exit_lost} cut off before their "
            f"launcher's line, "
            f"{len(self.changed)} used with something changed"
        )


def run_mutations(sources: Sequence[bytes], inputs: int, seed: int, reseal: bool = False) -> Tally:
    """Damage `sources` that often, and say what came of it. With `reseal` the digests fit the
    damage, so that it is for all other checks to find.
    """
    r, tally = random.Random(seed), Tally()
    before = [repr(used(source)) for source in sources]
    pending: list[bytes] = []
    with tempfile.TemporaryDirectory() as made:
        for _ in range(inputs):
            number = r.randrange(len(sources))
            names = r.choices(list(MUTATIONS), k=r.choice([1, 1, 1, 2, 3]))
            data = sources[number]
            for name in names:
                data = MUTATIONS[name](r, data) if data else data
            data = resealed(data) if reseal else data
            tally.inputs += 1
            what = f"source {number}, {' + '.join(names)}"
            try:
                _judge(tally, what, sources[number], before[number], data)
                pending.append(data)
                if len(pending) == BATCH:
                    _through_files(Path(made), pending)
                    pending.clear()
            except Exception:
                tally.tracebacks.append(f"{what}\n{traceback.format_exc()}")
    return tally


def _judge(tally: Tally, what: str, source: bytes, before: str, data: bytes) -> None:
    found = used(data)
    if repr(found) == before:
        tally.same += 1
    elif found["state"] != "ok":
        assert found["reason"]
        tally.unusable += 1
    elif source.startswith(data.rstrip(b"\n")) and b'"event": "exit"' in source[len(data) :]:
        tally.exit_lost += 1
        assert _OF_ITS_EXIT.sub("", repr(found)) == _OF_ITS_EXIT.sub("", before)
    else:
        tally.changed.append(f"{what}: {found}")


def _through_files(folder: Path, logs: Sequence[bytes]) -> None:
    """The same through files, `slurm status` of each and `plots.analyse.runs` of all."""
    config = parse_run(Path("x"), SOURCES[-1]).config
    assert config is not None
    for i, data in enumerate(logs):
        path = folder / f"{i}.jsonl"
        path.write_bytes(data)
        run = PlannedRun(
            str(i),
            PlannedPoint("single", 1, 8, ()),
            config.model_copy(update={"log_path": path}),
        )
        assert look(run, job_is_running=False).state in STATES
    loaded = runs.load(folder)
    frames = loaded.runs, loaded.observed
    assert sum(map(len, frames)) + len(loaded.unusable) == len(logs)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inputs",
        type=int,
        default=100_000,
        help="half of logs as they are written now, half of older ones with digests that fit",
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    new = run_mutations(SOURCES, asked.inputs // 2, asked.seed)
    old = run_mutations(OLD, asked.inputs - asked.inputs // 2, asked.seed + 1, reseal=True)
    print(new.line(f"schema {SCHEMA}"))
    print(old.line(f"schemas {READABLE[0]} to {SCHEMA - 1}"))
    print(f"{asked.inputs} inputs in {time.monotonic() - began:.0f} s, seed {asked.seed}")
    faults = [*new.tracebacks, *new.changed, *old.tracebacks]
    for fault in faults[:5]:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
