"""The check itself, really run: against a machine as it is, and slowed down by 10 % of a step.

python -m tests.check_trials --results results/mine/check-trials: sessions of a reference, then
checks by turns without and with a sleep; one line of trials.csv for each, and the counts beside
their bars. Wants a quiet machine for 80 minutes; the same command goes on where it was stopped.
The work is that of check_trials.toml; `-- check --ranks 2` tries the shipped study, in three hours.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurm.check.reference import LEAST_LAUNCHES, Reference, read_reference

ROOT = Path(__file__).parents[1]
STUDY = "tests/check_trials.toml"
WORDS = (STUDY, "--ranks", "2", "--blocks", str(LEAST_LAUNCHES))
SLEEP = 0.1  # of the mean step of the faster cell; a sleep adds rather more than its time
MOST_FALSE, MOST_S = 1 / 20, 600
COLUMNS = ("kind", "exit_code", "outcome", "seconds", "inject_ms", "ratio", "noise", "reason")


def check(results: Path, words: Sequence[str]) -> tuple[int, str, float]:
    """Exit code, standard output and seconds of one check."""
    command = [sys.executable, "-m", "slurm", "check", "--reference", str(results / "machine.json")]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--results", str(results), *words], stdout=subprocess.PIPE, text=True
    )
    if done.returncode not in (0, 1, 3):
        sys.exit(f"the check ended with exit code {done.returncode}; go on with this command")
    return done.returncode, done.stdout, time.monotonic() - began


def sleep_ms(reference: Reference) -> float:
    """A tenth of a step, by the mean speed of the faster cell."""
    steps_s: list[float] = []
    for cell, work in reference.workload.items():
        rates = [rate for session in reference.speeds(cell) for rate in session]
        images = work["batch_per_rank"] * work["world_size"]
        steps_s.append(images * len(rates) / sum(rates))
    return round(1000 * SLEEP * min(steps_s), 1)


def row(kind: str, inject_ms: float, code: int, text: str, seconds: float) -> dict[str, object]:
    """One line of the table; ratio and noise are those of the slowest cell."""
    answer = json.loads(text)
    falls = [one["change"] for one in answer["comparisons"] if one["rank"] is None]
    slowest = min(falls, key=lambda one: one["ratio"], default={"ratio": "", "noise": ""})
    of_answer = {"outcome": answer["outcome"], "reason": answer["reason"]}
    measured = {"ratio": slowest["ratio"], "noise": slowest["noise"], "seconds": round(seconds)}
    return {"kind": kind, "exit_code": code, "inject_ms": inject_ms, **measured, **of_answer}


def count(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """The counts beside their bars."""
    rows = list(rows)
    codes = {kind: [r["exit_code"] for r in rows if r["kind"] == kind] for kind in KINDS}
    plain, injected = (codes[kind] for kind in KINDS)
    longest = max((float(r["seconds"]) for r in rows), default=0)
    return [
        f"called slower as it is: {plain.count('1')} of {len(plain)} "
        f"(bar: at most {int(MOST_FALSE * len(plain))})",
        f"slowdown called slower: {injected.count('1')} of {len(injected)} (bar: all)",
        f"could not measure: {plain.count('3')} of {len(plain)} and {injected.count('3')} of "
        f"{len(injected)}",
        f"longest: {longest:.0f} s (bar: {MOST_S} s)",
    ]


KINDS = ("plain", "injected")


def schedule(plain: int, injected: int) -> list[str]:
    """Both kinds spread over the same hours."""
    at = [((n + 0.5) / plain, KINDS[0]) for n in range(plain)]
    at += [((n + 0.5) / injected, KINDS[1]) for n in range(injected)]
    return [kind for _, kind in sorted(at)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--sessions", type=int, default=6, help="of the reference")
    parser.add_argument("--plain", type=int, default=20, help="checks of the machine as it is")
    parser.add_argument("--injected", type=int, default=10, help="checks of the slowed one")
    parser.add_argument("words", nargs="*", default=WORDS, help="of each check, after --")
    options = parser.parse_args()
    results = Path(os.path.relpath(options.results, ROOT))
    os.chdir(ROOT)
    results.mkdir(parents=True, exist_ok=True)
    file, table = results / "machine.json", results / "trials.csv"
    while not file.exists() or len(read_reference(file).sessions) < options.sessions:
        if check(results, [*options.words, "--write-reference"])[0]:
            sys.exit("a session of the reference could not be measured; see above")
    sleep = sleep_ms(read_reference(file))
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")
    for kind in schedule(options.plain, options.injected)[len(rows_of(table)) :]:
        inject_ms = sleep if kind == KINDS[1] else 0.0
        words = [*options.words, "--format", "json", "--inject-ms", str(inject_ms)]
        code, text, seconds = check(results, words)
        with table.open("a", newline="") as out:
            line = row(kind, inject_ms, code, text, seconds)
            csv.DictWriter(out, COLUMNS, lineterminator="\n").writerow(line)
    print("\n".join(count(rows_of(table))))


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
