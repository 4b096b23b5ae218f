"""nccl-tests' and rccl-tests' tables: a size a row, out of place and in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.config import UsageError
from bench.study.collectives import bus_factor
from plots.imports.observation import (
    Format,
    ImportOptions,
    Reading,
    Row,
    as_number,
    table,
    understood,
)
from plots.imports.text import Line, Log

_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "broadcast": "broadcast",
    "reduce_scatter": "reduce_scatter",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "sendrecv": "send_receive",
    "gather": "gather",
    "scatter": "scatter",
}
_NAME = re.compile(rf"(concluded: )?\b({'|'.join(_KINDS)})_perf\b")
_BEGIN = re.compile(r"#\s*nThread\s+\d+\s")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\s.*\bPid\s+\d+\s+on\s+\S+")
_HEAD = re.compile(
    r"#\s*size\s+count\s+type((?:\s+redop)?(?:\s+root)?)\s+(cpu)?time\s+algbw\s+busbw\s"
)
_UNITS = re.compile(r"#\s*\(B\)\s+\(elements\)\s+(.*)")
_IN_US = re.compile(r"(?:\(us\)\s+\(GB/s\)\s+\(GB/s\)\s*){2}")
_TYPES = r"(?:u?int(?:8|32|64)|half|float|double|bfloat16|\w*e[45]m[23])"
_ROW = re.compile(
    rf"(?:^|\s)(\d+)\s+(\d+)\s+({_TYPES})((?:\s+\S+)*?)((?:\s+\S+){{8}})"
    r"(?:\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?\s*$"  # with -T
)
_MARKER = re.compile(rf"\d\s+\d+\s+{_TYPES}\b")
_MEAN = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)")
_BAD = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+FAILED")
_LARGEST_ERROR = 1e-3  # earlier versions wrote an error, later ones count wrong values
_PLACES = ("", "_in_place")
_REDUCTIONS = ("sum", "avg", "prod", "max", "min")


@dataclass
class _Collective:
    """One run of one collective."""

    kind: str = ""
    ranks: list[int] = field(default_factory=list)
    rows: list[tuple[int, str, str, tuple[float, ...]]] = field(default_factory=list)
    options: str = ""  # its columns between type and time
    in_us: bool = False
    mean: float | None = None
    of_bus: list[float] = field(default_factory=list)


def _read(log: Log, options: ImportOptions) -> Reading:
    """Each row and the mean of all bus bandwidths are held against one another."""
    if re.search(r"#\s*bytes\s+N\s+type", log.text):
        raise UsageError("its table is of nccl-tests 1, in milliseconds; run a later version")
    tables, marked, lost = _tables(log)
    filled = [t for t in tables if t.rows]
    rows = [row for t in filled for row in _of(t, log.name, options)]
    warnings = understood(marked, lost)
    if missing := sum(t.mean is None for t in filled):
        warnings.append(f"{missing} tables state no mean bus bandwidth: cut off?")
    return Reading(table(rows), warnings)


def _tables(log: Log) -> tuple[list[_Collective], int, list[Line]]:
    tables = [_Collective()]
    marked, lost, name = 0, [], ""
    for line in log.lines:
        text = line.text
        now = tables[-1]
        if named := _NAME.search(text):
            if named[1]:
                now.kind = _KINDS[named[2]]
            else:
                name = _KINDS[named[2]]
        if _BEGIN.search(text):
            if now.ranks and not now.rows:
                raise UsageError("its processes ran apart (each has a rank 0); build with MPI=1")
            tables.append(_Collective(kind=name))
            name = ""
        elif rank := _RANK.search(text):
            now.ranks.append(int(rank[1]))
        elif head := _HEAD.search(text):
            if head[2]:
                raise UsageError("its times are cputime, of the processor alone; run it without -C")
            now.options = head[1]
        elif units := _UNITS.search(text):
            now.in_us = bool(_IN_US.search(units[1]))
        elif mean := _MEAN.search(text):
            now.mean = as_number(mean[1], "avg bus bandwidth")
        elif bad := _BAD.search(text):
            raise UsageError(f"{bad[1]} of its values are wrong; nothing of such a run counts")
        elif _MARKER.search(text):
            marked += 1
            if not _row(text, now):
                lost.append(line)
    return tables, marked, lost


def _row(text: str, into: _Collective) -> bool:
    match = _ROW.search(text)
    if not match or not into.in_us:
        return False
    words = match[5].split()
    try:
        errors = [float(w) for w in (words[3], words[7]) if w != "N/A"]
        numbers = tuple(float(words[i]) for i in (0, 1, 2, 4, 5, 6))
    except ValueError:
        return False
    if any(error > _LARGEST_ERROR for error in errors):
        raise UsageError(f"its row of {match[1]} B holds wrong results; nothing of it counts")
    size = int(match[1])
    into.rows.append((size, match[3], " ".join(match[4].split()), numbers))
    into.of_bus += [numbers[2], numbers[5]]
    return True


def _of(t: _Collective, name: str, options: ImportOptions) -> Iterator[Row]:
    if t.ranks and sorted(t.ranks) != list(range(len(t.ranks))):
        raise UsageError(f"it lists the ranks {t.ranks}: processes that ran apart, or cut lines")
    world = len(t.ranks) or options.world_size
    if not world:
        raise UsageError("it lists no ranks; use --world-size")
    kind = t.kind or _from_name(name) or _kind(t, world)
    for size, number_type, settings, numbers in t.rows:
        for where, (us, algorithm, bus) in zip(_PLACES, (numbers[:3], numbers[3:]), strict=True):
            _require_rates(size, us, algorithm, bus, kind, world)
            if not size or not us:
                continue  # too few elements for the ranks
            kind_of_data = " ".join([number_type, settings]).removesuffix(" -1").strip()
            place = {"bytes": size, "world_size": world, "model": kind_of_data}
            yield {"quantity": f"{kind}{where}_seconds", "value": us / 1e6, **place}
            yield {"quantity": f"{kind}{where}_bus_bytes_per_s", "value": bus * 1e9, **place}
    if t.mean is not None and not abs(t.mean - sum(t.of_bus) / len(t.of_bus)) <= 0.0051:
        mean = sum(t.of_bus) / len(t.of_bus)
        raise UsageError(f"its mean bus bandwidth is {t.mean:g} GB/s, and its rows make {mean:g}")


def _require_rates(
    size: int, us: float, algorithm: float, bus: float, kind: str, world: int
) -> None:
    """Raise UsageError where a row's rates are not its bytes over its time."""
    if not us:
        return
    rate = size / us / 1e3
    factor = _factor(kind, world)
    before = factor if kind in ("all_gather", "reduce_scatter") else 1.0  # algbw until 2020
    off = 0.0051 + (0.006 + 0.006 / us) * rate  # of a time with two decimals
    if not (abs(rate - algorithm) <= off or abs(rate * before - algorithm) <= off):
        raise UsageError(f"{size} B in {us:g} us are {rate:.2f} GB/s, and its row says {algorithm}")
    if not abs(rate * factor - bus) <= off * max(1.0, factor):
        raise UsageError(
            f"{kind} of {world} ranks, {size} B in {us:g} us, has the bus bandwidth "
            f"{rate * factor:.2f} GB/s, and its row says {bus}"
        )


def _factor(kind: str, world: int) -> float:
    if kind in ("reduce", "send_receive"):
        return 1.0
    return bus_factor(kind, world)


def _from_name(name: str) -> str:
    """The collective that the file is named for, the longest name first."""
    plain = name.lower().replace("-", "_").replace("allreduce", "all_reduce")
    plain = plain.replace("allgather", "all_gather").replace("reducescatter", "reduce_scatter")
    return next((_KINDS[k] for k in sorted(_KINDS, key=len, reverse=True) if k in plain), "")


def _kind(t: _Collective, world: int) -> str:
    """What its columns and rates leave possible, if that is one collective."""
    reduces = any(word in options for *_, options, _ in t.rows for word in _REDUCTIONS)
    possible = {
        kind
        for kind in (("all_reduce", "reduce_scatter") if reduces else ())
        if all(_fits(size, n, _factor(kind, world)) for size, _, _, n in t.rows)
    }
    if "root" in t.options and reduces and not all("-1" in o.split() for _, _, o, _ in t.rows):
        possible = {"reduce"}
    if len(possible) != 1:
        raise UsageError("it does not say which collective; name its file so: all_gather.txt")
    return possible.pop()


def _fits(size: int, numbers: tuple[float, ...], factor: float) -> bool:
    us, _, bus = numbers[:3]
    return not us or abs(size / us / 1e3 * factor - bus) <= 0.0051 + 0.006 * bus


FORMAT = Format(
    read=_read,
    written_by="NVIDIA/nccl-tests, ROCm/rccl-tests",
    a_file_is_a_run=True,
    notes=(
        "times are means over ranks, unless -a says otherwise; bytes are of the whole",
        "seconds of a size are of one table: rows are no repeats",
    ),
)
