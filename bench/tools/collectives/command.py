"""python -m bench collectives: the times of a cell's collectives, as a table and a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator

from bench import command
from bench.backends.catalogue import PLAIN, REFERENCE, engines
from bench.config import RunConfig, UsageError, make_config, words_beside
from bench.launch.machine import machine_bytes
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.lifecycle.turns import Turns
from bench.options import Options, Shown, one_of, option, split_commas
from bench.progress import quantity
from bench.record import RunLog
from bench.study.collectives import KINDS, CostLine, Timed, fit

SIZES = tuple(2**power for power in range(10, 29, 2))  # 1 KiB to 256 MiB
COPIES = 5  # of the largest tensor, that a rank holds at once: of ours, and of a framework
_PROG = "python -m bench collectives"
_OF_RUN = [
    *("transport", "world_size", "device", "threads"),
    *("log_path", "stall_timeout_s"),
]
_BACKENDS = (*engines(), PLAIN)
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _bytes(text: object) -> object:
    """Parse '64,1MiB' into rising numbers of bytes."""
    if not isinstance(text, str):
        return text
    sizes = set()
    for word in text.split(","):
        match = re.fullmatch(r"([0-9]{1,12})(B|KiB|MiB|GiB|)", word)
        size = int(match[1]) * _UNITS[match[2]] if match else 0
        if not 4 <= size <= 2**36:
            raise ValueError(f"{word!r} is no size such as 4, 64KiB or 256MiB")
        sizes.add(size)
    return tuple(sorted(sizes))


def in_bytes(size: int) -> str:
    """Write a size as '4 KiB': a whole number of the largest unit that divides it, else bytes."""
    unit = next(u for u in ("GiB", "MiB", "KiB", "B") if size % _UNITS[u] == 0)
    return f"{size // _UNITS[unit]} {unit}"


class CollectivesToTime(Options):
    """Time all-reduce, all-gather, broadcast and reduce-scatter of float32 tensors under a
    launcher, through a framework's own calls, and check every result. Exit status: 0 all were
    right, 1 one was not, 2 the input was wrong.
    """

    example: ClassVar[str] = (
        f"mpirun -n 2 --bind-to none {_PROG} --world-size 2 --backend {REFERENCE} --transport mpi"
    )
    backend: Annotated[str, AfterValidator(one_of(_BACKENDS))] = option(
        REFERENCE, "whose collectives", shown=Shown(metavar=f"{{{','.join(_BACKENDS)}}}")
    )
    kinds: Annotated[
        tuple[str, ...],
        BeforeValidator(split_commas),
        AfterValidator(one_of(KINDS)),
        AfterValidator(lambda kinds: kinds or KINDS),
    ] = option(KINDS, f"of {','.join(KINDS)} (default: all)")
    sizes: Annotated[tuple[int, ...], BeforeValidator(_bytes)] = option(
        SIZES,
        f"bytes, as 1KiB,1MiB (default: {in_bytes(SIZES[0])} to {in_bytes(SIZES[-1])}, "
        "times 4 each)",
    )
    repetitions: int = option(
        15, "timed calls of each size, after one that is not", ge=1, le=10_000
    )

    def cell(self, config: RunConfig) -> str:
        return self.backend if self.backend == PLAIN else config.cell


def main(argv: list[str]) -> int:
    options = CollectivesToTime()

    def read() -> RunConfig:
        nonlocal options
        options, config = parse(argv)
        return config

    def load(_: Turns) -> command.RunBody:
        return partial(run, options)

    return command.start(read, lambda config: _opening(options, config), load)


def _opening(options: CollectivesToTime, config: RunConfig) -> str:
    sizes = f"{in_bytes(options.sizes[0])} to {in_bytes(options.sizes[-1])}"
    work = f"{', '.join(options.kinds)} of {sizes}, {options.repetitions} times"
    return f"{options.cell(config)}, {config.world_size} ranks: {work}; loading torch ..."


def parse(argv: list[str]) -> tuple[CollectivesToTime, RunConfig]:
    """Parse what to time on which ranks. --help prints, exits 0; raises UsageError on bad input."""
    words, fields = words_beside(CollectivesToTime, argv, _PROG, _OF_RUN)
    options = CollectivesToTime.checked(words, _PROG)
    backend = options.backend
    if backend == PLAIN:
        if fields.setdefault("transport", "mpi") != "mpi":
            raise UsageError(f"backend={PLAIN} is MPI alone; leave --transport out")
        backend = REFERENCE
    # it is bench's own rules that know which transport goes with what
    return options, make_config({"backend": backend, "batch_per_rank": 1, **fields})


def fitting(sizes: tuple[int, ...], local_size: int, memory_bytes: int) -> tuple[int, ...]:
    """Choose the sizes whose copies all ranks of a node can hold in half of its memory."""
    return tuple(size for size in sizes if COPIES * size * local_size <= memory_bytes // 2)


def run(
    options: CollectivesToTime, config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse
) -> bool:
    """Time the collectives; return True if every result of every collective was right."""
    import torch

    from bench import backends
    from bench.backends import collectives
    from bench.start import write_start
    from bench.tools.collectives.measure import time_one
    from bench.train import device

    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    cell = options.cell(config)
    pulse.enter(f"starting {cell}")
    backend = backends.load(config, launch, place)
    sizes = fitting(options.sizes, launch.local_size, machine_bytes())
    request = {"cell": cell, "kinds": ",".join(options.kinds)}
    request |= {"sizes": ",".join(map(str, sizes)), "repetitions": str(options.repetitions)}
    write_start(config, launch, log, backend, place, request)
    offered, wrong = collectives.load(options.backend, config), 0
    timed: dict[str, list[Timed]] = {}
    for kind, size in _each(options.kinds, sizes, offered.lacks, log, pulse):
        outcome = time_one(offered, kind, size, options.repetitions, backend, place, launch.rank)
        log.write("collective", **asdict(outcome))
        wrong += outcome.wrong
        timed.setdefault(kind, []).append(outcome.timed)
    log.write("end", status=f"failed: {wrong} results are wrong" if wrong else "ok")
    pulse.passed = not wrong
    if launch.rank == 0:
        left_out = [in_bytes(size) for size in options.sizes if size not in sizes]
        _print(cell, config.world_size, timed, dict(offered.lacks), left_out, wrong)
    pulse.leave()
    backend.close()
    return pulse.passed


def _each(
    kinds: Sequence[str],
    sizes: Sequence[int],
    lacks: Mapping[str, str],
    log: RunLog,
    pulse: Pulse,
) -> Iterator[tuple[str, int]]:
    """Yield what to time next; log why a kind is left out."""
    for kind in kinds:
        if kind in lacks:
            log.write("lacks", kind=kind, reason=lacks[kind])
            continue
        pulse.enter(f"timing {kind}")
        for size in sizes:
            yield kind, size
            pulse.tick()


def _print(
    cell: str,
    ranks: int,
    timed: dict[str, list[Timed]],
    lacks: dict[str, str],
    left_out: list[str],
    wrong: int,
) -> None:
    """Print the table, the fitted lines, and what was not timed or came out wrong."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100, color_system=None)  # a launcher gives ranks a terminal
    table = Table(title=f"{cell}, {ranks} ranks, float32")
    for column in ("collective", "bytes", "median", "range", "algorithm", "bus"):
        table.add_column(column, justify="left" if column == "collective" else "right")
    for kind, rows in timed.items():
        for row in rows:
            ends = f"{quantity(min(row.seconds) * 1e3)} to {quantity(max(row.seconds) * 1e3)} ms"
            rates = [f"{quantity(b / 1e6)} MB/s" for b in (row.bytes_per_s, row.bus_bytes_per_s)]
            table.add_row(
                kind, in_bytes(row.bytes), f"{quantity(row.median_s * 1e3)} ms", ends, *rates
            )
        table.add_section()
    console.print(table)
    for kind, rows in timed.items():
        for line in fit([row.bytes for row in rows], [row.median_s for row in rows]):
            console.print(f"{kind}: {in_words(line)}")
    for kind, reason in lacks.items():
        console.print(f"{kind} not timed: {reason}")
    if left_out:
        console.print(
            f"not timed, as {COPIES} copies on each rank do not fit: {', '.join(left_out)}"
        )
    console.print(f"{wrong} WRONG RESULTS" if wrong else "every result was right")


def in_words(line: CostLine) -> str:
    """Describe a line: '1 KiB to 64 KiB: 12.0 us + bytes / (1,200 MB/s) (within 5 %)'."""
    rate = line.bytes_per_s
    grows = f" + bytes / ({quantity(rate / 1e6)} MB/s)" if rate else ", whatever the size"
    sizes = f"{in_bytes(int(line.first_bytes))} to {in_bytes(int(line.last_bytes))}"
    return f"{sizes}: {quantity(line.latency_s * 1e6)} us{grows} (within {100 * line.worst:.0f} %)"
