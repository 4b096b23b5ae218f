"""The table of all backends, with the facts of each that are known without loading it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.backends.facts import BackendFacts, Look

USERS = "hvd_ddp_backend_"  # begins the name of a user's module with a backend
TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL"}  # as people write them


class Cell(NamedTuple):
    """A subject of comparison: a backend and its transport ('' if none is named)."""

    backend: str
    transport: str = ""  # of `single`, or where a study leaves it to the site

    @property
    def name(self) -> str:
        """The cell's name, such as 'ddp/mpi', or 'ddp' without a transport."""
        return f"{self.backend}/{self.transport}" if self.transport else self.backend


def _horovod_variables(*names: str) -> tuple[str, ...]:
    return tuple("HOROVOD_" + name for name in names)


_PLACES = ("RANK", "SIZE", "LOCAL_", "CROSS_", "HOSTNAME")
# Colours: Okabe & Ito (2008), safe for colour-blind readers. Equal cells are drawn over one
# another, so the first is larger and open: DDP's markers surround Horovod's, its lines are wider.
_ROWS = (
    BackendFacts(
        name="single",
        carries_complex=True,
        label="single process",
        short_label="single",
        implementation="bench.backends.protocol:Backend",
        looks={"none": Look(colour="#000000", marker="+", marker_size=13.0, line_width=1.0)},
    ),
    BackendFacts(
        name="ddp",
        carries_complex=True,
        label="PyTorch DDP",
        short_label="DDP",
        implementation="bench.backends.ddp:Ddp",
        all_reduces=True,
        transports=("mpi", "gloo", "nccl"),
        knobs={"matched": ("bucket_mib",), "tuned": ("bucket_mib",)},
        packages=("torch",),
        env_prefixes=("TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"),
        interface_variable="GLOO_SOCKET_IFNAME",
        gloo_of="torch",
        on_one_rank="copies gradients through its buckets all the same",
        looks={
            "mpi": Look(colour="#0072B2", marker="o", marker_size=8.0, line_width=2.0),
            "gloo": Look(colour="#56B4E9", marker="s", marker_size=10.5, line_width=2.5),
            "nccl": Look(colour="#009E73", marker="v", marker_size=12.0, line_width=2.9),
        },
        filled_marker=False,
    ),
    BackendFacts(
        name="horovod",
        label="Horovod",
        short_label="Horovod",
        implementation="bench.backends.hvd:Horovod",
        all_reduces=True,
        transports=("mpi", "gloo", "nccl"),
        knobs={"matched": ("bucket_mib",)},
        packages=("horovod",),
        env_prefixes=_horovod_variables(""),
        env_harmless=_horovod_variables(
            *(*_PLACES, "GLOO_", "CONTROLLER", "CPU_OPERATIONS", "CXX", "WITH", "BUILD_"),
            *("CMAKE", "GPU", "CUDA_HOME", "NCCL_HOME", "NCCL_LINK"),
        ),
        env_of_launch=_horovod_variables(*_PLACES, "GLOO_RENDEZVOUS_"),
        interface_variable="HOROVOD_GLOO_IFACE",
        gloo_of="horovod",
        nccl_inside="mpi_lib",
        on_one_rank="registers no hooks",
        looks={
            "mpi": Look(colour="#D55E00", marker="^", marker_size=4.5, line_width=1.2),
            "gloo": Look(colour="#E69F00", marker="D", marker_size=5.5, line_width=1.6),
            "nccl": Look(colour="#CC79A7", marker="X", marker_size=7.0, line_width=1.8),
        },
    ),
    BackendFacts(
        name="handwritten",
        label="Hand-written data parallelism",
        short_label="hand-written",
        implementation="bench.backends.handwritten:Handwritten",
        transports=("mpi",),
        knobs=dict.fromkeys(("shipped", "matched", "tuned"), ("bucket_mib",)),
        cuts_freely=True,
        packages=("mpi4py",),
        looks={"mpi": Look(colour="#117733", marker="*", marker_size=9.0, line_width=1.5)},
    ),
    BackendFacts(
        name="ps",
        label="Parameter server",
        short_label="parameter server",
        implementation="bench.backends.parameter_server:ParameterServer",
        transports=("mpi",),
        knobs=dict.fromkeys(("shipped", "matched", "tuned"), ("bucket_mib", "mode")),
        cuts_freely=True,
        packages=("mpi4py",),
        looks={"mpi": Look(colour="#882255", marker="P", marker_size=7.5, line_width=1.5)},
    ),
)
CATALOGUE: dict[str, BackendFacts] = {row.name: row for row in _ROWS}


def _add(module: str) -> None:
    """Add a user's module to CATALOGUE; if that fails, print why and exit with status 2."""
    name = module.removeprefix(USERS)
    try:
        row = importlib.import_module(module).FACTS
        if not isinstance(row, BackendFacts) or row.name != name:
            raise ValueError(f"FACTS must be BackendFacts with name={name!r}")
        if name in CATALOGUE:
            raise ValueError(f"a backend {name} is in the catalogue already")
        place = row.implementation
        if not place.startswith((f"{module}.", f"{module}:")):  # no log would have its files
            raise ValueError(f"{place} is outside of it; make it a package with that inside")
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        cure = "mend it, or take it off Python's path"
        print(f"error: {module} does not load ({line}); {cure}", file=sys.stderr)
        sys.exit(2)
    CATALOGUE[name] = row


for _name in sorted({m.name for m in pkgutil.iter_modules() if m.name.startswith(USERS)}):
    _add(_name)

# Libraries bundled with a framework: two compared runs differ in them by design, and the version of
# the package that contains them is compared anyway.
BUNDLED = ("gloo",)
REFERENCE, CANDIDATE = "ddp", "horovod"  # what a study compares unless it says otherwise


def frameworks() -> tuple[str, ...]:
    """Return the names of the backends that exchange gradients."""
    return tuple(name for name, facts in CATALOGUE.items() if facts.transports)


def engines() -> tuple[str, ...]:
    """Return the names of the backends whose own all-reduce can be timed."""
    return tuple(name for name, facts in CATALOGUE.items() if facts.all_reduces)


def cells() -> tuple[str, ...]:
    """Return the names of all cells, such as 'single' and 'ddp/mpi'."""
    names: list[str] = []
    for name, row in CATALOGUE.items():
        names += [f"{name}/{transport}" for transport in row.transports] or [name]
    return tuple(names)


def parts(cell: str) -> Cell:
    """Split a cell such as 'ddp/mpi', or a backend's name alone, into its parts."""
    backend, _, transport = cell.partition("/")
    return Cell(backend, transport)


def facts(cell: str) -> BackendFacts:
    """Return the facts of the backend that `cell` names. Raises KeyError for an unknown backend."""
    return CATALOGUE[parts(cell).backend]


def takers(knob: str) -> str:
    """Say which backends, with which --settings, take option `knob`: 'DDP (matched or tuned)'."""
    return ", ".join(
        f"{row.short_label} ({' or '.join(settings)})"
        for row in CATALOGUE.values()
        if (settings := [name for name, knobs in row.knobs.items() if knob in knobs])
    )


def interface_variables() -> tuple[str, ...]:
    """List the environment variables that choose Gloo's interface, such as GLOO_SOCKET_IFNAME."""
    names = (v for row in CATALOGUE.values() if (v := row.interface_variable))
    return tuple(dict.fromkeys(names))  # several of torch's read one


def gloo(cell: str, versions: Mapping[str, str]) -> str:
    """Return 'bundled with PACKAGE VERSION', from `versions`, if `cell` is over Gloo; '' if not."""
    package = facts(cell).gloo_of if parts(cell).transport == "gloo" else ""
    return f"bundled with {package} {versions.get(package, '(unknown)')}" if package else ""


def label(cell: str) -> str:
    """Return a cell's label: 'PyTorch DDP' for 'ddp', 'PyTorch DDP over MPI' for 'ddp/mpi'."""
    transport = parts(cell).transport
    over = f" over {TRANSPORTS.get(transport, transport)}" if transport else ""
    return f"{facts(cell).label}{over}"


def look(cell: str) -> Look | None:
    """Return how figures draw a cell; None if the catalogue has no look for it."""
    backend, transport = parts(cell)
    row = CATALOGUE.get(backend)
    return row.looks.get(transport or "none") if row else None


def implementation(name: str) -> Any:
    """Import and return the class of the backend `name`."""
    return pkgutil.resolve_name(CATALOGUE[name].implementation)


def is_bare(cell: str) -> bool:
    """Check whether a cell names a framework without its transport."""
    return cell in frameworks()
