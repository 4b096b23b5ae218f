"""A study's curves as a prediction needs them: what was measured, what is fitted, what is not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.config import RunConfig, UsageError
from bench.record import Run, read_run
from bench.record.archive import logs_in
from bench.study import stats
from bench.study.collectives import Measured, read_each
from bench.study.folder import COLLECTIVES
from plots.analyse import scaling
from plots.analyse.comparability import EMULATE, Block
from plots.analyse.points import BlockMean, Point, Table, by_point, tabulate
from plots.analyse.runs import Loaded, load, require
from plots.predict import link, parts
from plots.predict.beyond import CurveModel, LaunchDraws, SharedCores, draw_means
from plots.predict.costs import Array
from plots.predict.curves import FitOptions, divides
from plots.predict.step import BatchLine, Profile
from plots.predict.table import SUPERLINEAR
from plots.read.runs import find_logs

DRAWS = 200  # of the launches, in all
# above these a point is told and not fitted: no model of an exchange explains it
WAITS, _FULL = 0.05, 0.9


@dataclass(frozen=True, kw_only=True)
class StudyFitOptions(FitOptions):
    """What a study does not say."""

    link: Path | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyCurve:
    """One cell's curve, and what is needed to go on with it."""

    name: str  # its cell, and the variant
    point: Point  # the largest that is fitted
    curve: str
    model: CurveModel
    draws: LaunchDraws
    alone_s: float  # of a step of the plain process
    step_s: Mapping[int, float]  # measured, by ranks
    doubts: Mapping[int, str]  # why a measured point is not fitted
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        """Of a rank (weak) or of a step (strong)."""
        return self.point.fixed(self.curve)

    def shares(self, ranks: int) -> bool:
        """Whether so many ranks have equally many images of a step."""
        return divides(self.curve, self.images, ranks)


def waiting(share: float) -> str:
    """What there is to doubt where ranks share cores."""
    return f"ranks of a node wait for its cores, {100 * share:.0f} % of a step at most"


class _LeftOut(Exception):
    """Why a curve cannot be predicted."""


def curves(folder: Path, options: StudyFitOptions) -> tuple[list[StudyCurve], list[str]]:
    """Every curve of a study that the model can be fitted to, and why others cannot be.

    Raises UsageError as `load` does, and where no link is known.
    """
    loaded = load(folder)
    require(loaded, folder)
    sweeps = [m for m in read_each(logs_in(folder / COLLECTIVES)) if m.ranks > 1]
    stated = link.read(options.link) if options.link is not None else None
    if stated is None and not sweeps:
        record = "record some with python -m bench collectives"
        raise UsageError(f"{folder / COLLECTIVES} has no sweeps; {record}, or name a --link")
    study = _StudyLogs(folder, loaded, tabulate(loaded.runs), sweeps, stated, options)
    every: list[StudyCurve] = []
    left: list[str] = []
    pairs = [*scaling.distributed(study.table)]
    for (curve, *_), of_series in groupby(pairs, key=lambda row: (row[0], row[1].series(row[0]))):
        rows = [*of_series]
        name = ", ".join([rows[0][1].cell, *rows[0][1].words])
        try:
            every.append(study.curve(curve, name, [point for _, point, _ in rows], rows[0][2]))
        except _LeftOut as why:
            left.append(f"{name}, {curve} scaling, is left out: {why}")
    none = "no run is on a weak or strong curve; name a study that has one"
    return every, left if pairs else [none]


@dataclass(frozen=True)
class _StudyLogs:
    """A study's folder as read."""

    path: Path
    loaded: Loaded
    table: Table
    sweeps: Sequence[Measured]
    stated: link.Link | None
    options: StudyFitOptions

    def curve(self, curve: str, name: str, points: Sequence[Point], plain: Point) -> StudyCurve:
        """Of one series. Raises _LeftOut."""
        one_rank = next((p for p in points if p.world_size == 1), None)
        alone = plain if plain in self.table.blocks else one_rank
        if alone is None:
            raise _LeftOut("no run of one process is there; add the cell single")
        alone_s = self._mean_s(alone)
        shared = self._shared(one_rank or alone, points[-1])
        doubts = self._doubts(curve, points, alone_s, shared)
        fitted = self._fitted(points, doubts)
        config, last = self._config(fitted[-1]), fitted[-1]
        profile, *notes = self._profile(config, plain.samples_per_rank, alone_s)
        links, of_link = self._links(last)
        spread, of_spread = self._spread(alone, last)
        notes += [of_link, of_spread]
        notes += ["no plain process was run: against its own one rank"] if alone == one_rank else []
        model = CurveModel(
            profile=profile,
            exchange=parts.exchange_of(config),
            links=links,
            fitted_ranks=np.array([p.world_size for p in fitted], float),
            rank_sd=spread,
            images=plain.samples_per_rank,
            batches=self._batches(config, plain, profile) if curve == "strong" else None,
            shared=shared,
            slept=config.emulate is not None,
        )
        return StudyCurve(
            name=name,
            point=last,
            curve=curve,
            model=model,
            draws=self._draws(alone, None if one_rank == alone else one_rank, fitted),
            alone_s=alone_s,
            step_s={p.world_size: self._mean_s(p) for p in points if p.world_size > 1},
            doubts=doubts,
            notes=tuple(notes),
        )

    def _means(self, point: Point) -> list[BlockMean]:
        return [*self.table.blocks[point].values()]

    def _mean_s(self, point: Point) -> float:
        return stats.geometric_mean([mean.step_seconds for mean in self._means(point)]).value

    def _doubts(
        self, curve: str, points: Sequence[Point], alone_s: float, shared: SharedCores | None
    ) -> dict[int, str]:
        """By ranks, why a point is not the matter of its exchange alone."""
        doubts = {}
        for point in points:
            n, means = point.world_size, self._means(point)
            ideal = alone_s / (n if curve == "strong" else 1)
            efficiency = ideal / self._mean_s(point)
            waits = float(np.mean([mean.input_share for mean in means]))
            busy = float(np.mean([mean.busy_share for mean in means]))
            if n > 1 and waits > WAITS:
                doubts[n] = f"{100 * waits:.0f} % of the time it waits for input"
            elif n > 1 and busy > _FULL:
                doubts[n] = f"the cores are full ({100 * busy:.0f} % busy)"
            elif (
                shared is not None
                and (share := shared.longest_wait(n / self._machines(point))) > WAITS
            ):
                doubts[n] = waiting(float(share))
            elif n > 1 and efficiency > SUPERLINEAR:
                doubts[n] = f"superlinear ({100 * efficiency:.1f} %)"
        return doubts

    def _fitted(self, points: Sequence[Point], doubts: Mapping[int, str]) -> list[Point]:
        few = [p for p in points if 1 < p.world_size <= self.options.fit_ranks]
        fitted = [p for p in few if p.world_size not in doubts]
        if not few:
            raise _LeftOut(f"no run has 2 to {self.options.fit_ranks} ranks (--fit-ranks)")
        if not fitted:
            raise _LeftOut("; ".join(f"at {n} ranks {why}" for n, why in doubts.items()))
        return fitted

    def _rows(self, frame: pd.DataFrame, point: Point) -> pd.DataFrame:
        """The runs of a point."""
        return next((rows for of, rows in by_point(frame) if of == point), frame.head(0))

    def _runs(self, rows: pd.DataFrame) -> list[Run]:
        names = set() if rows.empty else {*rows["log"]}
        return [read_run(path) for path in find_logs(self.path)[0] if path.name in names]

    def _config(self, point: Point) -> RunConfig:
        config = self._runs(self._rows(self.loaded.runs, point).head(1))[0].config
        assert config is not None
        return config

    def _profile(self, config: RunConfig, images: int, alone_s: float) -> tuple[Profile, str]:
        if config.emulate is None or self.options.profile is not None:
            return parts.recorded_profile(config.model, self.options.profile, alone_s)
        every: Any = self.loaded.runs["facts"]
        heads = {one[EMULATE].rpartition(" ")[2] for one in every if EMULATE in one}
        return parts.slept_profile(config.emulate, heads, images, alone_s)

    def _links(self, fitted: Point) -> tuple[list[link.Link], str]:
        if self.stated is not None:
            return [self.stated], f"link as stated: {self.stated.source}"
        nodes = max(len(mean.hosts) for mean in self._means(fitted))
        per_node = math.ceil(fitted.world_size / nodes) if nodes > 1 else None
        links, note = parts.links_of(fitted.cell, self.sweeps, per_node)
        if not links:
            layout = f", with {per_node} ranks on a node," if per_node else ""
            raise _LeftOut(f"no sweep over its transport{layout} is in {COLLECTIVES}/")
        return links, note

    def _spread(self, alone: Point, fitted: Point) -> tuple[float, str]:
        watched = parts.observed_spread(self._runs(self._rows(self.loaded.observed, fitted)))
        if watched is not None:
            return watched
        rows: Any = self._rows(self.loaded.runs, alone)
        steps = [
            np.asarray(sequence, float)[int(warmup) :]
            for sequence, warmup in zip(rows["sequence"], rows["warmup_steps"], strict=True)
        ]
        return parts.spread_of_steps(steps)

    def _batches(self, config: RunConfig, plain: Point, profile: Profile) -> BatchLine:
        """Seconds of the passes of one process against its images. Raises _LeftOut."""
        if config.emulate is not None:  # it sleeps in proportion
            return BatchLine(fixed_s=0.0, image_s=profile.passes_s / plain.samples_per_rank)
        sizes = {
            p.samples_per_rank: p
            for p in self.table.blocks
            if p._replace(samples_per_rank=plain.samples_per_rank) == plain
        }
        if len(sizes) < 2:
            raise _LeftOut("no other batch of one process says how its step shrinks")
        passes_s = [self._mean_s(p) - profile.optimizer_s for p in sizes.values()]
        return BatchLine.fitted([*sizes], passes_s)

    def _draws(self, alone: Point, one_rank: Point | None, fitted: Sequence[Point]) -> LaunchDraws:
        """Points with the same blocks are drawn together. Raises _LeftOut for a single launch."""
        together: dict[tuple[Block, ...], list[Point]] = defaultdict(list)
        for point in (alone, *fitted, *([one_rank] if one_rank else [])):
            together[tuple(sorted(self.table.blocks[point]))].append(point)
        means: dict[Point, Array] = {}
        for seed, (blocks, points) in enumerate(sorted(together.items())):
            if len(blocks) < 2:
                raise _LeftOut("one launch tells no interval")
            seconds = np.array([self.table.seconds(point, blocks) for point in points]).T
            # blocks hit all cells of a study alike: so do the draws, by one seed
            drawn = draw_means(seconds, DRAWS, np.random.default_rng(seed))
            means |= dict(zip(points, drawn.T, strict=True))
        return LaunchDraws(
            alone_s=means[alone],
            own_s=means[one_rank] if one_rank else None,
            steps_s=np.stack([means[point] for point in fitted], axis=1),
        )

    def _machines(self, point: Point) -> int:
        return max(mean.machines for mean in self._means(point))

    def _shared(self, one: Point, largest: Point) -> SharedCores | None:
        """What one rank takes of its node's cores; None where a log does not say."""
        busy = float(np.mean([mean.busy_share for mean in self._means(one)]))
        if np.isnan(busy) or not np.isfinite(self._cores):
            return None
        machines = self._machines(largest)
        several = [m.ranks_per_machine for m in self.sweeps if m.ranks > m.ranks_per_machine]
        if self.stated is not None and self.stated.ranks_per_node > 1:
            several = [self.stated.ranks_per_node]
        # one machine, and neither sweep nor link of more: they stay on it
        most = largest.world_size / machines if machines > 1 else max(several, default=np.inf)
        return SharedCores(cores=self._cores, busy_cores=busy * self._cores, most_ranks=most)

    @property
    def _cores(self) -> float:
        """Of a node, where all runs had equally many."""
        every: Any = self.loaded.runs["facts"]
        counts = {one.get("cpus_on_node", "") for one in every}
        return float(counts.pop()) if len(counts) == 1 and min(counts).isdecimal() else np.inf
