"""The spread of a pair by turns against that of separate launches, really run side by side.

python -m tests.spread --results results/mine/spread: the largest pair of a study on its first
transport, or that of --transport, two launches by turns and two one after the other, alternating,
which first too; with --load a process that computes in bursts shares the cores, and --burst says
how long they are. Whether both forms tell one ratio is said as well; `plots compare` of their
folders says it of each cell. The same command goes on where it was stopped. With --count it runs
nothing and derives the table from the logs again.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tomlkit
from scipy.stats import f

from bench.study.stats import MIN_BLOCKS, Paired, welch_ratio
from plots.report.format import interval, ratio
from plots.report.write import analysed

ROOT = Path(__file__).parents[1]
FORMS = {"turns": True, "apart": False}
TABLE = "spread.csv"
BURST_S = (0.5, 8.0)  # how long the load computes, and how long it rests: uniform between
SEED = 1  # of the load's bursts
LIKE = "local"  # the study whose pair is measured, unless another is named

Burst = tuple[float, float]


def condition(burst_s: Burst | None, like: str = LIKE, transport: str | None = None) -> str:
    """A load's name, or that of none: `quiet`, `load` of the usual bursts, else `load-10-60s`; then
    what is measured, where it is not the usual pair: `quiet-emulated`, `quiet-gloo`.
    """
    load = "quiet"
    if burst_s is not None:
        load = "load" if burst_s == BURST_S else "load-{:g}-{:g}s".format(*burst_s)
    return "-".join(filter(None, (load, like if like != LIKE else None, transport)))


def _first_transport(cells: Iterable[str]) -> str:
    return next(cell for cell in cells if "/" in cell).partition("/")[2]


def _shipped(like: str) -> Any:
    return tomlkit.parse((ROOT / f"slurm/studies/{like}.toml").read_text()).unwrap()


def study(like: str, form: str, results: Path, load: str, transport: str | None = None) -> Path:
    """A study file like the shipped one, that takes turns or does not."""
    text = _shipped(like)
    text["name"], text["turns"] = f"{form}-{load}", FORMS[form]
    if transport:  # the study's question may name its own
        text["question"] = f"Do turns tell of {transport} what separate launches tell?"
    transport = transport or _first_transport(text["cells"])
    text["cells"] = [f"{backend}/{transport}" for backend in ("ddp", "horovod")]
    text["world_sizes"] = [max(text["world_sizes"])]
    path = results / "studies" / f"{text['name']}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(text))
    return path


def burst(burst_s: Burst) -> None:
    """Compute and rest, until somebody ends the process."""
    drawn = random.Random(SEED)
    while True:
        ends = time.monotonic() + drawn.uniform(*burst_s)
        while time.monotonic() < ends:
            pass
        time.sleep(drawn.uniform(*burst_s))


@contextmanager
def loaded(burst_s: Burst | None) -> Iterator[None]:
    """With the stated load beside it, or without."""
    process = get_context("spawn").Process(target=burst, args=(burst_s,), daemon=True)
    if burst_s is not None:
        process.start()
    try:
        yield
    finally:
        if burst_s is not None:
            process.kill()


def measure(
    like: str, transport: str | None, results: Path, burst_s: Burst | None, launches: int
) -> None:
    """So many launches of either form, two at a time; what is done already is left out."""
    if transport == _first_transport(_shipped(like)["cells"]):  # one pair has one name
        transport = None
    name = condition(burst_s, like, transport)
    files = [study(like, form, results, name, transport) for form in FORMS]
    with loaded(burst_s):
        for n in range(2, launches + 1, 2):  # in half of them each side begins: an even number
            for path in files[:: 1 if n % 4 else -1]:
                words = ["slurm", "run", str(path), "--results", str(results), "--blocks", str(n)]
                if subprocess.run([sys.executable, "-m", *words]).returncode:
                    sys.exit(f"{path}: launches to {n} are not ok; go on with this command")


def pairs(results: Path) -> dict[tuple[str, str], Paired]:
    """By condition and form what the logs say, role fitted."""
    loads = {path.name.partition("-")[2] for form in FORMS for path in results.glob(f"{form}-*")}
    quiet_first = sorted(loads, key=lambda load: (load != condition(None), load))
    named = {(load, form): results / f"{form}-{load}" for load in quiet_first for form in FORMS}
    compared = {key: analysed(path).comparisons for key, path in named.items() if path.exists()}
    return {key: only.paired for key, (only,) in compared.items()}


def rows(results: Path) -> Iterator[dict[str, object]]:
    """Of each condition and form: n, ratio and the sd of its logarithm."""
    for (load, form), p in pairs(results).items():
        yield {"form": form, "load": load, "n": p.n, "ratio": p.ratio, "sd_log": p.sd_log}


def in_words(measured: Mapping[tuple[str, str], Paired]) -> Iterator[str]:
    """By what part the spread is smaller, with the F interval of 95 %, and whether both forms tell
    one ratio: Welch's interval on logs, 95 %.
    """
    for load in dict.fromkeys(load for load, _ in measured):
        turns, apart = (measured.get((load, form)) for form in FORMS)
        if turns is None or apart is None or min(turns.n, apart.n) < MIN_BLOCKS:
            continue
        assert turns.sd_log is not None
        assert apart.sd_log is not None
        part = turns.sd_log / apart.sd_log
        low, high = (part / math.sqrt(f.ppf(q, turns.n - 2, apart.n - 2)) for q in (0.975, 0.025))
        yield (
            f"{load}: sd by turns {100 * turns.sd_log:.1f} % (n = {turns.n}), by separate launches "
            f"{100 * apart.sd_log:.1f} % (n = {apart.n}): {part:.2f} [{low:.2f}, {high:.2f}]"
        )
        one = welch_ratio(numerator=turns.ratios, denominator=apart.ratios)
        yield (
            f"{load}: ratio by turns {turns.ratio:.3f}, by separate launches {apart.ratio:.3f}: "
            f"{interval(one, ratio)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--launches", type=int, default=10, help="of each form")
    parser.add_argument("--study", default=LIKE, help=f"a shipped one (default: {LIKE})")
    parser.add_argument("--transport", help="of the pair (default: the study's first)")
    parser.add_argument("--load", action="store_true", help="beside a process that computes")
    parser.add_argument(
        "--burst",
        type=float,
        nargs=2,
        default=BURST_S,
        metavar=("LOW", "HIGH"),
        help="seconds that --load computes, and rests: uniform between (default: 0.5 8)",
    )
    parser.add_argument("--count", action="store_true", help="run nothing; read the logs there are")
    asked = parser.parse_args()
    # from here, so that no log holds a path of this machine
    results = Path(os.path.relpath(asked.results, ROOT))
    os.chdir(ROOT)
    if not asked.count:
        low, high = asked.burst
        burst_s = (low, high) if asked.load else None
        measure(asked.study, asked.transport, results, burst_s, asked.launches)
    table = list(rows(results))
    with (results / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, ["form", "load", "n", "ratio", "sd_log"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    print("\n".join(in_words(pairs(results))))


if __name__ == "__main__":
    main()
