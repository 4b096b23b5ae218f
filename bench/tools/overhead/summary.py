"""Raw seconds of the overhead bench to ratios with intervals:
pure functions of what the logs hold.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.config import RunConfig

STEPS = 3  # of a turn
PAIRS = 8  # of turns in one launch
OWN_STEPS = 10  # in which the harness's own time is metered
LOWER_BOUND = 0.98  # of ours / bare, that the interval must keep above
HALF_WIDTH = 0.01  # of the ratio, at which there are enough launches
OWN_SHARE = 0.005  # of a step, that the harness may take between the calls of a step
MEMORY_MIB = 50  # that ours may need over bare on one rank


def log_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean and ends of its 95 % interval, of ratios measured at least twice."""
    # imported here: the processes that are measured read this file for its numbers alone
    from bench.study.stats import geometric_mean

    found = geometric_mean(ratios)
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


def in_words(ratios: Sequence[float], unit: str) -> str:
    """'1.0012 [0.9950, 1.0074] (95 %, n=12 blocks)'."""
    mean, low, high = log_interval(ratios)
    return f"{mean:.4f} [{low:.4f}, {high:.4f}] (95 %, n={len(ratios)} {unit})"


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of one log."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


class Turns:
    """The raw figures of one launch in which the loops took turns, as read from its log."""

    def __init__(self, path: Path) -> None:
        events = read_events(path)
        config = RunConfig(**events[0]["config"])
        self.turns = [e["seconds"] for e in events if e["event"] == "pair"]
        self.end = next(e for e in events if e["event"] == "end")
        self.images_per_turn = STEPS * config.samples_per_step

    def ratio(self, other: str) -> float:
        """Throughput of ours over that of `other`: geometric mean over the pairs of turns of this
        launch.
        """
        return statistics.geometric_mean(turn[other] / turn["ours"] for turn in self.turns)

    def images_per_s(self, name: str) -> float:
        seconds: float = sum(turn[name] for turn in self.turns)
        return self.images_per_turn * len(self.turns) / seconds


def known_well_enough(launches: Sequence[Turns]) -> bool:
    """Is the interval of ours / bare narrow enough to stop?"""
    mean, low, _ = log_interval([launch.ratio("bare") for launch in launches])
    return 1 - low / mean <= HALF_WIDTH


def summarise_turns(cell: str, launches: Sequence[Turns]) -> bool:
    """Print one cell's figures; true if it holds the bars."""
    ratios = [launch.ratio("bare") for launch in launches]
    share = max(launch.end["own_share"] for launch in launches)
    same = all(launch.end["status"] == "ok" for launch in launches)
    good = (
        same
        and log_interval(ratios)[1] >= LOWER_BOUND
        and known_well_enough(launches)
        and share < OWN_SHARE
    )
    print(
        f"{cell}, in turns: throughput of ours / bare "
        f"{in_words(ratios, f'launches of {PAIRS} pairs')}"
    )
    print(f"  harness's own time between steps: at most {100 * share:.3f} % of a step")
    names = launches[0].turns[0]
    rates = {
        name: sum(launch.images_per_s(name) for launch in launches) / len(launches)
        for name in names
    }
    print("  " + ", ".join(f"{name} {rate:.1f} images/s" for name, rate in rates.items()))
    if "recipe" in names:
        print(
            f"  ours / Horovod's recipe "
            f"{in_words([launch.ratio('recipe') for launch in launches], 'launches')}"
        )
    bars = (
        f"same parameters, lower bound >= {LOWER_BOUND}, half-width <= {HALF_WIDTH:.0%}, own "
        f"time < {OWN_SHARE:.1%}"
    )
    print(f"  {'holds' if good else 'DOES NOT HOLD'}: {bars}", flush=True)
    return good


def seconds_apart(path: Path) -> float:
    """Timed seconds of one process that ran one loop alone: the sum over its windows."""
    return float(sum(e["seconds"] for e in read_events(path) if e["event"] == "window"))


def peak_memory_apart(path: Path) -> int:
    """Peak resident bytes of rank 0 of such a process."""
    return int(next(e for e in read_events(path) if e["event"] == "end")["peak_memory_bytes"][0])


def summarise_apart(cell: str, blocks: Sequence[dict[str, Path]]) -> bool:
    """Print what fresh processes gave, block by block; true if memory holds its bar. The ratios are
    too noisy for one.
    """
    seconds = [{name: seconds_apart(path) for name, path in block.items()} for block in blocks]
    for name in ("ours", "bare again"):
        ratios = [block["bare"] / block[name] for block in seconds]
        print(f"{cell}, apart: throughput of {name} / bare {in_words(ratios, 'blocks')}")
    over = (
        max(peak_memory_apart(block["ours"]) - peak_memory_apart(block["bare"]) for block in blocks)
        / 2**20
    )
    good = over <= MEMORY_MIB
    verdict = "holds" if good else "DOES NOT HOLD"
    print(
        f"  memory: ours at most {over:+.1f} MiB over bare on rank 0 ({verdict}: <= {MEMORY_MIB} "
        f"MiB)",
        flush=True,
    )
    return good
