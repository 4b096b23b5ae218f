"""Which keys of a study go together, beyond what each may hold by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, get_args

from bench.backends.catalogue import cells, frameworks, is_bare, parts
from bench.config import Curve, Role, RunConfig, fields_with, near
from bench.config.fields import NAME, NAME_RULE
from bench.study.limits import MAX_LENGTH

if TYPE_CHECKING:
    from bench.study.definition import Study

# Fields of RunConfig that the plan sets for every run, and where the study says what they become.
OWNED_FIELDS = {
    **dict.fromkeys(fields_with(Role.PLANNED), "leave it out"),
    "backend": "list it in cells",
    "transport": f"list it in cells, as in {cells()[1]!r}",
    "arm": f"list it in cells, as in '{cells()[1]}@again'",
    "variant": "name a table [variants.NAME]",
    "batch_per_rank": "write it in [weak] or [batch]",
    "global_batch": "write it in [strong]",
    "world_size": "write world_sizes at the top",
    "seed": "write seed at the top, or leave it out",
    "study": "it is the study's name",
}


def broken(s: Study) -> Iterator[str]:
    """Yield a sentence for each rule that `s` breaks: the value, the reason and the way out."""
    rules = (_names, _repeats, _cells, _arms, _curves, _sizes, _looks, _run_fields, _variants)
    return chain.from_iterable(rule(s) for rule in rules)


def _names(s: Study) -> Iterator[str]:
    if not re.fullmatch(NAME, s.name):
        yield f"name={s.name!r} also names a folder; {NAME_RULE}"
    if not s.question.isprintable():
        yield f"question={s.question!r} must be one line; join it into one sentence"


def _repeats(s: Study) -> Iterator[str]:
    keys = ("cells", "scaling", "world_sizes", "nodes")
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
    arms = {arm for cell in s.cells if (arm := parts(cell).arm)}
    for arm in (arm for arm in s.arms if arm not in arms):
        yield f"[arms.{arm}] has no effect, no cell ends in '@{arm}'; list one, or drop the table"
    beside = {arm for _, cell in s.beside if s.arms.get(arm := parts(cell).arm)}
    for arm in sorted(arms - s.sides - beside):
        cure = "name it in reference or candidate"
        cure += f", or give it fields of its own in [arms.{arm}] and list its cell without '@{arm}'"
        yield f"cells: '@{arm}' is compared with nothing; {cure}"
    varied = set(chain.from_iterable(s.variants.values()))
    for arm, fields in s.arms.items():
        if "emulate" in fields:
            why = "compute that sleeps is compared with none that works"
            yield f"arms.{arm}.emulate: {why}; set it in [run] or in a variant"
        for name in (name for name in fields if name in varied):
            yield f"arms.{arm}.{name} is set by variants too; leave it out of one of them"


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
    if s.max_blocks < s.blocks:
        yield f"max_blocks={s.max_blocks} is less than blocks={s.blocks}; raise it to {s.blocks}"
    elif s.max_blocks % 2 and s.max_blocks > 1:
        yield f"max_blocks={s.max_blocks} must be even, as blocks are added by two; raise it by one"


_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}  # everything else: text


def _run_fields(s: Study) -> Iterator[str]:
    tables = {"run": s.run, **{f"variants.{name}": fields for name, fields in s.variants.items()}}
    tables |= {f"arms.{name}": fields for name, fields in s.arms.items()}
    for table, values in tables.items():
        for name, value in values.items():
            key = f"{table}.{name}"
            if key == "run.settings":
                yield f"{key}={value!r}: write settings at the top, or in a variant or an arm"
            elif name in OWNED_FIELDS:
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
    actual = next((words for type_, words in _KINDS.items() if isinstance(value, type_)), text)
    return actual == kind or (actual, kind) == (_KINDS[int], _KINDS[float])


def _variants(s: Study) -> Iterator[str]:
    for name in s.variants:
        if not re.fullmatch(NAME, name):
            yield f"variants.{name} also names logs; {NAME_RULE}"
    for name, values in s.variants.items():
        for field in sorted({*fields_with(Role.BOOKKEEPING)} & {*values}):
            why = "changes nothing that is measured, so its runs could not be told apart"
            yield f"variants.{name}.{field} {why}; write it in [run]"
    if len(s.variants) > MAX_LENGTH:
        yield f"variants has {len(s.variants)} tables; at most {MAX_LENGTH}"
    defaults = {name: RunConfig.model_fields[name].default for name in s.fields}
    effective: dict[str, str] = {}
    for name, values in s.variants.items():
        every = defaults | {"settings": s.settings} | s.run | values
        same = effective.setdefault(repr(every), name)
        if same != name:
            yield f"variants.{same} and variants.{name} are the same runs; change a field of one"
    if len(s.variants) == 1:
        name = next(iter(s.variants))
        yield f"variants has {name!r} alone; add another, or write its fields in [run]"
