"""Curves of a table of points: which rows are fitted, over which step and exchange of one rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.backends.catalogue import CATALOGUE
from bench.instrument import timeline
from plots.predict import table
from plots.predict.step import Profile
from plots.predict.stream import Buckets, Cycles
from plots.predict.table import Series

_TIMELINES = Path(timeline.__file__).with_name("timelines")
_PIXELS = "-224px"  # ends the name of a step of whole images; that of its model begins it
_USUAL, _BATCH = "resnet50", 64  # of what a source does not say
_MODELS = r"resnet[- ]?\d+|vgg[- ]?\d+|inception[-_ ]?v?\d+|alexnet"
_CYCLES = Cycles()


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What neither a table nor a study says. `ranks` are predicted beside its own."""

    fit_ranks: int = 16
    ranks: tuple[int, ...] = ()
    profile: Path | None = None
    criterion: float | None = None


@dataclass(frozen=True, kw_only=True)
class TableFitOptions(FitOptions):
    """What a table does not say."""

    ranks_per_node: int = 1
    cycles: Cycles = _CYCLES


@dataclass(frozen=True, kw_only=True)
class TableCurve:
    """A series with what names it, and the images/s of one rank, or of each of the fewest."""

    number: int  # of its source, below the table
    source: str
    curve: str
    backend: str
    batch: float
    one_rank: float
    series: Series
    is_fitted: NDArray[np.bool_]  # by row of the series
    notes: tuple[str, ...]  # what had to be assumed, and what no model explains

    @property
    def name(self) -> str:
        each = "step" if self.curve == "strong" else "rank"
        return f"{self.number}, {self.backend}, {self.batch:.0f} images a {each}"


def recorded_steps() -> dict[str, Path]:
    """The shipped timelines, by name."""
    return {path.stem: path for path in _TIMELINES.glob("*.json")}


def usual_steps() -> dict[str, Path]:
    """The shipped timeline of each model at 224 pixels, by the model's name."""
    return {
        stem.partition("-")[0]: path
        for stem, path in recorded_steps().items()
        if stem.endswith(_PIXELS)
    }


def curves(points: pd.DataFrame, options: TableFitOptions) -> Iterator[TableCurve]:
    """Of a baseline and a larger row at least."""
    points = points.assign(stated=points["batch"].notna(), batch=points["batch"].fillna(_BATCH))
    numbers = {source: n for n, source in enumerate(dict.fromkeys(points["source"]), 1)}
    grouped: Any = points.groupby(["source", "curve", "backend", "batch"], sort=False)
    grouped_alike: Any = points.groupby(["source", "curve", "backend"])
    for (source, curve, backend, batch), rows in grouped:
        base_ranks, base_rate = _baseline(rows)
        rates = rows[rows["world_size"] > base_ranks].set_index("world_size")["value"]
        if rates.empty:
            continue
        targets = [n for n in options.ranks if n > base_ranks]
        ranks = sorted({*rates.index, *(n for n in targets if divides(curve, batch, n))})
        alike = grouped_alike.get_group((source, curve, backend))
        profile, assumed = _profile(source, options)
        exchange, also = _exchange(backend, options)
        notes = [*_batch(rows, alike), *assumed, *also]
        notes += uneven_ranks(batch, {*targets} - {*ranks})
        one_rank = base_rate / base_ranks
        series = Series(
            profile=table.scaled(profile, float(batch) / one_rank),
            exchange=exchange,
            ranks=np.array(ranks, float),
            efficiency=(rates / rates.index / one_rank).reindex(ranks).to_numpy(float),
            base_ranks=base_ranks,
            ranks_per_node=options.ranks_per_node,
            strong=curve == "strong",
        )
        yield TableCurve(
            number=numbers[source],
            source=source,
            curve=curve,
            backend=backend,
            batch=batch,
            one_rank=one_rank,
            series=series,
            is_fitted=table.is_fitted(series, options.fit_ranks),
            notes=(*notes, *_not_explained(series)),
        )


def _baseline(rows: pd.DataFrame) -> tuple[float, float]:
    """Ranks and images/s: of the backend's own one rank, of a plain process, or of the fewest."""
    for name in ("own_images_per_s", "common_images_per_s"):
        if len(rates := rows[name].dropna()):
            return 1.0, float(rates.iloc[0])
    least = rows["world_size"].min()
    return float(least), float(rows.loc[rows["world_size"] == least, "value"].iloc[0])


def _profile(source: str, options: TableFitOptions) -> tuple[Profile, tuple[str, ...]]:
    """The user's, or that of the model which the source names."""
    if options.profile is not None:
        return Profile.of(timeline.read(options.profile, "profile")[0]), ()
    steps = usual_steps()
    name = _model(source, steps)
    notes = [] if name else [f"it names no model of ours; taken as {_USUAL} (--profile)"]
    step, _ = timeline.read(steps[name or _USUAL])
    notes += [] if step.steps else ["its gradients are taken to become ready at even intervals"]
    return Profile.of(step), tuple(notes)


def _model(source: str, names: Mapping[str, object]) -> str:
    plain = re.sub(r"[^a-z0-9]", "", source.lower())
    return next((n for n in sorted(names, reverse=True) if n.replace("_", "") in plain), "")


def _exchange(backend: str, options: TableFitOptions) -> tuple[Buckets | Cycles, tuple[str, ...]]:
    facts = CATALOGUE.get(backend.partition("/")[0].strip().lower())  # 'horovod/nccl', 'Horovod'
    notes = () if facts else (f"{backend} is no backend of ours; taken as one with fixed buckets",)
    return (options.cycles if facts and facts.cycles else Buckets()), notes


def _batch(rows: pd.DataFrame, alike: pd.DataFrame) -> Iterator[str]:
    """`alike`: of all batches."""
    if not rows["stated"].all():
        yield f"no batch is stated; taken as {_BATCH} images"
    if apart := sorted({*alike["world_size"]} - {*rows["world_size"]}):
        at = ", ".join(f"{n:.0f}" for n in apart)
        yield f"the batch changes on the way: at {at} ranks it is another, so not of this curve"


def _not_explained(series: Series) -> Iterator[str]:
    if series.base_ranks > 1:
        yield f"no row of one rank: efficiencies are against {series.base_ranks:.0f} ranks"
    above = series.ranks[series.efficiency > table.SUPERLINEAR]
    if len(above):
        at = ", ".join(f"{n:.0f}" for n in above)
        yield f"superlinear at {at} ranks, which the model cannot explain: not fitted"


def divides(curve: str, images: float, ranks: float) -> bool:
    """Whether so many ranks have equally many images of a step."""
    return curve != "strong" or images % ranks == 0


def uneven_ranks(images: float, ranks: Iterable[int]) -> Iterator[str]:
    """Why those asked for have no row."""
    if uneven := ", ".join(str(n) for n in sorted({*ranks})):
        yield f"{images:.0f} images of a step do not divide among {uneven} ranks: no row"


def groups(every: Sequence[TableCurve]) -> list[list[TableCurve]]:
    """Curves of one backend and one source but for the model share machine and library."""
    by_machine: dict[tuple[str, str], list[TableCurve]] = {}
    for one in every:
        words = re.sub(_MODELS, "", one.source.lower())
        by_machine.setdefault((one.backend, words), []).append(one)
    return [*by_machine.values()]
