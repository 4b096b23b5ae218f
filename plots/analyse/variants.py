"""Variants: the fields in which cells are measured under several conditions, and their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from bench.config import Role, RunConfig, fields_with
from bench.study.definition import Study
from plots.analyse.comparability import EMULATE, EXCHANGE, OF_MANY, VARIED, Facts, usual

Variant = tuple[tuple[str, str], ...]  # fields and values, as facts write them; () of one alone


def words(variant: Variant) -> tuple[str, ...]:
    """Write each field as 'field=value'."""
    return tuple(f"{name}={value}" for name, value in variant)


def fields_of(study: Study) -> tuple[str, ...]:
    """Name the fields that any variant sets, but for those that keep a run's speed apart."""
    return in_order({*chain.from_iterable(study.variants.values())} - {*fields_with(Role.APART)})


def in_order(fields: Collection[str]) -> tuple[str, ...]:
    """Sort these fields as a variant has them: those of the work first."""
    return tuple(k for k in dict.fromkeys((*VARIED, *RunConfig.model_fields)) if k in fields)


def of_runs(
    cells: Sequence[str], facts: Sequence[Facts], planned: Collection[str] = ()
) -> list[Variant]:
    """Find the variant of each run: fields that the study's variants set (`planned`), and fields of
    the work in which the runs differ all the same.
    """
    names = in_order({*VARIED, *planned})
    same = shared(cells, facts).keys() - {*planned}
    varied = (_meaningful(cell, one, names) for cell, one in zip(cells, facts, strict=True))
    return [tuple(entry(k, v) for k, v in run.items() if k not in same) for run in varied]


def entry(field: str, value: str) -> tuple[str, str]:
    """Write a fact as a variant has it: a timeline without the digest, which no plan knows."""
    return field, value.rsplit(" ", 1)[0] if field == EMULATE else value


def shared(cells: Sequence[str], facts: Sequence[Facts]) -> Facts:
    """Find the fields of the work with one value in all runs for which they mean anything."""
    values: dict[str, set[str]] = defaultdict(set)
    for cell, one in zip(cells, facts, strict=True):
        for k, v in _meaningful(cell, one, VARIED).items():
            values[k].add(v)
    return {k: next(iter(v)) for k, v in values.items() if len(v) == 1}


def _meaningful(cell: str, facts: Facts, names: Iterable[str]) -> Facts:
    unseen = OF_MANY if cell == "single" else ()
    return {k: facts[k] for k in names if k in facts and k not in unseen}


def without(variant: Variant, fields: Collection[str]) -> Variant:
    """Remove these fields from a variant."""
    return tuple((name, value) for name, value in variant if name not in fields)


def beside(cell: str, variant: Variant) -> Variant:
    """Find the variant under which a cell stands beside a distributed one of `variant`: for
    `single`, which exchanges nothing, the fields of many ranks are left out.
    """
    return without(variant, OF_MANY) if cell == "single" else variant


def off(variant: Variant, field: str) -> Variant | None:
    """Switch `field` off in a variant and keep all other fields; None where it is not on."""
    if (field, "on") not in variant:
        return None
    return tuple((name, "off" if name == field else value) for name, value in variant)


def changes(variant: Variant) -> int:
    """Count the fields that are not at their defaults."""
    return sum(value != usual(name) for name, value in variant)


def changes_exchange(variant: Variant) -> bool:
    """Check whether a variant exchanges differently from a plain run, or not at all."""
    return any(name in EXCHANGE and value != usual(name) for name, value in variant)
