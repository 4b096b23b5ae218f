"""Groups of runs that a job starts together to take turns, and reasons for not doing so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.study.definition import Study
from bench.study.plan import PlannedRun, turn_groups
from slurm.site import Site


class TurnGroup(NamedTuple):
    """Runs of one launch that are compared with one another, or a single run.

    `apart` says why several runs are started one by one; it is '' if they take turns.
    """

    runs: list[PlannedRun]
    apart: str = ""


def together(runs: Sequence[PlannedRun], study: Study, site: Site) -> Iterator[TurnGroup]:
    """Yield runs in groups, in the order of their first runs; one by one if not study.turns."""
    name = turn_groups({run.point: run.config.curves for run in runs}, study.pairs)
    if not study.turns:
        yield from (TurnGroup([run]) for run in runs)
        return
    members: dict[tuple[int | None, str], list[PlannedRun]] = {}
    for run in runs:
        members.setdefault((run.config.launch, name[run.point]), []).append(run)
    for group in members.values():
        apart = _why_apart(group, site) if len(group) > 1 else ""
        yield TurnGroup(group, apart)


def _why_apart(group: Sequence[PlannedRun], site: Site) -> str:
    configs = [run.config for run in group]
    if any(config.epochs is not None for config in configs):
        return "trainings to a target have no windows to take turns by"
    if len({config.windows for config in configs}) > 1:
        return "their windows are not as many"
    pyxis = any(word.startswith("--container-") for word in site.launch_args)
    if site.setup.container or pyxis:
        return "a container hides its processes from other worlds"
    if site.launch == "ibrun":
        return "ibrun starts one world at a time"
    return ""
