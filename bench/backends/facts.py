"""What is stated of a backend without loading it: the form of a row of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a cell is drawn, the same in every figure."""

    colour: str
    marker: str
    marker_size: float
    line_width: float


@dataclass(frozen=True, kw_only=True)
class BackendFacts:
    """One backend. Field names are RunConfig's; environment variables are given by prefix."""

    name: str  # on the command line, in a log, and before the '/' of a cell
    label: str  # in a title
    short_label: str  # in a sentence
    implementation: str  # module:Class, a bench.backends.protocol.Backend
    server: str = ""  # module:function, what a server process does; none where all ranks train
    collectives: str = (
        ""  # module:Class, a bench.backends.collectives.Collectives; over NCCL, this or `nccl_of`
    )
    transports: tuple[str, ...] = ()  # none: one process, which exchanges nothing
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # that settings take
    cuts_freely: bool = False  # buckets of any size, also without overlap, down to one parameter
    # whether a rank holds a part of each parameter and gradient, or hooks of the forward pass
    # exchange: then no rank computes anything alone
    divides: bool = False
    # what ranks apply where it is not the mean of their gradients, in words: another optimisation,
    # so parity is not claimed, and no verdict speaks of it; and the backend of the same framework
    # that takes the mean
    applies: str = ""
    beside: str = ""
    carries_complex: bool = False  # whether parameters may be complex
    powers_of_two: bool = False  # whether it can have no other numbers of ranks
    # (field, value) -> why it cannot do that, and the way out; of `...`: any but the default
    refused: Mapping[tuple[str, object], str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()  # whose versions a log records
    env_prefixes: tuple[str, ...] = ()  # variables that this backend alone reads
    env_harmless: tuple[str, ...] = ()  # of these, the ones that change nothing measured
    env_of_launch: tuple[str, ...] = ()  # of these, a rank's number and address: not recorded
    interface_variable: str | None = None  # names the network interface of its Gloo
    gloo_of: str = ""  # the package that its Gloo is part of
    nccl_of: str = ""  # the backend whose NCCL it uses, where that is not its own
    nccl_inside: str = ""  # begins the name of its library that may have an NCCL linked into it
    code_folders: tuple[str, ...] = ()  # of the library, where a rank waits for others
    cycles: bool = False  # ready gradients wait for a tick; else hooks start fixed buckets
    on_one_rank: str = ""  # what it does where nothing is exchanged, after its name
    looks: Mapping[str, Look] = field(default_factory=dict)  # by transport, 'none' without one
    filled_marker: bool = True
