"""What a curve's model is made of, each with what had to be assumed: step, link, spread."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.backends.buckets import limits
from bench.backends.catalogue import CATALOGUE, PLAIN
from bench.config import RunConfig, UsageError
from bench.instrument import timeline
from bench.record import Run
from bench.study.collectives import Measured
from plots.predict import link
from plots.predict.costs import Array
from plots.predict.curves import recorded_steps, usual_steps
from plots.predict.link import Link
from plots.predict.step import Profile
from plots.predict.stragglers import Spread
from plots.predict.stream import Buckets, Cycles
from plots.predict.table import scaled

LINKS = 10  # fits to a sweep: the best, and what else it allows
_CHOICE = ("ring", "recursive_doubling", "rabenseifner")  # of MPI's and Gloo's all-reduces
_BLOCKING = ("mpi", "gloo")  # transports whose operations a cycle waits for
_NORMAL = 1.4826  # standard deviations in a median absolute one


def exchange_of(config: RunConfig) -> Buckets | Cycles:
    """As the run was told to group its gradients."""
    cap = config.bucket_cap_mib
    if not CATALOGUE[config.backend].cycles:
        return Buckets() if cap is None else Buckets(limits_bytes=limits(cap))
    cycles = Cycles(blocking=config.transport in _BLOCKING)
    if config.cycle_ms is not None:
        cycles = replace(cycles, cycle_s=config.cycle_ms / 1e3)
    mib = cap if config.fusion_mib is None else config.fusion_mib
    return cycles if mib is None else replace(cycles, fusion_bytes=mib * 2**20)


def slept_profile(
    path: Path, digests: Collection[str], images: int, alone_s: float
) -> tuple[Profile, str]:
    """Of emulated runs: passes sleep as recorded, so what else a step takes is no pass.

    Raises UsageError where the timeline is not the one of the runs, by the heads of `digests`.
    """
    recorded, digest = timeline.read(recorded_steps().get(path.stem, path))
    if not any(digest.startswith(head) for head in digests):
        raise UsageError(f"{path} is not the timeline of the runs any more; name it: --profile")
    profile = Profile.of(recorded)
    slept = scaled(profile, profile.step_s * images / recorded.images)
    optimizer_s = max(alone_s - slept.passes_s, 0.0)
    return replace(slept, optimizer_s=optimizer_s), "passes sleep as their timeline says"


def recorded_profile(model: str, path: Path | None, alone_s: float) -> tuple[Profile, str]:
    """A recorded step, stretched to the measured one: the user's, or one of the model's.

    Raises UsageError where there is none.
    """
    path = path or usual_steps().get(model)
    if path is None:
        record = "record or derive one with python -m bench timeline"
        raise UsageError(f"no step of {model} is known; {record}, and name it: --profile FILE")
    profile = Profile.of(timeline.read(path, "profile")[0])
    return scaled(profile, alone_s), f"its step is {path.stem}, stretched to the measured one"


def links_of(
    cell: str, sweeps: Sequence[Measured], ranks_per_node: int | None = None, seed: int = 0
) -> tuple[list[Link], str]:
    """Fits to the nearest of the sweeps over the cell's transport; none without one.

    What a tick waits for is no time of a link: a backend with cycles takes another's sweep.
    `ranks_per_node`: of the study, where it has several nodes.
    """
    backend, transport = _parts(cell)
    ticks = CATALOGUE[backend].cycles

    def order(name: str) -> tuple[bool, bool]:
        other = _parts(name)[0]
        return other != PLAIN and CATALOGUE[other].cycles, other != (PLAIN if ticks else backend)

    names = sorted({m.cell for m in sweeps if _parts(m.cell)[1] == transport}, key=order)
    by_cell = (link.alike([m for m in sweeps if m.cell == x], ranks_per_node) for x in names)
    of_cell = next(filter(None, by_cell), None)
    if of_cell is None:
        return [], ""
    best = link.fitted(of_cell, _CHOICE)
    worst = float(np.abs(best.relative_errors(of_cell)).max())
    drawn = link.resampled(best, of_cell, LINKS - 1, np.random.default_rng(seed))
    way = best.algorithms[0].replace("_", " ")
    note = f"link {best.source}, as a {way}, {100 * worst:.0f} % off at most"
    if all(m.nodes == 1 for m in of_cell):
        note += "; no sweep left its node, so links between nodes are taken to be as fast"
    return [best, *drawn], note


def _parts(cell: str) -> tuple[str, str]:
    """Backend and transport; MPI without a framework names none."""
    backend, _, transport = cell.partition("@")[0].partition("/")
    return backend, transport or "mpi"


def observed_spread(runs: Iterable[Run]) -> tuple[float, str] | None:
    """Of ranks' passes, where steps were watched; None where none of several ranks was."""
    for run in runs:
        passes = [
            np.asarray(event["forward"]) + np.asarray(event["backward"])
            for event in run.events
            if event["event"] == "breakdown" and event["phase"] == "window"
        ]
        if passes and len(passes[0]) > 1 and sum(one.shape[1] for one in passes) > 1:
            spread = Spread.of(np.concatenate(passes, axis=1).T)
            stays, changes = 100 * spread.persistent_sd, 100 * spread.transient_sd
            note = f"ranks' passes differ by {stays:.2g} % that stays and {changes:.2g} % that does"
            return spread.sd, f"{note} not, as watched at {len(passes[0])} ranks"
    return None


def spread_of_steps(sequences: Sequence[Array]) -> tuple[float, str]:
    """Of one process's steps, by run: what ranks differ in is not known."""
    logs = [np.log(steps) for steps in sequences]
    each = [_NORMAL * float(np.median(np.abs(one - np.median(one)))) for one in logs]
    sd = float(np.median(each))
    return sd, f"ranks' passes are taken to differ by {100 * sd:.2g} %, as steps of one process do"
