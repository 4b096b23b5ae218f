"""The types of the catalogue's entries: facts of a backend that are known without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Look:
    """The colour, marker and line of a backend over a transport, the same in every figure."""

    colour: str
    marker: str
    marker_size: float
    line_width: float


@dataclass(frozen=True, kw_only=True)
class BackendFacts:
    """A row of the catalogue. Its backend takes the options in `knobs`, no values in `refused`."""

    name: str  # on the command line, in a log, and before the '/' of a cell
    label: str  # in a title
    short_label: str  # in a sentence
    implementation: str  # module:Class, a bench.backends.protocol.Backend
    all_reduces: bool = False  # whether its all-reduce can be timed by itself; for NCCL it must
    transports: tuple[str, ...] = ()  # none: one process, which exchanges nothing
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # that settings take
    cuts_freely: bool = False  # buckets of any size, also without overlap, down to one parameter
    carries_complex: bool = False  # whether parameters may be complex
    # (field, value) -> why it cannot do that, and the way out; of `...`: any but the default
    refused: Mapping[tuple[str, object], str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()  # whose versions a log records
    env_prefixes: tuple[str, ...] = ()  # variables that this backend alone reads
    env_harmless: tuple[str, ...] = ()  # of these, the ones that change nothing measured
    env_of_launch: tuple[str, ...] = ()  # of these, a rank's number and address: not recorded
    interface_variable: str | None = None  # names the network interface of its Gloo
    gloo_of: str = ""  # the package that its Gloo is part of
    nccl_inside: str = ""  # begins the name of its library that may have an NCCL linked into it
    on_one_rank: str = ""  # what it does where nothing is exchanged, after its name
    looks: Mapping[str, Look] = field(default_factory=dict)  # by transport, 'none' without one
    filled_marker: bool = True
