"""Study: the question, what is compared, at which sizes and how often, all before measuring."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from bench.backends.catalogue import CANDIDATE, REFERENCE, cells, frameworks, parts
from bench.config import Curve, Role, RunConfig, Settings, Transport, fields_with, near
from bench.config.fields import NAME, NAME_RULE

# Fields of RunConfig that the plan sets for every run, and where the study says what they become.
OWNED_FIELDS = {
    **dict.fromkeys(fields_with(Role.PLANNED), "leave it out"),
    "backend": "list it in cells",
    "transport": f"list it in cells, as in {cells()[1]!r}",
    "arm": f"list it in cells, as in '{cells()[1]}@again'",
    "settings": "write settings at the top",
    "batch_per_rank": "write it in [weak] or [batch]",
    "global_batch": "write it in [strong]",
    "world_size": "write world_sizes at the top",
    "seed": "write seed at the top, or leave it out",
    "study": "it is the study's name",
}

# What may be corrected after the first run; everything else is fixed before it.
MAY_CHANGE = {"expected_run_s", "time_limit_s", "site"}

MIN_BLOCKS = 6  # below six pairs an exact sign flip cannot reach 5 %: the smallest p is 2 / 2^n
MAX_BLOCKS = 10_000
MAX_RUNS = 100_000  # of one study: as many as a command still plans in seconds
MAX_SECONDS = 30 * 86_400
_MAX_LENGTH = 1000  # of a list

Int = Annotated[int, Strict()]  # true is no number, "4" and 4.0 are none either
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
BatchPerRank = Annotated[Int, Field(ge=1, le=2**24)]
WorldSize = Annotated[Int, Field(ge=1, le=2**20)]
Seconds = Annotated[Int, Field(ge=1, le=MAX_SECONDS)]
_WorldSizes = Annotated[tuple[WorldSize, ...], Field(max_length=_MAX_LENGTH)]
_FilledList = Field(min_length=1, max_length=_MAX_LENGTH)


class Table(BaseModel):
    """A table of a file a person writes: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Broken(ValueError):
    """A broken rule between keys; `key` is the one to change, dotted, to find its line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Weak(Table):
    """Weak scaling: every rank keeps its batch."""

    batch_per_rank: BatchPerRank = Field(description="images per step on each rank, at every size")


class Strong(Table):
    """Strong scaling: the ranks share one batch."""

    global_batch: Int = Field(ge=1, le=2**40, description="images per step over all ranks")


class Batch(Table):
    """A sweep of the batch at fixed world sizes."""

    batch_per_rank: Annotated[tuple[BatchPerRank, ...], _FilledList] = Field(
        description="images per step on each rank, one point each"
    )
    world_sizes: _WorldSizes = Field((), description="ranks of the sweep; or write nodes above")


class Primary(Table):
    """The comparison that the study is about, named beforehand: half of Holm's error is its own."""

    curve: Curve = Field(description="curve it is a point of: weak, strong or batch")
    world_size: WorldSize = Field(description="its ranks")
    transport: Transport | None = Field(None, description="its transport, of several")
    settings: Settings | None = Field(None, description="its settings, of several")
    batch_per_rank: BatchPerRank | None = Field(None, description="its batch per rank, of several")


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Study(Table):
    """One study. Construction raises `pydantic.ValidationError` where a rule is broken."""

    name: str = Field(description="names the study and its folder: lower case, digits, '-', '_'")
    question: str = Field(
        min_length=1, max_length=1000, description="one sentence: what the numbers are to answer"
    )
    cells: Annotated[tuple[str, ...], _FilledList] = Field(
        description="what is measured: single, framework/transport, framework (on the site's); "
        "'@name' behind one lists it again, as an arm of that name"
    )
    reference: str = Field(REFERENCE, description="framework or cell compared with")
    candidate: str = Field(CANDIDATE, description="framework or cell that is compared with it")
    settings: Annotated[tuple[Settings, ...], BeforeValidator(_one_or_many), _FilledList] = Field(
        ("shipped",), description="'shipped', 'matched' or both, each a point of its own"
    )
    scaling: Annotated[tuple[Curve, ...], _FilledList] = Field(
        description="curves to measure: weak, strong, batch; one table each"
    )
    world_sizes: _WorldSizes = Field((), description="ranks of weak and strong scaling")
    nodes: _WorldSizes = Field((), description="instead: full nodes of the site, and one rank")
    up_to_nodes: WorldSize | None = Field(None, description="instead: 1, 2, 4, ... nodes up to it")
    blocks: Int = Field(8, ge=1, le=MAX_BLOCKS, description="passes over all points; even, or 1")
    looks: Annotated[tuple[Int, ...], Field(max_length=_MAX_LENGTH)] = Field(
        (), description="blocks at which a verdict is read, as [6, 8, 12]; default: at blocks alone"
    )
    seed: Int = Field(
        0, ge=0, lt=2**61, description="of order and training; left out, the first run draws it"
    )
    margin: Float = Field(0.02, gt=0, lt=1, description="relative difference that counts as none")
    time_limit_s: Seconds = Field(300, description="seconds after which a run is ended")
    expected_run_s: Seconds | None = Field(None, description="estimate until a run has ended")
    primary: Primary | None = Field(None, description="the comparison with half of the error")
    weak: Weak | None = Field(None, description="weak scaling")
    strong: Strong | None = Field(None, description="strong scaling")
    batch: Batch | None = Field(None, description="batch sweep")
    run: dict[str, Any] = Field({}, description="fields of RunConfig, the same in every run")
    site: str = Field("", max_length=1000, description="leave it out: filled in for a site")
    variants: dict[str, dict[str, Any]] = Field({}, description="by name: fields, before [run]'s")
    arms: dict[str, dict[str, Any]] = Field({}, description="by name: fields of that arm alone")

    @property
    def fields(self) -> list[str]:
        """Every field of RunConfig that the study sets: in [run], a variant or an arm."""
        tables = (self.run, *self.variants.values(), *self.arms.values())
        return list(dict.fromkeys(chain.from_iterable(tables)))

    def fields_of(self, variant: str, alone: bool) -> dict[str, Any]:
        """What the study says of a variant's runs ('' without any); `alone`: of `single`."""
        values = {**self.run, **self.variants.get(variant, {})}
        unseen = fields_with(Role.EXCHANGE) if alone else ()
        return {name: value for name, value in values.items() if name not in unseen}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The study's comparisons as cells: reference, candidate."""
        return pairs(self.cells, self.reference, self.candidate)

    @property
    def beside(self) -> list[tuple[str, str]]:
        """Arms that stand beside the comparison: the cell that each is an arm of, and the arm."""
        compared = {"", *_sides(self)}
        arms = [cell for cell in self.cells if parts(cell).arm not in compared]
        found = [(parts(cell)._replace(arm="").name, cell) for cell in arms]
        return [(plain, arm) for plain, arm in found if plain in self.cells]

    @property
    def sha256(self) -> str:
        """Of all that is fixed before the first run; a default that is written counts as none."""
        fixed = self.model_dump(mode="json", exclude=MAY_CHANGE, exclude_defaults=True)
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()

    @property
    def planned_looks(self) -> tuple[int, ...]:
        """Blocks at which a verdict is to be read; none where none can be, or none is recorded."""
        return tuple(sorted({n for n in self.looks or (self.blocks,) if n >= MIN_BLOCKS}))

    @property
    def needs_site(self) -> bool:
        """Whether a site must fill something in before the study can be planned."""
        return bool(self.nodes or self.up_to_nodes or any(map(is_bare, self.cells)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules = (_names, _repeats, _cells, _arms, _curves, _sizes, _looks, _run_fields, _variants)
        if broken := next(chain.from_iterable(rule(self) for rule in rules), None):
            raise ValueError(broken)
        return self


def pairs(cells: Sequence[str], reference: str, candidate: str) -> list[tuple[str, str]]:
    """(reference, candidate) for every comparison that `cells` hold.

    Two frameworks meet on each transport that both have; two cells are one comparison.
    """
    found = [(reference, candidate)]
    if is_bare(reference):
        other = parts(candidate)
        split = [(cell, parts(cell)) for cell in cells]
        found = [
            (cell, other._replace(transport=of.transport).name)
            for cell, of in split
            if of._replace(transport="").name == reference
        ]
    return [pair for pair in found if set(pair) <= set(cells)]


def is_bare(cell: str) -> bool:
    """Whether it is a framework whose transport is not said."""
    return cell.partition("@")[0] in frameworks()


# Each rule yields a sentence for what a study breaks: the value, the reason and the way out.


def _names(s: Study) -> Iterator[str]:
    if not re.fullmatch(NAME, s.name):
        yield f"name={s.name!r} also names a folder; {NAME_RULE}"
    if not s.question.isprintable():
        yield f"question={s.question!r} must be one line; join it into one sentence"


def _repeats(s: Study) -> Iterator[str]:
    keys = ("cells", "settings", "scaling", "world_sizes", "nodes")
    lists = {key: getattr(s, key) for key in keys}
    lists |= {f"batch.{key}": values for key, values in (s.batch or ())}
    for name, values in lists.items():
        for value, times in Counter(values).items():
            if times > 1:
                yield f"{name} lists {value!r} {times} times; once is enough, blocks repeat it"


def _cells(s: Study) -> Iterator[str]:
    known = cells() + frameworks()
    named = [("reference", s.reference), ("candidate", s.candidate)]
    for key, cell in [*(("cells", cell) for cell in s.cells), *named]:
        place, at, arm = cell.partition("@")
        if place not in known:
            yield f"{key}: {place!r} is not one of {', '.join(cells())}{near(place, known)}"
        if at and not re.fullmatch(NAME, arm):
            yield f"{key}: {cell!r} ends in the name of an arm, which also names logs; {NAME_RULE}"
        if at and place == "single":
            yield f"{key}: {cell!r}: the baseline has no arms; write 'single'"
    if s.reference == s.candidate or is_bare(s.reference) != is_bare(s.candidate):
        pair = f"candidate={s.candidate!r} and reference={s.reference!r}"
        yield f"{pair} make no pair; name two frameworks, or two cells"


def _arms(s: Study) -> Iterator[str]:
    there = {arm for cell in s.cells if (arm := parts(cell).arm)}
    for arm in (arm for arm in s.arms if arm not in there):
        yield f"[arms.{arm}] has no effect, no cell ends in '@{arm}'; list one, or drop the table"
    beside = {arm for _, cell in s.beside if s.arms.get(arm := parts(cell).arm)}
    for arm in sorted(there - _sides(s) - beside):
        cure = "name it in reference or candidate"
        cure += f", or give it fields of its own in [arms.{arm}] and list its cell without '@{arm}'"
        yield f"cells: '@{arm}' is compared with nothing; {cure}"
    varied = set(chain.from_iterable(s.variants.values()))
    for arm, fields in s.arms.items():
        for name in (name for name in fields if name in varied):
            yield f"arms.{arm}.{name} is set by variants too; leave it out of one of them"


def _sides(s: Study) -> set[str]:
    """The arms of the study's one comparison, '' of a side without."""
    return {parts(side).arm for side in (s.reference, s.candidate)}


def _curves(s: Study) -> Iterator[str]:
    for curve in get_args(Curve):
        given, listed = getattr(s, curve) is not None, curve in s.scaling
        if listed and not given:
            yield f"scaling lists {curve!r} without a table [{curve}]; add it, or drop {curve!r}"
        if given and not listed:
            yield f"[{curve}] has no effect, scaling lacks {curve!r}; add it, or drop the table"


def _sizes(s: Study) -> Iterator[str]:
    of_batch = s.batch.world_sizes if s.batch else ()
    if s.nodes or s.up_to_nodes:
        if s.nodes and s.up_to_nodes:
            yield f"up_to_nodes={s.up_to_nodes} has no effect beside nodes; leave one out"
        if s.world_sizes or of_batch:
            given = "world_sizes" if s.world_sizes else "batch.world_sizes"
            yield f"{given} and nodes both say at how many ranks to measure; leave one out"
        return
    if s.batch and not of_batch:
        yield "batch.world_sizes is missing: ranks of the sweep; add it, or nodes at the top"
    needed = not {"weak", "strong"}.isdisjoint(s.scaling)
    if s.world_sizes and not needed:
        yield "world_sizes has no effect without weak or strong scaling; write it in [batch] only"
    if needed and not s.world_sizes:
        yield "world_sizes is missing: weak and strong scaling need it; add world_sizes = [1, 2]"


def _looks(s: Study) -> Iterator[str]:
    looks = list(s.looks)
    if looks != sorted(set(looks)) or any(
        n % 2 or not MIN_BLOCKS <= n <= MAX_BLOCKS for n in looks
    ):
        rule = f"even numbers that rise, from {MIN_BLOCKS} to {MAX_BLOCKS} blocks"
        yield f"looks={looks} must be {rule}; write looks = [6, 8, 12]"
    elif looks and s.blocks not in looks:
        yield f"blocks={s.blocks} is no look of looks={looks}; choose one of them, the first one"


_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}  # everything else: text


def _run_fields(s: Study) -> Iterator[str]:
    tables = {"run": s.run, **{f"variants.{name}": fields for name, fields in s.variants.items()}}
    tables |= {f"arms.{name}": fields for name, fields in s.arms.items()}
    for table, values in tables.items():
        for name, value in values.items():
            key = f"{table}.{name}"
            if name in OWNED_FIELDS:
                yield f"{key}={value!r}: the plan sets {name} of each run; {OWNED_FIELDS[name]}"
            elif name not in RunConfig.model_fields:
                valid = RunConfig.model_fields.keys() - OWNED_FIELDS.keys()
                yield f"unknown key '{key}'{near(name, valid)}"
            elif not _fits(value, kind := _kind(name)):
                yield f"{key}={value!r} is of another kind than the field; write it as {kind}"


def _kind(name: str) -> str:
    annotation = RunConfig.model_fields[name].annotation
    types = (annotation, *get_args(annotation))
    return next((words for kind, words in _KINDS.items() if kind in types), "text")


def _fits(value: object, kind: str) -> bool:
    text = "text" if isinstance(value, str) else ""  # neither is a table, a list or a date
    found = next((words for kind, words in _KINDS.items() if isinstance(value, kind)), text)
    return found == kind or (found, kind) == (_KINDS[int], _KINDS[float])


def _variants(s: Study) -> Iterator[str]:
    for name in s.variants:
        if not re.fullmatch(NAME, name):
            yield f"variants.{name} also names logs; {NAME_RULE}"
    if len(s.variants) > _MAX_LENGTH:
        yield f"variants has {len(s.variants)} tables; at most {_MAX_LENGTH}"
    defaults = {name: RunConfig.model_fields[name].default for name in s.fields}
    effective: dict[str, str] = {}
    for name, values in s.variants.items():
        same = effective.setdefault(repr(defaults | s.run | values), name)
        if same != name:
            yield f"variants.{same} and variants.{name} are the same runs; change a field of one"
    if len(s.variants) == 1:
        name = next(iter(s.variants))
        yield f"variants has {name!r} alone; add another, or write its fields in [run]"
    if s.variants and s.primary:
        yield "primary names one comparison, and every variant has one; leave out one of them"
