"""Study: the question, what is compared, at which sizes and how often, all before measuring."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from bench.backends.catalogue import CANDIDATE, REFERENCE, is_bare, parts
from bench.config import Curve, Role, Settings, Transport, fields_with
from bench.study import rules
from bench.study.limits import MAX_BLOCKS, MAX_LENGTH, MAX_SECONDS, MIN_BLOCKS
from bench.study.looks import schedule

# What may be corrected after the first run; everything else is fixed before it.
MAY_CHANGE = {"expected_run_s", "time_limit_s", "site"}
_EARLIER_BLOCKS = 8  # the default of earlier versions, which their digests leave out

Int = Annotated[int, Strict()]  # true is no number, "4" and 4.0 are none either
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
BatchPerRank = Annotated[Int, Field(ge=1, le=2**24)]
WorldSize = Annotated[Int, Field(ge=1, le=2**20)]
WholeSeconds = Annotated[Int, Field(ge=1, le=MAX_SECONDS)]
_WorldSizes = Annotated[tuple[WorldSize, ...], Field(max_length=MAX_LENGTH)]
_FilledList = Field(min_length=1, max_length=MAX_LENGTH)


class StrictTable(BaseModel):
    """A table of a file: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Broken(ValueError):
    """A broken rule between keys; `key` is the one to change, dotted, to find its line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Weak(StrictTable):
    """Weak scaling: every rank keeps its batch."""

    batch_per_rank: BatchPerRank = Field(description="images per step on each rank, at every size")


class Strong(StrictTable):
    """Strong scaling: the ranks share one batch."""

    global_batch: Int = Field(ge=1, le=2**40, description="images per step over all ranks")


class BatchSweep(StrictTable):
    """A sweep of the batch at fixed world sizes."""

    batch_per_rank: Annotated[tuple[BatchPerRank, ...], _FilledList] = Field(
        description="images per step on each rank, one point each"
    )
    world_sizes: _WorldSizes = Field((), description="ranks of the sweep; or write nodes above")


class Primary(StrictTable):
    """The comparison that the study is about: at 5 % by itself, all others at 5 % together."""

    curve: Curve = Field(description="curve it is a point of: weak, strong or batch")
    world_size: WorldSize = Field(description="its ranks")
    transport: Transport | None = Field(None, description="its transport, of several")
    variant: str | None = Field(None, description="its variant, of several")
    batch_per_rank: BatchPerRank | None = Field(None, description="its batch per rank, of several")


def _one(value: object) -> object:
    """Take the settings out of the list in which a file of an earlier version has them."""
    if isinstance(value, list | tuple) and len(value) == 1:
        return value[0]
    if isinstance(value, list | tuple):
        raise ValueError("name one; for several make tables [variants.NAME], each with its own")
    return value


class Study(StrictTable):
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
    settings: Annotated[Settings, BeforeValidator(_one)] = Field(
        "shipped", description="of all runs that no variant or arm gives others: shipped, matched"
    )
    scaling: Annotated[tuple[Curve, ...], _FilledList] = Field(
        description="curves to measure: weak, strong, batch; one table each"
    )
    world_sizes: _WorldSizes = Field((), description="ranks of weak and strong scaling")
    nodes: _WorldSizes = Field((), description="instead: full nodes of the site, and one rank")
    up_to_nodes: WorldSize | None = Field(None, description="instead: 1, 2, 4, ... nodes up to it")
    blocks: Int = Field(
        MIN_BLOCKS, ge=1, le=MAX_BLOCKS, description="passes over all points; even, or 1"
    )
    max_blocks: Int = Field(
        20,
        ge=1,
        le=MAX_BLOCKS,
        description="passes at most: two more at a time until it is settled",
    )
    turns: Bool = Field(
        True, description="worlds that are compared live at once and take turns; else one by one"
    )
    seed: Int = Field(
        0, ge=0, lt=2**61, description="of order and training; left out, the first run draws it"
    )
    margin: Float = Field(0.02, gt=0, lt=1, description="relative difference that counts as none")
    time_limit_s: WholeSeconds = Field(300, description="seconds after which a run is ended")
    expected_run_s: WholeSeconds | None = Field(None, description="estimate until a run has ended")
    primary: Primary | None = Field(None, description="decided at 5 % by itself")
    weak: Weak | None = Field(None, description="weak scaling")
    strong: Strong | None = Field(None, description="strong scaling")
    batch: BatchSweep | None = Field(None, description="batch sweep")
    run: dict[str, Any] = Field({}, description="fields of RunConfig, the same in every run")
    site: str = Field("", max_length=1000, description="leave it out: filled in for a site")
    variants: dict[str, dict[str, Any]] = Field({}, description="by name: fields, before [run]'s")
    arms: dict[str, dict[str, Any]] = Field({}, description="by name: fields of that arm alone")

    @property
    def fields(self) -> list[str]:
        """Every field of RunConfig that the study sets: settings, in [run], a variant or an arm."""
        settings = {"settings"} if self.settings != "shipped" else ()
        tables = (settings, self.run, *self.variants.values(), *self.arms.values())
        return list(dict.fromkeys(chain.from_iterable(tables)))

    def fields_of(self, variant: str, alone: bool) -> dict[str, Any]:
        """Gather what the study says of a variant's runs ('' without any); `alone`: of `single`."""
        values = {"settings": self.settings, **self.run, **self.variants.get(variant, {})}
        unseen = (*fields_with(Role.EXCHANGE), *fields_with(Role.KNOB)) if alone else ()
        return {name: value for name, value in values.items() if name not in unseen}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The study's comparisons as cells: reference, candidate."""
        return pairs(self.cells, self.reference, self.candidate)

    @property
    def sides(self) -> set[str]:
        """The arms of the study's one comparison, '' of a side without."""
        return {parts(side).arm for side in (self.reference, self.candidate)}

    @property
    def beside(self) -> list[tuple[str, str]]:
        """Arms that stand beside the comparison: the cell that each is an arm of, and the arm."""
        compared = {"", *self.sides}
        arms = [cell for cell in self.cells if parts(cell).arm not in compared]
        pairs = [(parts(cell)._replace(arm="").name, cell) for cell in arms]
        return [(plain, arm) for plain, arm in pairs if plain in self.cells]

    @property
    def partners(self) -> list[tuple[str, str]]:
        """What is compared, and what stands beside it."""
        return [*self.pairs, *self.beside]

    @property
    def sha256(self) -> str:
        """Of all that is fixed before the first run; a default that is written counts as none."""
        return self._digest({"blocks": self.blocks, "max_blocks": self.max_blocks})

    @property
    def earlier_sha256(self) -> str:
        """The same in logs of versions without `max_blocks`: one look, at the planned blocks."""
        return self._digest({} if self.blocks == _EARLIER_BLOCKS else {"blocks": self.blocks})

    def _digest(self, size: dict[str, int]) -> str:
        left_out = {*MAY_CHANGE, "blocks", "max_blocks"}
        fixed = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True) | size
        if "settings" in fixed:  # a list, as in earlier versions
            fixed["settings"] = [fixed["settings"]]
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()

    @property
    def looks(self) -> tuple[int, ...]:
        """Blocks at which a verdict is read; none where there never are enough."""
        return schedule(self.blocks, self.max_blocks)

    @property
    def needs_site(self) -> bool:
        """Whether a site must fill something in before the study can be planned."""
        return bool(self.nodes or self.up_to_nodes or any(map(is_bare, self.cells)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if broken := next(rules.broken(self), None):
            raise ValueError(broken)
        return self


def pairs(cells: Sequence[str], reference: str, candidate: str) -> list[tuple[str, str]]:
    """List (reference, candidate) for every comparison that `cells` hold.

    Two frameworks meet on each transport that both have; two cells are one comparison.
    """
    compared = [(reference, candidate)]
    if is_bare(reference):
        other = parts(candidate)
        split = [(cell, parts(cell)) for cell in cells]
        compared = [
            (cell, other._replace(transport=of.transport).name)
            for cell, of in split
            if of._replace(transport="").name == reference
        ]
    return [pair for pair in compared if set(pair) <= set(cells)]
