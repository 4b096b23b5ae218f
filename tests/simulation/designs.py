"""Designs of a study in turns: how many windows of a launch find most inside a fixed time?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import Run, archive, read_run
from tests.simulation.studies import SEED, paired

BUDGET_S = 420
WINDOWS = (5, 6, 10, 20)  # of each arm, per launch
LAUNCH_SDS = (0.003, 0.006, 0.01, 0.02, 0.04, 0.06)  # of the log ratio, that windows share
WINDOW_SD = 0.043  # of the log ratio of two windows of three steps, around their launch's
Launches = list[dict[str, Run]]  # runs by cell


def launches_of(folder: Path) -> Launches:
    """Read the runs of each launch of a study in turns."""
    launches: dict[int, dict[str, Run]] = defaultdict(dict)
    for run in map(read_run, archive.logs_in(folder / "runs")):
        if run.config is not None:
            launches[run.config.launch or 0][run.config.cell] = run
    return [launches[launch] for launch in sorted(launches)]


def costs(launches: Launches) -> tuple[float, float]:
    """Return seconds of a launch outside its windows, and of a window of all its worlds."""
    inside, whole = [], []
    for runs in (launch.values() for launch in launches):
        lead_ins = [np.max(lead, axis=0).sum() for run in runs for lead in run.steps("lead_in")]
        inside.append(sum(sum(run.window_seconds) for run in runs) + sum(lead_ins))
        whole.append(max(run.exit["wall_s"] for run in runs))
    windows = [len(run.windows) for launch in launches for run in launch.values()]
    return float(np.mean(whole) - np.mean(inside)), float(np.mean(inside) / np.mean(windows))


def simulated(launches: Launches, studies: int) -> Iterator[dict[str, Any]]:
    """Simulate each design inside BUDGET_S, at the costs of the launches."""
    random, (start_s, window_s) = np.random.default_rng(SEED), costs(launches)
    for sd, windows in product(LAUNCH_SDS, WINDOWS):
        n = int(BUDGET_S / (start_s + windows * window_s))
        noise = random.normal(0, math.hypot(sd, WINDOW_SD / math.sqrt(windows)), (studies, n))
        estimates = [paired(study, swapped=True) for study in noise]
        means = np.log([estimate.ratio for estimate in estimates])
        halves = np.log([(e.interval() or (0, math.inf))[1] for e in estimates]) - means
        yield {
            "launch_sd": sd,
            "windows": windows,
            "launch_s": start_s + windows * window_s,
            "launches": n,
            "half_width": np.median(halves),
            **{f"finds_{x}_percent": np.mean(means + math.log1p(x / 100) > halves) for x in (3, 7)},
        }


def shipped(launches: Launches) -> Iterator[dict[str, Any]]:
    """Give the interval of measured launches from their first windows alone, of some and of all."""
    start_s, window_s = costs(launches)
    for windows in WINDOWS:
        ddp, horovod = (
            np.array([sum(launch[cell].window_seconds[:windows]) for launch in launches])
            for cell in ("ddp/mpi", "horovod/mpi")
        )
        for n in (int(BUDGET_S / (start_s + windows * window_s)), len(launches)):
            estimate = paired(np.log(ddp / horovod)[:n])
            low, high = estimate.interval() or (0.0, math.inf)
            ends = {"ratio": estimate.ratio, "low": low, "high": high}
            half = math.log(high / estimate.ratio)
            yield {"windows": windows, "launches": n, "sd": estimate.sd_log, **ends, "half": half}
