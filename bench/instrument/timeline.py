"""A timeline: when one training step's forward pass ends and when each gradient is ready."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bench.config import RunConfig, UsageError, explain

_SAME = ("model", "image_size", "precision")  # of a run and the timeline that it follows

PassSeconds = Annotated[float, Field(ge=0, le=86_400)]
PositiveCount = Annotated[int, Field(ge=1, le=2**40)]
ShortText = Annotated[str, Field(min_length=1, max_length=4000)]


class Gradient(BaseModel):
    """A parameter, and the time from the start of backward until its gradient is ready."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ShortText
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    bytes: PositiveCount
    ready_seconds: PassSeconds


class Timeline(BaseModel):
    """Seconds in a training step of one process without a framework: medians of `steps` steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_number: Literal[1] = Field(1, alias="schema")
    source: ShortText = Field(description="where it was recorded, or how it was derived")
    steps: Annotated[int, Field(ge=0)] = Field(description="steps that were timed; 0: none")
    model: ShortText
    image_size: PositiveCount
    precision: ShortText
    classes: PositiveCount
    images: PositiveCount = Field(description="images of the step")
    forward_seconds: PassSeconds
    backward_seconds: PassSeconds
    optimizer_seconds: PassSeconds
    gradients: Annotated[tuple[Gradient, ...], Field(min_length=1)] = Field(
        description="in the order in which they become ready"
    )
    provenance: dict[str, Any] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        ready = [gradient.ready_seconds for gradient in self.gradients]
        if any(later < earlier for earlier, later in pairwise(ready)):
            raise ValueError("the gradients do not stand in the order in which they become ready")
        if ready[-1] > self.backward_seconds:
            raise ValueError("a gradient becomes ready after the end of the backward pass")
        return self

    def to_json(self) -> str:
        """Return the timeline as JSON, with a line for each gradient."""
        head = self.model_dump_json(by_alias=True, exclude={"gradients"}, indent=1)
        rows = ",\n".join(f"  {gradient.model_dump_json()}" for gradient in self.gradients)
        return f'{head.removesuffix("}").rstrip()},\n "gradients": [\n{rows}\n ]\n}}\n'


def read(path: Path) -> tuple[Timeline, str]:
    """Read a timeline; return it and its file's SHA-256. Raises UsageError for an invalid file."""
    setting = f"emulate={str(path)!r}"
    cure = "record one with python -m bench timeline"
    try:
        data = path.read_bytes()
        return Timeline.model_validate_json(data), hashlib.sha256(data).hexdigest()
    except OSError as error:
        raise UsageError(f"{setting} cannot be read: {error.strerror}; {cure}") from None
    except ValidationError as error:
        raise UsageError(f"{setting} is no timeline ({explain(error)[:300]}); {cure}") from None


def read_for(config: RunConfig) -> tuple[Timeline, str]:
    """Return a run's timeline and its file's SHA-256. Raises UsageError if it does not fit."""
    assert config.emulate is not None
    timeline, digest = read(config.emulate)
    for name in _SAME:
        if getattr(config, name) != (recorded := getattr(timeline, name)):
            mismatch = f"{name}={getattr(config, name)}, and emulate={str(config.emulate)!r}"
            flag = f"--{name.replace('_', '-')} {recorded}"
            raise UsageError(f"{mismatch} is of {name}={recorded}; use {flag}, or record another")
    return timeline, digest
