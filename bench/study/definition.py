"""Study: the question, what is compared, at which sizes and how often; everything that is decided
before measuring.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from bench.backends.catalogue import CANDIDATE, REFERENCE, cells, frameworks
from bench.config import Curve, Role, RunConfig, Settings, Transport, fields_with

# Fields of RunConfig that the plan sets for every run, and where the study says what they become.
OWNED_FIELDS = {
    **dict.fromkeys(fields_with(Role.PLANNED), "leave it out"),
    "backend": "list it in cells",
    "transport": f"list it in cells, as in {cells()[1]!r}",
    "settings": "write settings at the top of the study",
    "batch_per_rank": "write it in [weak] or [batch]",
    "global_batch": "write it in [strong]",
    "world_size": "write world_sizes at the top of the study",
    "seed": "write seed at the top of the study",
    "study": "it is the study's name",
}

_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"  # part of the names of files and jobs

MAX_BLOCKS = 10_000
# of one study: more than anybody waits for, and as many as a command still plans in seconds
MAX_RUNS = 100_000
MAX_SECONDS = 30 * 86_400
_MAX_LENGTH = 1000  # of a list

Int = Annotated[int, Strict()]  # true is no number, "4" and 4.0 are none either
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
BatchPerRank = Annotated[Int, Field(ge=1, le=2**24)]
WorldSize = Annotated[Int, Field(ge=1, le=2**20)]
Seconds = Annotated[Int, Field(ge=1, le=MAX_SECONDS)]


class Table(BaseModel):
    """A table of a file a person writes: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Broken(ValueError):
    """A rule between keys that is broken; `key` is the one to change, dotted, so that its line can
    be named.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Weak(Table):
    """Weak scaling: every rank keeps its batch."""

    batch_per_rank: BatchPerRank = Field(
        description="images per step on each rank, at every world size"
    )


class Strong(Table):
    """Strong scaling: the ranks share one batch."""

    global_batch: Int = Field(
        ge=1, le=2**40, description="images per step over all ranks; divides by every world size"
    )


class Batch(Table):
    """A sweep of the batch at fixed world sizes."""

    batch_per_rank: tuple[BatchPerRank, ...] = Field(
        min_length=1,
        max_length=_MAX_LENGTH,
        description="images per step on each rank, one point each",
    )
    world_sizes: tuple[WorldSize, ...] = Field(
        (),
        max_length=_MAX_LENGTH,
        description="ranks at which the batch is swept; or write nodes above",
    )


class Primary(Table):
    """The comparison that the study is about, named before measuring: its verdict is free of Holm's
    correction.
    """

    curve: Curve = Field(description="curve it is a point of: weak, strong or batch")
    world_size: WorldSize = Field(description="its ranks")
    transport: Transport | None = Field(
        None, description="its transport, where several are compared"
    )
    settings: Settings | None = Field(None, description="its settings, where several are compared")
    batch_per_rank: BatchPerRank | None = Field(
        None, description="its images per step on each rank, where several are compared"
    )


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Study(Table):
    """One study. Construction raises `pydantic.ValidationError` where a rule is broken."""

    name: str = Field(
        description="names the study and its folder: lower-case letters, digits, '-' and '_'"
    )
    question: str = Field(
        min_length=1, max_length=1000, description="one sentence: what the numbers are to answer"
    )
    cells: tuple[str, ...] = Field(
        min_length=1,
        max_length=_MAX_LENGTH,
        description="what is measured: single, and framework/transport; a framework alone: over "
        "the site's",
    )
    reference: str = Field(REFERENCE, description="framework or cell that others are compared with")
    candidate: str = Field(
        CANDIDATE,
        description="framework or cell that is compared with it; frameworks on the same transport",
    )
    settings: Annotated[tuple[Settings, ...], BeforeValidator(_one_or_many)] = Field(
        ("shipped",),
        min_length=1,
        max_length=_MAX_LENGTH,
        description="'shipped', 'matched' or both; never mixed, each is a point of its own",
    )
    scaling: tuple[Curve, ...] = Field(
        min_length=1,
        max_length=_MAX_LENGTH,
        description="curves to measure: weak, strong, batch; one table each",
    )
    world_sizes: tuple[WorldSize, ...] = Field(
        (),
        max_length=_MAX_LENGTH,
        description="ranks at which weak and strong scaling are measured",
    )
    nodes: tuple[WorldSize, ...] = Field(
        (),
        max_length=_MAX_LENGTH,
        description="instead of world_sizes: full nodes of the site, and one rank",
    )
    up_to_nodes: WorldSize | None = Field(
        None, description="the same for 1, 2, 4, ... nodes up to this and the site's limit"
    )
    blocks: Int = Field(
        8,
        ge=1,
        le=MAX_BLOCKS,
        description="planned blocks: randomised passes over all points; below 6 there is no "
        "verdict",
    )
    seed: Int = Field(
        0,
        ge=0,
        lt=2**61,
        description="seed of the order of runs; block b trains every cell with seed + b",
    )
    margin: Float = Field(
        0.02,
        gt=0,
        lt=1,
        description="relative difference below which two cells count as equivalent",
    )
    time_limit_s: Seconds = Field(
        300, description="seconds a run may take, start-up included, before it is ended"
    )
    expected_run_s: Seconds | None = Field(
        None, description="seconds a run may well take: the estimate until one has ended"
    )
    primary: Primary | None = Field(
        None, description="the one comparison that Holm's correction leaves alone; default: none"
    )
    weak: Weak | None = Field(None, description="weak scaling")
    strong: Strong | None = Field(None, description="strong scaling")
    batch: Batch | None = Field(None, description="batch sweep")
    run: dict[str, Any] = Field(
        default_factory=dict,
        description="fields of bench's RunConfig that are the same in every run",
    )

    site: str = Field(
        "",
        max_length=1000,
        description="leave it out: what the site is, filled in when the study is fitted to it",
    )
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="one table [variants.NAME] for each set of fields that goes before those of "
        "[run]",
    )

    @property
    def fields(self) -> list[str]:
        """Every field of RunConfig that the study sets, in [run] or in a variant."""
        return list(
            dict.fromkeys(
                (*self.run, *(name for variant in self.variants.values() for name in variant))
            )
        )

    def fields_of(self, variant: str, alone: bool) -> dict[str, Any]:
        """What the study says of the runs of one variant, '' where it has none; `alone`: of
        `single`, which exchanges nothing.
        """
        values = {**self.run, **self.variants.get(variant, {})}
        unseen = fields_with(Role.EXCHANGE) if alone else ()
        return {name: value for name, value in values.items() if name not in unseen}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The study's comparisons as cells: reference, candidate."""
        return pairs(self.cells, self.reference, self.candidate)

    @property
    def needs_site(self) -> bool:
        """Whether a site must fill something in before the study can be planned."""
        return bool(self.nodes or self.up_to_nodes or set(frameworks()) & set(self.cells))

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rule in (
            _check_names,
            _check_lists,
            _check_cells,
            _check_curves,
            _check_run,
            _check_variants,
        ):
            rule(self)
        return self


def pairs(cells: Sequence[str], reference: str, candidate: str) -> list[tuple[str, str]]:
    """(reference, candidate) for every comparison that `cells` hold.

    Two frameworks meet on each transport that both have; two cells are one comparison.
    """
    if reference not in frameworks():
        found = [(reference, candidate)]
    else:
        found = [
            (cell, cell.replace(reference, candidate, 1))
            for cell in cells
            if cell.partition("/")[0] == reference
        ]
    return [pair for pair in found if set(pair) <= set(cells)]


def near(name: str, valid: Iterable[str]) -> str:
    """'; did you mean ...?' for the closest valid name, else ''."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_names(s: Study) -> None:
    if not re.fullmatch(_NAME, s.name):
        raise ValueError(
            f"name={s.name!r} also names a folder; use lower-case letters, digits, '-' and '_', "
            f"at most 64"
        )
    if not s.question.isprintable():
        raise ValueError(f"question={s.question!r} must be one line; join it into one sentence")


def _check_lists(s: Study) -> None:
    lists: dict[str, tuple[object, ...]] = {
        "cells": s.cells,
        "settings": s.settings,
        "scaling": s.scaling,
        "world_sizes": s.world_sizes,
        "nodes": s.nodes,
        "batch.batch_per_rank": s.batch.batch_per_rank if s.batch else (),
        "batch.world_sizes": s.batch.world_sizes if s.batch else (),
    }
    for name, values in lists.items():
        for value in values:
            if values.count(value) > 1:
                raise ValueError(
                    f"{name} lists {value!r} {values.count(value)} times; once is enough, blocks "
                    f"repeat it"
                )


def _check_cells(s: Study) -> None:
    known = cells() + frameworks()
    named = [("cells", cell) for cell in s.cells]
    named += [("reference", s.reference), ("candidate", s.candidate)]
    for key, cell in named:
        if cell not in known:
            raise ValueError(
                f"{key}: {cell!r} is not one of {', '.join(cells())}{near(cell, known)}"
            )
    kinds = {name in frameworks() for name in (s.reference, s.candidate)}
    if s.reference == s.candidate or len(kinds) > 1:
        raise ValueError(
            f"candidate={s.candidate!r} and reference={s.reference!r} make no pair; name two "
            f"frameworks, or two cells"
        )


def _check_curves(s: Study) -> None:
    for curve in get_args(Curve):
        given = getattr(s, curve) is not None
        if curve in s.scaling and not given:
            raise ValueError(
                f"scaling lists {curve!r} but there is no table [{curve}]; add it, or drop "
                f"{curve!r} from scaling"
            )
        if given and curve not in s.scaling:
            raise ValueError(
                f"[{curve}] has no effect, scaling lacks {curve!r}; add it to scaling, or drop "
                f"the table"
            )
    if s.nodes or s.up_to_nodes:
        _check_nodes(s)
        return
    if s.batch and not s.batch.world_sizes:
        raise ValueError(
            "batch.world_sizes is missing: ranks at which the batch is swept; add it, or nodes at "
            "the top"
        )
    if bool(s.world_sizes) != bool({"weak", "strong"} & set(s.scaling)):
        if s.world_sizes:
            raise ValueError(
                "world_sizes has no effect without weak or strong scaling; write world_sizes in "
                "[batch] only"
            )
        raise ValueError(
            "world_sizes is missing: weak and strong scaling need it; add world_sizes = [1, 2]"
        )


def _check_nodes(s: Study) -> None:
    if s.nodes and s.up_to_nodes:
        raise ValueError(f"up_to_nodes={s.up_to_nodes} has no effect beside nodes; leave one out")
    given = (
        "world_sizes"
        if s.world_sizes
        else "batch.world_sizes"
        if s.batch and s.batch.world_sizes
        else ""
    )
    if given:
        raise ValueError(f"{given} and nodes both say at how many ranks to measure; leave one out")


def _check_run(s: Study) -> None:
    for table, values in {
        "run": s.run,
        **{f"variants.{name}": values for name, values in s.variants.items()},
    }.items():
        for name, value in values.items():
            if name in OWNED_FIELDS:
                raise ValueError(
                    f"{table}.{name}={value!r}: the plan sets {name} of each run; "
                    f"{OWNED_FIELDS[name]}"
                )
            if name not in RunConfig.model_fields:
                valid = RunConfig.model_fields.keys() - OWNED_FIELDS.keys()
                raise ValueError(f"unknown key '{table}.{name}'{near(name, valid)}")
            if not _fits(RunConfig.model_fields[name].annotation, value):
                raise ValueError(
                    f"{table}.{name}={value!r} is of another kind than the field; write it as "
                    f"{_form(name)}"
                )


def _fits(annotation: Any, value: object) -> bool:
    """Whether a value of a file is of a field's kind: true is no number, and "4" and 4.0 are no
    whole one.
    """
    kinds = {annotation, *get_args(annotation)}
    if isinstance(value, bool | int | float):
        return bool(
            kinds
            & (
                {bool}
                if isinstance(value, bool)
                else {int, float}
                if isinstance(value, int)
                else {float}
            )
        )
    return not kinds & {bool, int, float}


def _form(name: str) -> str:
    kinds = {
        RunConfig.model_fields[name].annotation,
        *get_args(RunConfig.model_fields[name].annotation),
    }
    return (
        "true or false"
        if bool in kinds
        else "a whole number"
        if int in kinds
        else "a number"
        if float in kinds
        else "text"
    )


def _default(field: str) -> object:
    return RunConfig.model_fields[field].default


def _check_variants(s: Study) -> None:
    for name in s.variants:
        if not re.fullmatch(_NAME, name):
            raise ValueError(
                f"variants.{name} also names logs; use lower-case letters, digits, '-' and '_', "
                f"at most 64"
            )
    if len(s.variants) > _MAX_LENGTH:
        raise ValueError(f"variants has {len(s.variants)} tables; at most {_MAX_LENGTH}")
    effective: dict[str, str] = {}
    for name, values in s.variants.items():
        same = effective.setdefault(
            repr({f: values.get(f, s.run.get(f, _default(f))) for f in s.fields}), name
        )
        if same != name:
            raise ValueError(
                f"variants.{same} and variants.{name} are the same runs; change a field of one, "
                f"or leave it out"
            )
    if len(s.variants) == 1:
        raise ValueError(
            f"variants has {next(iter(s.variants))!r} alone; add another to compare it with, or "
            f"write its fields in [run]"
        )
    if s.variants and s.primary:
        raise ValueError(
            "primary names one comparison, and every variant has one; leave out primary or variants"
        )
