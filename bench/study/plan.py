"""The points of a study, and the order of the runs in each launch: random, but balanced."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

from bench.backends.catalogue import parts
from bench.config import Curve, RunConfig, UsageError, make_config
from bench.config.rules import undivided
from bench.study.definition import Point, Study
from bench.study.looks import MIN_LAUNCHES

Pairs = Sequence[tuple[str, str]]  # reference and candidate of each comparison, as cells


@dataclass(frozen=True)
class PlannedRun:
    """One planned run: a fresh process group that measures `point` and writes `config.log_path`."""

    id: str
    point: Point
    config: RunConfig

    @property
    def log(self) -> Path:
        """The path of the run log, in the folder of runs that the plan was given."""
        assert self.config.log_path is not None
        return self.config.log_path


def points(study: Study) -> dict[Point, tuple[Curve, ...]]:
    """Return every point of the study, with its curves: weak, strong or batch.

    Several curves may share a point, as weak and strong scaling often do at one rank. Raises
    UsageError if a global batch is no multiple of the ranks.
    """
    curves: dict[Point, tuple[Curve, ...]] = {}
    for cell in study.cells:
        for arm, (curve, *size) in product(study.arms_of(cell), _sizes(study, cell)):
            point = Point(cell, arm, *size)
            curves[point] = (*curves.get(point, ()), curve)
    return curves


def _sizes(study: Study, cell: str) -> Iterator[tuple[Curve, int, int]]:
    """Yield a cell's (curve, ranks, batch per rank); `single` has 1 rank. Raises UsageError."""
    alone = cell == "single"
    world_sizes = (1,) if alone else study.world_sizes
    if study.weak:
        yield from (("weak", w, study.weak.batch_per_rank) for w in world_sizes)
    if study.strong:
        yield from (("strong", w, _share(study.strong.global_batch, w)) for w in world_sizes)
    if study.batch:
        for world_size in (1,) if alone else study.batch.world_sizes:
            yield from (("batch", world_size, b) for b in study.batch.batch_per_rank)


def _share(global_batch: int, world_size: int) -> int:
    """Return the batch per rank. Raises UsageError unless `world_size` divides `global_batch`."""
    if global_batch % world_size:
        raise UsageError(f"strong.{undivided(global_batch, world_size)}")
    return global_batch // world_size


def check_primary(study: Study) -> None:
    """Raise UsageError if the study's `primary` fits no planned comparison, or several."""
    if study.primary is None:
        return
    wanted = study.primary.model_dump(exclude_none=True)
    curve = wanted.pop("curve")
    candidates = {candidate for _, candidate in study.comparisons}
    matching = [
        point
        for point, curves in points(study).items()
        if (point.cell, point.arm) in candidates
        and curve in curves
        and all(getattr(point, key) == value for key, value in wanted.items())
    ]
    if len(matching) != 1:
        names = ", ".join(p.name for p in matching) or "none that this study plans"
        cure = "choose its curve and world_size from those of the study"
        cure = "add transport, arm or batch_per_rank" if matching else cure
        primary = study.primary.model_dump(exclude_none=True)
        raise UsageError(f"primary={primary} must be one comparison, and is {names}; {cure}")


def plan(study: Study, launches: int, runs_dir: Path) -> list[list[PlannedRun]]:
    """Return the runs of each launch, in order.

    A launch depends on the study and its own index alone, so more launches do not change earlier
    ones. Raises UsageError if no run is planned, or if one is invalid.
    """
    if not (curves := points(study)):  # one that says what is fixed beforehand may name none
        raise UsageError("the study plans no run; add cells and scaling")
    # one that exchanges nothing last: what is wrong with the exchange is said of one that does
    to_check = sorted(curves, key=lambda point: point.cell == "single")
    first = {point: config_of(study, point, curves[point]) for point in to_check}
    planned, sha256 = [], study.sha256
    every = orders(study, list(first))
    runs_of = {point: launches_of(study, point, launches) for point in first}
    for launch, order in zip(range(launches), every, strict=False):  # it has no end
        runs = []
        for position, point in enumerate(p for p in order if launch < runs_of[p]):
            run_id = f"launch{launch:02d}-{position:02d}-{point.name}"
            place: dict[str, Any] = {"launch": launch, "position": position, "study_sha256": sha256}
            # the seed is equal for all cells of a launch: same initial weights, same data and order
            place |= {"seed": study.seed + launch, "log_path": runs_dir / f"{run_id}.jsonl"}
            # a copy: no rule speaks of what differs between launches
            runs.append(PlannedRun(run_id, point, first[point].model_copy(update=place)))
        planned.append(runs)
    return planned


def launches_of(study: Study, point: Point, launches: int) -> int:
    """Return in how many of `launches` a point runs: a baseline in the first MIN_LAUNCHES alone."""
    sides = {side for pair in study.comparisons for side in pair}
    is_baseline = sides and point.cell == "single" and point[:2] not in sides
    return min(launches, MIN_LAUNCHES) if is_baseline else launches


def orders(study: Study, every: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points of each launch in order, endlessly; compared points make a group.

    The order of groups is random. Inside a group, the order is random in launches 0, 2, 4, ..., and
    the next launch reverses it. A trend inside launches then favours no side over an even number of
    launches (AB/BA crossover; Jones & Kenward 2014, chapter 2).
    """
    reference_of = {candidate: reference for reference, candidate in study.comparisons}
    names = {}
    for point in every:
        cell, arm = reference_of.get((point.cell, point.arm), (point.cell, point.arm))
        reference = point._replace(cell=cell, arm=arm)
        names[point] = ("pair", reference.name), ("run", point.name)
    group = {point: group_of(point, study.pairs).name for point in every}
    for couple in count():
        groups: dict[str, list[Point]] = {}
        for point in sorted(every, key=lambda p: [_draw(study.seed, couple, *x) for x in names[p]]):
            groups.setdefault(group[point], []).append(point)
        for launch, step in ((2 * couple, 1), (2 * couple + 1, -1)):
            drawn = sorted(groups, key=lambda name: _draw(study.seed, launch, "group", name))
            yield [point for name in drawn for point in groups[name][::step]]


def turn_groups(every: Mapping[Point, Collection[str]], pairs: Pairs) -> dict[Point, str]:
    """Return the name of each point's group; the runs of a group take turns, if possible.

    Runs take turns if one works at a time, while the others are stopped. A group has the points
    that are compared, and other cells of their transport and size. `single` joins a point with
    which it shares a curve in `every`: preferably one of its batch per rank, then of fewest ranks.
    """
    name = {point: group_of(point, pairs).name for point in every}
    compared = sorted((p for p in name if p.cell != "single"), key=lambda p: (p.world_size, p.name))
    partners = {cell for pair in pairs for cell in pair}
    size = {point: (point.transport, *point[2:]) for point in compared}
    joined = {size[point]: name[point] for point in compared if point.cell in partners}
    name |= {point: joined.get(size[point], name[point]) for point in compared}
    for alone in (point for point in name if point.cell == "single"):
        near = [point for point in compared if {*every[point]} & {*every[alone]}]
        near.sort(key=lambda point: point.batch_per_rank != alone.batch_per_rank)
        if near:
            name[alone] = name[near[0]]
    return name


def group_of(point: Point, pairs: Pairs) -> Point:
    """Return a key of the point's group: the point with the reference's cell and without an arm."""
    reference_of = {candidate: reference for reference, candidate in pairs}
    return point._replace(cell=reference_of.get(point.cell, point.cell), arm="")


def _draw(*names: object) -> bytes:
    """Hash names to a pseudo-random key, equal in all Python versions, unlike random.shuffle."""
    return hashlib.sha256("/".join(map(str, names)).encode()).digest()


def config_of(study: Study, point: Point, curves: tuple[Curve, ...]) -> RunConfig:
    """Make the config that a point's runs share. Raises UsageError if the config is invalid."""
    backend, transport = parts(point.cell)
    fields = {
        **study.fields_of(point.cell, point.arm),
        "backend": backend,
        "transport": transport or "none",
        "arm": point.arm or None,
        # per rank also on the strong curve: one point has one description, whatever its curves
        "batch_per_rank": point.batch_per_rank,
        "world_size": point.world_size,
        "seed": study.seed,
        "study": study.name,
        "curves": curves,
    }
    try:
        return make_config(fields)
    except UsageError as error:
        raise UsageError(f"{error} (at {point.name})") from None
