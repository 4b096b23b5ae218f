"""A page of imported and published numbers, with our own beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bench.config import UsageError
from bench.study.disk import write_whole
from bench.study.frames import load, require
from bench.study.points import fixed
from plots.analyse.study import analyse, machine
from plots.imports.text import RATE
from plots.report.format import clean, escape, interval, number, percent, rate, table

_NEEDED = ["source", "backend", "world_size", "quantity", "value", "reducer"]
_BATCHES = ["batch_per_rank", "global_batch"]
_PLACE = ["source", "curve", "backend", "batch", "world_size"]
# columns of the page's tables, and their titles
_CURVES = {"source": "source", "curve": "curve", "backend": "backend", "world_size": "ranks"}
_CURVES |= {"batch": "batch", "images_per_s": "images/s", "own": "efficiency, own"}
_CURVES |= {"common": "efficiency, common", "how": "how"}
_OTHERS = {"source": "source", "backend": "backend", "world_size": "ranks"}
_OTHERS |= {"batch_per_rank": "images per rank", "global_batch": "images per step"}
_OTHERS |= {"quantity": "quantity", "value": "value", "reducer": "how"}
_PAGE = """# Published and imported numbers

Other people's numbers as they stand in their sources: mostly one run a point, so without an \
interval. *Own*: against the same backend's one rank. *Common*: against one process without a \
framework. Ours have 95 % intervals. Machines, wires and batches differ: compare how efficiencies \
fall with the ranks, not images/s.

{curves}

{others}## Sources

{sources}
"""


def page(folder: Path, studies: Sequence[Path], out: Path) -> Path:
    """Write published.md to `out`: points of all tables in `folder`, beside those of our studies.

    Returns its path. Raises UsageError if there is no table, or if a table or study is bad.
    """
    tables = [_read_points(path) for path in sorted(folder.glob("*.csv"))]
    if not tables:
        raise UsageError(f"{folder}: no tables of imported points (*.csv); import some logs first")
    points = pd.concat(tables, ignore_index=True)
    rates, others = points[points["quantity"] == RATE], points[points["quantity"] != RATE]
    measured = [row for study in studies for row in _measured(study)]
    rows = pd.concat([_scaled(rates), pd.DataFrame(measured)], ignore_index=True)
    if rows.empty:
        raise UsageError(f"{folder}: no table of it holds {RATE}; import some logs first")
    others = others.sort_values(["source", "quantity", "backend", "world_size"])
    sources = [*dict.fromkeys([*rows["source"], *others["source"]])]
    rest = f"## Other quantities\n\n{_table(others, _OTHERS, sources)}\n\n"
    text = _PAGE.format(
        curves=_table(rows, _CURVES, sources),
        others="" if others.empty else rest,
        sources="\n".join(f"{i}. {escape(source)}" for i, source in enumerate(sources, 1)),
    )
    return write_whole(out / "published.md", text.encode())


def _read_points(path: Path) -> pd.DataFrame:
    """Read one table of points. Raises UsageError if the file is not such a table."""
    try:
        words = dict.fromkeys(("source", "backend", "quantity", "reducer"), "str")  # 2017 is a name
        frame = pd.read_csv(path, dtype=words)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} is no CSV: {error}; mend it, or take it out") from None
    if missing := [name for name in _NEEDED if name not in frame]:
        raise UsageError(f"{path} has no column {', '.join(missing)}; see results/published")
    # other quantities may be words, which make no number
    numbers = frame[["world_size", "value"]].apply(pd.to_numeric, errors="coerce")
    rates = numbers[frame["quantity"] == RATE]
    if not ((rates["world_size"] >= 1) & (rates["value"] > 0)).all():
        raise UsageError(f"{path}: a row of {RATE} lacks its world_size or value; mend the row")
    return frame.assign(**numbers).reindex(columns=_NEEDED + _BATCHES)


def _scaled(rates: pd.DataFrame) -> pd.DataFrame:
    """Add each rate's curve (strong if it has a global batch, else weak) and two efficiencies.

    `own` is against one rank of the backend, `common` against `single`, both at the same source and
    batch. Without that baseline it is nan. Raises UsageError if a point has two rates.
    """
    strong = rates["global_batch"].notna()
    batch = rates["global_batch"].where(strong, rates["batch_per_rank"])
    curve = strong.map({True: "strong", False: "weak"})
    rows = rates.assign(curve=curve, batch=batch).sort_values(_PLACE)
    for row in rows[rows.duplicated(_PLACE)].itertuples():  # their mean would be nobody's
        twice = f"{row.source}: {row.backend} at {row.world_size:.0f} ranks has two rates"
        raise UsageError(f"{twice}; name each with a --source, or import their logs together")
    ones = rows[rows["world_size"] == 1].rename(columns={"value": "one"})
    plain = ones[ones["backend"] == "single"].drop_duplicates(["source", "batch"])
    for kind, baseline, keys in (
        ("own", ones, ["source", "curve", "backend", "batch"]),
        ("common", plain, ["source", "batch"]),
    ):
        joined = rows.merge(baseline[[*keys, "one"]], how="left", on=keys)["one"].to_numpy()
        shares = rows["value"] / (rows["world_size"] * joined)
        rows[kind] = shares.map(percent, na_action="ignore")
    rows["images_per_s"] = rows["value"].map(rate)
    return rows.astype({"world_size": int}).rename(columns={"reducer": "how"})


def _measured(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield rows as `_scaled` makes them, from the scaling curves of a study of ours."""
    loaded = load(folder)
    require(loaded, folder)
    a = analyse(loaded)
    for t in a.throughput:
        if t.curve not in ("weak", "strong"):
            continue
        ends = {
            s.kind: s.efficiency for s in a.efficiency if (s.curve, s.point) == (t.curve, t.point)
        }
        if t.point.world_size == 1 and t.point.cell != "single":
            ends["own"] = replace(t.images_per_s, value=1.0, low=1.0, high=1.0)  # as it is meant
        kind = "emulated, " if a.emulated(t.point.arm) else ""
        yield {
            "source": f"ours: {kind}{a.loaded.study.name} ({clean(machine(a.loaded.host), 80)})",
            "curve": t.curve,
            "backend": t.point.cell,
            "world_size": t.point.world_size,
            "batch": fixed(t.point, t.curve),
            "images_per_s": interval(t.images_per_s, rate),
            **{kind: interval(end, percent) for kind, end in ends.items()},
            "how": f"{kind}n = {t.images_per_s.n} launches",
        }


def _table(rows: pd.DataFrame, columns: dict[str, str], sources: Sequence[str]) -> str:
    """Write a table whose rows name their sources by number."""
    numbers = rows["source"].map(lambda source: 1 + sources.index(source))
    cells = rows.assign(source=numbers)[[*columns]].map(number)
    return table([*columns.values()], cells.itertuples(index=False))
