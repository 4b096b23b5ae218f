"""What a machine is checked against: raw speeds of earlier sessions, and of which workload."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bench.config import Role, UsageError, explain, fields_with
from bench.study.definition import StrictTable, Study
from bench.study.disk import write_whole
from bench.study.plan import plan

LEAST_LAUNCHES = 4  # of a check: of fewer, a fall of 10 % could hardly be told
_Rate = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False)]
_MOST_BYTES = 2**24
# the alarm's own trial, and what says nothing of the work
_LEFT_OUT = {"inject_ms", "variant", "arm"}


class CellSpeeds(StrictTable):
    """What one cell measured in one session, by launch."""

    images_per_s: Annotated[tuple[_Rate, ...], Field(min_length=2)]  # of all ranks, [launch]
    rank_images_per_s: tuple[tuple[_Rate, ...], ...]  # by each rank's own clock, [launch][rank]


class Sitting(StrictTable):
    """One session: when, where and with what it measured, and every cell's launches."""

    started: str  # UTC
    hosts: tuple[str, ...]  # of the ranks, in their order
    processors: tuple[str, ...]  # names of CPUs and GPUs
    versions: dict[str, str]
    cells: dict[str, CellSpeeds]


class Reference(StrictTable):
    """The sessions of one workload on one machine; what follows from them is derived on reading."""

    schema_version: Literal[1] = 1
    workload: dict[str, dict[str, Any]]  # of each cell, what is not at its default
    sessions: Annotated[tuple[Sitting, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for sitting in self.sessions:
            for cell, work in self.workload.items():
                ranks = work["world_size"]
                measured = sitting.cells.get(cell)
                if measured is None or sitting.cells.keys() != self.workload.keys():
                    raise ValueError(f"the session of {sitting.started} has other cells")
                rows = measured.rank_images_per_s
                if len(rows) != len(measured.images_per_s) or any(
                    len(row) != ranks for row in rows
                ):
                    raise ValueError(f"the session of {sitting.started} has other ranks")
        return self

    def speeds(self, cell: str) -> list[tuple[float, ...]]:
        """Images/s of all ranks, [session][launch]."""
        return [sitting.cells[cell].images_per_s for sitting in self.sessions]

    def shares(self, cell: str, rank: int) -> list[list[float]]:
        """A rank's own speed over the mean of all ranks', [session][launch]."""
        return [shares(sitting.cells[cell], rank) for sitting in self.sessions]


def shares(measured: CellSpeeds, rank: int) -> list[float]:
    """A rank's own speed over the mean of all ranks', by launch."""
    return [rates[rank] * len(rates) / sum(rates) for rates in measured.rank_images_per_s]


def workload(study: Study) -> dict[str, dict[str, Any]]:
    """What makes the work of each cell: ranks, and options that are not at their defaults."""
    without = {*fields_with(Role.BOOKKEEPING), *fields_with(Role.FOLDER)} | _LEFT_OUT
    without |= {*fields_with(Role.PER_RUN), *fields_with(Role.PER_BLOCK)}
    (runs,) = plan(study, 1, Path("runs"))
    return {
        config.cell: {"world_size": config.world_size}
        | config.model_dump(mode="json", exclude=without, exclude_defaults=True)
        for config in sorted((run.config for run in runs), key=lambda config: config.cell)
    }


def read_reference(path: Path) -> Reference:
    """Raises UsageError for what is no whole reference."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"longer than {_MOST_BYTES} bytes")
        return Reference.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        cure = "write one on the machine while it is well: the same command with --write-reference"
        raise UsageError(f"{path}: no such reference; {cure}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        problem = re.sub(r"\s+", " ", explain(error))[:200]
    except (ValueError, KeyError) as error:
        problem = str(error)
    raise UsageError(f"{path} is no reference of this version: {problem}; write it again")


def require_same(
    reference: Reference, planned: Mapping[str, Mapping[str, Any]], path: Path
) -> None:
    """Raise UsageError where the reference is of other cells, ranks or other work."""
    if absent := sorted(planned.keys() - reference.workload.keys()):
        has = ", ".join(sorted(reference.workload))
        raise UsageError(f"{path} has no {absent[0]}, it has {has}; choose --cells of these")
    for cell, work in planned.items():
        before = reference.workload[cell]
        for name in sorted(before.keys() | work.keys()):
            old, new = before.get(name), work.get(name)
            if old != new:
                values = f"{name}={old!r} in {cell}, this check has {new!r}"
                values = values.replace("None", "the default")
                raise UsageError(f"{path} is of {values}; check the same, or use another file")


def require_whole(reference: Reference, planned: Mapping[str, Any], path: Path) -> None:
    """Raise UsageError where a further session would lack cells of the others."""
    if more := sorted(reference.workload.keys() - planned.keys()):
        rule = f"{path} also has {', '.join(more)}"
        raise UsageError(f"{rule}; a further session measures all of its cells")


def unlike(reference: Reference, now: Sitting) -> str:
    """Why two machines are not alike; '' if they may be."""
    last = reference.sessions[-1]
    if last.processors != now.processors:
        names = [" and ".join(each.processors) or "unknown" for each in (last, now)]
        return f"the reference is of {names[0]}, and this is {names[1]}"
    places = [[each.hosts.index(host) for host in each.hosts] for each in (last, now)]
    if places[0] != places[1]:
        counts = [len({*each.hosts}) for each in (last, now)]
        ranks = f"the reference has its ranks on {counts[0]} node(s), this check on {counts[1]}"
        return f"{ranks}, or otherwise spread over them"
    return ""


def changed_versions(reference: Reference, now: Sitting) -> Sequence[str]:
    """'torch 2.13 -> 2.14' for all versions that are not those of the last session."""
    before = reference.sessions[-1].versions
    names = sorted(before.keys() | now.versions.keys())
    pairs = [(name, before.get(name, "none"), now.versions.get(name, "none")) for name in names]
    return [f"{name} {old} -> {new}" for name, old, new in pairs if old != new]


def write_reference(path: Path, work: dict[str, dict[str, Any]], now: Sitting) -> int:
    """Add a session to the file, or begin it; how many it has. Raises UsageError of other work."""
    before: tuple[Sitting, ...] = ()
    if path.exists():  # it may have been written meanwhile
        reference = read_reference(path)
        require_same(reference, work, path)
        require_whole(reference, work, path)
        before = reference.sessions
    reference = Reference(workload=work, sessions=(*before, now))
    write_whole(path, reference.model_dump_json(indent=1) + "\n")
    return len(reference.sessions)
