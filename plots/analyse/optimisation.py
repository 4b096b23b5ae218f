"""Cells that optimise otherwise, beside the cell that takes the mean: apart from comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bench.backends.catalogue import facts, parts
from bench.study import stats
from plots.analyse import comparability
from plots.analyse.points import NotCompared, PointRow, Table, by_point, describe, tabulate
from plots.analyse.trainings import summarise

# apart from what a side of any comparison may have to itself
_MAY_DIFFER = (*comparability.OF_A_SIDE, "bucket_mib", "exchange_bytes")
_BYTES = ("exchanged_bytes", "gradient_bytes")


def beside(runs: pd.DataFrame, usual: Table) -> Iterator[PointRow]:
    """Point by point, from the runs of backends that take no mean, and the points of all others.

    `ratio` is of images/s, over the same framework's cell that takes the mean, paired by launch;
    without one, `why`. `exchanged_bytes` are of a step, on each rank; the first run's.
    """
    separate = tabulate(runs)
    trained = {row.point: row for row in summarise(runs)}
    both = Table({**usual.blocks, **separate.blocks}, {**usual.curves, **separate.curves})
    for point, rows in sorted(by_point(runs), key=lambda entry: entry[0]):
        backend = facts(point.cell)
        mean = point._replace(cell=parts(point.cell)._replace(backend=backend.beside, arm="").name)
        pair, missing = f"{describe(point)} against {mean.cell}", list[NotCompared]()
        is_measured = mean in usual.blocks
        blocks = both.shared(mean, point, _MAY_DIFFER, pair, missing) if is_measured else []
        seconds = both.seconds(point, both.blocks[point])
        training = trained.get(point)
        yield PointRow(
            point,
            {
                "applies": backend.applies,
                "images_per_s": stats.geometric_mean([point.samples_per_step / s for s in seconds]),
                **{
                    name: None if rows[name].hasnans else int(rows[name].iloc[0]) for name in _BYTES
                },
                "mean_cell": mean.cell,
                "ratio": both.paired(mean, point, blocks).estimate if blocks else None,
                "why": "; ".join(dict.fromkeys(one.reason for one in missing))
                or ("" if is_measured else f"no usable run of {mean.cell}"),
                "trainings": training and len(training.trainings),
                "reached": training and training.reached,
                "seconds": training and training.seconds,
                "accuracy": training and training.accuracy,
            },
        )
