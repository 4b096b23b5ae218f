"""A study, fixed before measuring: its question, comparisons, sizes and launches."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

from bench.backends.catalogue import (
    CANDIDATE,
    REFERENCE,
    Cell,
    cells,
    frameworks,
    is_bare,
    parts,
)
from bench.config import Curve, Role, RunConfig, Transport, fields_with, near, strictly
from bench.config.fields import NAME, NAME_RULE
from bench.study.looks import MAX_LAUNCHES, MIN_LAUNCHES, schedule

MAX_SECONDS = 30 * 86_400
# What may be corrected after the first run; everything else is fixed before it.
MAY_CHANGE = {"expected_run_s", "time_limit_s", "site", "earlier_sha256"}

_ARMS = (
    "[arms.NAME], a table of the fields of each condition, with cells = [...] where not all have it"
)
_EARLIER = {
    "blocks": "launches",
    "max_blocks": "max_launches",
    "settings": _ARMS,
    "variants": _ARMS,
}

# Fields of RunConfig that the plan sets for every run, and where the study says what they become.
OWNED_FIELDS = {
    **dict.fromkeys(fields_with(Role.PLANNED), "leave it out"),
    "backend": "list it in cells",
    "transport": f"list it in cells, as in {cells()[1]!r}",
    "arm": "name a table [arms.NAME]",
    "batch_per_rank": "write it in [weak] or [batch]",
    "global_batch": "write it in [strong]",
    "world_size": "write world_sizes at the top",
    "seed": "write seed at the top, or leave it out",
    "study": "it is the study's name",
}

Int = Annotated[int, Strict()]  # true is no number, "4" and 4.0 are none either
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
BatchPerRank = Annotated[Int, Field(ge=1, le=2**24)]
WorldSize = Annotated[Int, Field(ge=1, le=2**20)]
Launches = Annotated[Int, Field(ge=1, le=MAX_LAUNCHES)]
WholeSeconds = Annotated[Int, Field(ge=1, le=MAX_SECONDS)]
_FilledList = Field(min_length=1)


class StrictTable(BaseModel):
    """An immutable table of a file, in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Weak(StrictTable):
    """Weak scaling: every rank keeps its batch."""

    batch_per_rank: BatchPerRank  # images per step on each rank, at every size


class Strong(StrictTable):
    """Strong scaling: the ranks share one batch."""

    global_batch: Annotated[Int, Field(ge=1, le=2**40)]  # images per step over all ranks


class BatchSweep(StrictTable):
    """A sweep of the batch at fixed world sizes."""

    batch_per_rank: Annotated[tuple[BatchPerRank, ...], _FilledList]  # one point each
    world_sizes: tuple[WorldSize, ...] = ()  # ranks of the sweep; or write nodes above


class Primary(StrictTable):
    """Main comparison of a study, with an error rate of 5 %; all others share another 5 %."""

    curve: Curve  # it is a point of
    world_size: WorldSize
    transport: Transport | None = None  # of several
    arm: str | None = None  # the candidate's, of several
    batch_per_rank: BatchPerRank | None = None  # of several


class Arm(BaseModel):
    """A condition under which cells run; its extra keys are fields of RunConfig."""

    model_config = ConfigDict(frozen=True, extra="allow")

    cells: tuple[str, ...] = ()  # that have it; left out: all
    over: str | None = None  # arm of the same cell that its gain is told over

    @property
    def fields(self) -> dict[str, Any]:
        """The values that the arm sets, by field of RunConfig."""
        return self.__pydantic_extra__ or {}


class Point(NamedTuple):
    """One measured configuration: a cell (backend/transport), in an arm (condition), at a size."""

    cell: str
    arm: str  # '' in a study without arms
    world_size: int
    batch_per_rank: int  # images per step on each rank

    @property
    def transport(self) -> str:
        """The cell's transport; '' for `single`."""
        return parts(self.cell).transport

    @property
    def global_batch(self) -> int:
        """Images per step over all ranks."""
        return self.batch_per_rank * self.world_size

    @property
    def name(self) -> str:
        """The name in run ids and messages, as 'cell-mpi-w2-b16-arm'."""
        cell = self.cell.replace("/", "-")
        size = f"{cell}-w{self.world_size}-b{self.batch_per_rank}"
        return f"{size}-{self.arm}" if self.arm else size


Side = tuple[str, str]  # a cell and its arm


class Study(StrictTable):
    """A study as its file defines it; invalid values raise `pydantic.ValidationError`."""

    name: str  # of its folder too: lower case, digits, '-', '_'
    question: Annotated[str, Field(min_length=1, max_length=1000)]  # what the numbers answer
    cells: Annotated[tuple[str, ...], _FilledList] = ()  # single, framework/transport, framework
    reference: str = REFERENCE  # framework or cell compared with
    candidate: str = CANDIDATE  # what is compared with it; the same one: its arms with `over`
    scaling: Annotated[tuple[Curve, ...], _FilledList] = ()  # curves to measure, one table each
    world_sizes: tuple[WorldSize, ...] = ()  # ranks of weak and strong scaling
    nodes: tuple[WorldSize, ...] = ()  # instead: full nodes of the site, and one rank
    up_to_nodes: WorldSize | None = None  # instead: 1, 2, 4, ... nodes up to it
    launches: Launches = MIN_LAUNCHES  # passes over all points; even, or 1
    max_launches: Launches = 20  # passes at most: two more at a time until it is settled
    turns: Bool = True  # compared worlds live at once and take turns; else one by one
    seed: Annotated[Int, Field(ge=0, lt=2**61)] = 0  # left out, the first run draws it
    margin: Annotated[Float, Field(gt=0, lt=1)] = 0.02  # relative difference that counts as none
    time_limit_s: WholeSeconds = 300  # after which a run is ended
    expected_run_s: WholeSeconds | None = None  # estimate until a run has ended
    primary: Primary | None = None  # decided at 5 % by itself
    weak: Weak | None = None
    strong: Strong | None = None
    batch: BatchSweep | None = None
    run: dict[str, Any] = {}  # fields of RunConfig, the same in every run
    site: Annotated[str, Field(max_length=1000)] = ""  # filled in for a site
    arms: dict[str, Arm] = {}  # by name: fields of an arm's runs, before [run]'s
    earlier_sha256: tuple[str, ...] = ()  # that runs carry from before its present form

    @property
    def fields(self) -> list[str]:
        """Every field of RunConfig that the study sets, in [run] or in an arm."""
        return list(dict.fromkeys(chain(self.run, self.varied)))

    @property
    def varied(self) -> list[str]:
        """Every field that an arm of the study sets."""
        return list(dict.fromkeys(chain.from_iterable(arm.fields for arm in self.arms.values())))

    def fields_of(self, cell: str, arm: str) -> dict[str, Any]:
        """Return the fields that the study sets for a cell's runs in `arm` ('' without arms).

        `single` exchanges nothing, so fields of the exchange and of backends are left out for it.
        """
        values = {**self.run, **(self.arms[arm].fields if arm else {})}
        unseen = (*fields_with(Role.EXCHANGE), *fields_with(Role.KNOB)) if cell == "single" else ()
        return {name: value for name, value in values.items() if name not in unseen}

    def arms_of(self, cell: str) -> list[str]:
        """List the arms of a cell, or [''] if it has none.

        Some arms are alike for `single`, which exchanges nothing: of these it has only the first.
        """
        names = [name for name, arm in self.arms.items() if not arm.cells or cell in arm.cells]
        if cell != "single":
            return names or [""]
        values = [self.values_of(cell, name) for name in names]
        return [n for i, n in enumerate(names) if values[i] not in values[:i]] or [""]

    def values_of(self, cell: str, arm: str) -> dict[str, Any]:
        """Return the value, or the default, of every `varied` field in a cell's runs of `arm`."""
        stated = self.fields_of(cell, arm)
        return {
            name: stated.get(name, RunConfig.model_fields[name].default) for name in self.varied
        }

    def arm_of(self, config: RunConfig) -> str:
        """Return the arm that a run names. If it names none, find the first with the run's fields.

        Raises ValueError if no arm has that name and those fields, unless the study has no arms.
        """
        if not self.arms:
            return config.arm or ""
        names = self.arms_of(config.cell) if config.arm is None else [config.arm]
        differs = f"its arm={config.arm!r} is none of the study's"
        for name in (name for name in names if name in self.arms):
            for field, value in self.values_of(config.cell, name).items():
                logged = getattr(config, field)
                if logged != value and str(logged) != str(value):  # a path is text in the study
                    differs = f"its {field}={logged}, and [arms.{name}] of the study says {value}"
                    break
            else:
                return name
        raise ValueError(differs)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of cells that are compared, as (reference, candidate)."""
        return pairs(self.cells, self.reference, self.candidate)

    @property
    def comparisons(self) -> list[tuple[Side, Side]]:
        """Every comparison: (cell, arm) of the reference, and that of the candidate."""
        return [
            ((a, over), (b, arm))
            for a, b in self.pairs
            for arm in self.arms_of(b)
            if (over := self.over(arm) if a == b else arm) in self.arms_of(a)
        ]

    def over(self, arm: str) -> str | None:
        """Return the arm with which `arm` is compared, as `over` says; None if `over` is unset."""
        return self.arms[arm].over if arm in self.arms else None

    @property
    def sha256(self) -> str:
        """SHA-256 of all keys but MAY_CHANGE; a key set to its default counts as one left out."""
        left_out = {*MAY_CHANGE, "launches", "max_launches"}
        fixed = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        # under the keys that they had first, so that digests of older studies hold
        fixed |= {"blocks": self.launches, "max_blocks": self.max_launches}
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of launches at which the study decides; () if `max_launches` < MIN_LAUNCHES."""
        return schedule(self.launches, self.max_launches)

    @property
    def needs_site(self) -> bool:
        """Whether ranks or transports must come from a site file before the study is planned."""
        return bool(self.nodes or self.up_to_nodes or any(map(is_bare, self.cells)))

    @model_validator(mode="before")
    @classmethod
    def _of_present_form(cls, values: dict[str, Any]) -> dict[str, Any]:
        of_cells = [f"'{cell}'" for cell in values.get("cells") or () if "@" in str(cell)]
        if old := next((key for key in [*values, *of_cells] if key in {*_EARLIER, *of_cells}), ""):
            raise ValueError(f"{old} is of an earlier form; write {_EARLIER.get(old, _ARMS)}")
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules = (_names, _repeats, _run_fields, _arms, _cells, _curves, _sizes, _looks)
        if broken := next(chain.from_iterable(rule(self) for rule in rules), None):
            raise ValueError(broken)
        return self


def pairs(cells: Sequence[str], reference: str, candidate: str) -> list[tuple[str, str]]:
    """List the compared (reference, candidate) pairs of cells that are both in `cells`.

    If `reference` and `candidate` are frameworks, as 'ddp', each transport that both have gives a
    pair. If they are cells, as 'ddp/mpi', they are the one pair.
    """
    compared = [(reference, candidate)]
    if is_bare(reference):
        of_cells = [(cell, parts(cell)) for cell in cells]
        compared = [
            (cell, Cell(candidate, transport).name)
            for cell, (backend, transport) in of_cells
            if backend == reference
        ]
    return [pair for pair in compared if set(pair) <= set(cells)]


# Rules between keys: each yields a sentence with the value, the reason and the way out.


def _names(s: Study) -> Iterator[str]:
    if not re.fullmatch(NAME, s.name):
        yield f"name={s.name!r} also names a folder; {NAME_RULE}"
    if not s.question.isprintable():
        yield f"question={s.question!r} must be one line; join it into one sentence"


def _repeats(s: Study) -> Iterator[str]:
    for key in ("cells", "scaling", "world_sizes", "nodes"):
        for value, times in Counter(getattr(s, key)).items():
            if times > 1:
                yield f"{key} lists {value!r} {times} times; once is enough, launches repeat it"


def _cells(s: Study) -> Iterator[str]:
    known = cells() + frameworks()
    named = [("reference", s.reference), ("candidate", s.candidate)]
    for key, cell in [*(("cells", cell) for cell in s.cells), *named]:
        if cell not in known:
            yield f"{key}: {cell!r} is not one of {', '.join(cells())}{near(cell, known)}"
    pair = f"candidate={s.candidate!r} and reference={s.reference!r}"
    if is_bare(s.reference) != is_bare(s.candidate):
        yield f"{pair} make no pair; name two frameworks, or two cells"
    if s.reference == s.candidate and not s.comparisons:
        cure = "give one of its arms over = 'NAME', the arm that it is compared with"
        yield f"{pair} are one, and none of its arms is compared with another; {cure}"


def _arms(s: Study) -> Iterator[str]:
    for name, arm in s.arms.items():
        key = f"arms.{name}"
        if not re.fullmatch(NAME, name):
            yield f"{key} also names logs; {NAME_RULE}"
        for cell in (cell for cell in arm.cells if cell not in s.cells):
            yield f"{key}.cells lists {cell!r}, which cells does not{near(cell, s.cells)}"
        if arm.over is not None and (arm.over == name or arm.over not in s.arms):
            others = ", ".join(other for other in s.arms if other != name)
            yield f"{key}.over={arm.over!r} is not one of the other arms: {others}"
        over = s.arms.get(arm.over or "")
        if over and arm.fields.get("emulate") != over.fields.get("emulate"):
            yield f"{key}.over: compute that sleeps is compared with none that works; leave it out"
    for cell in s.cells if s.arms else ():
        if s.arms_of(cell) == [""]:
            yield f"cells lists {cell!r}, and no arm has it; add it to the cells of one"


def _curves(s: Study) -> Iterator[str]:
    for curve in get_args(Curve):
        counts, listed = getattr(s, curve) is not None, curve in s.scaling
        if listed and not counts:
            yield f"scaling lists {curve!r} without a table [{curve}]; add it, or drop {curve!r}"
        if counts and not listed:
            yield f"[{curve}] has no effect, scaling lacks {curve!r}; add it, or drop the table"


def _sizes(s: Study) -> Iterator[str]:
    of_batch = s.batch.world_sizes if s.batch else ()
    if s.nodes or s.up_to_nodes:
        if s.nodes and s.up_to_nodes:
            yield f"up_to_nodes={s.up_to_nodes} has no effect beside nodes; leave one out"
        if s.world_sizes or of_batch:
            key = "world_sizes" if s.world_sizes else "batch.world_sizes"
            yield f"{key} and nodes both say at how many ranks to measure; leave one out"
        return
    if s.batch and not of_batch:
        yield "batch.world_sizes is missing: ranks of the sweep; add it, or nodes at the top"
    needed = not {"weak", "strong"}.isdisjoint(s.scaling)
    if s.world_sizes and not needed:
        yield "world_sizes has no effect without weak or strong scaling; write it in [batch] only"
    if needed and not s.world_sizes:
        yield "world_sizes is missing: weak and strong scaling need it; add world_sizes = [1, 2]"


def _looks(s: Study) -> Iterator[str]:
    if s.max_launches < s.launches:
        rule = f"is less than launches={s.launches}; raise it to {s.launches}"
        yield f"max_launches={s.max_launches} {rule}"
    elif s.max_launches % 2 and s.max_launches > 1:
        rule = "must be even, as launches are added by two; raise it by one"
        yield f"max_launches={s.max_launches} {rule}"


def _run_fields(s: Study) -> Iterator[str]:
    tables = {"run": s.run, **{f"arms.{name}": arm.fields for name, arm in s.arms.items()}}
    for table, values in tables.items():
        for name, value in values.items():
            key = f"{table}.{name}"
            if name in OWNED_FIELDS:
                yield f"{key}={value!r}: the plan sets {name} of each run; {OWNED_FIELDS[name]}"
            elif name not in RunConfig.model_fields:
                valid = RunConfig.model_fields.keys() - OWNED_FIELDS.keys()
                valid |= Arm.model_fields.keys() if table != "run" else set()
                yield f"unknown key '{key}'{near(name, valid)}"
        try:
            strictly(values)
        except ValueError as error:
            yield f"{table}.{error}"
