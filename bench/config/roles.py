"""What a field of a run is to a study, declared at the field: no list of fields is kept."""

from __future__ import annotations

from enum import Flag, auto
from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo


class Role(Flag):
    """What a field is to a study: one of the first five, and whatever else is true of it."""

    CELL = auto()  # names what is compared
    POINT = auto()  # a size at which it is compared
    WORK = auto()  # what is computed: equal in all runs, or varied by the study
    METHOD = auto()  # how it is measured, or where its data lie: makes no other work
    BOOKKEEPING = auto()  # no effect on what is measured

    KNOB = auto()  # of a framework: cannot agree between two
    EXCHANGE = auto()  # about the exchange: means nothing to one process alone
    DISCLOSED = auto()  # a report names it wherever it is not the default
    PLANNED = auto()  # set by the plan, never by a study's [run]
    PER_BLOCK = auto()  # equal inside a block, may differ between blocks
    PER_RUN = auto()  # differs between two runs of one point
    FOLDER = auto()  # may have another name on each node


def field(role: Role, default: Any, description: str, **limits: Any) -> Any:
    """A field of a pydantic model that carries its role; `limits` as for pydantic's own."""
    info: FieldInfo = Field(default, description=description, **limits)
    info.metadata.append(role)
    return info
