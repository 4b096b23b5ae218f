"""python -m bench collectives: the times of a cell's collectives, as a table and a log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field

from bench import command
from bench.backends.catalogue import PLAIN, REFERENCE, engines
from bench.config import RunConfig, UsageError, make_config
from bench.launch.machine import machine_bytes
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.lifecycle.turns import Turns
from bench.options import (
    Options,
    Shown,
    add_options,
    new_parser,
    one_of,
    option,
    read_words,
    split_commas,
)
from bench.progress import quantity
from bench.record import RunLog
from bench.study.collectives import KINDS, Timed

if TYPE_CHECKING:  # the options are read before torch is loaded
    from bench.backends.collectives import Calls
    from bench.backends.protocol import Backend
    from bench.train.device import Device

SIZES = tuple(2**power for power in range(10, 29, 2))  # 1 KiB to 256 MiB
COPIES = 5  # of the largest tensor, that a rank holds at once: of ours, and of a framework
_PROG = "python -m bench collectives"
_OF_RUN = [
    *("transport", "world_size", "device", "threads"),
    *("log_path", "stall_timeout_s"),
]
_BACKENDS = (*engines(), PLAIN)
_Size = Annotated[ByteSize, Field(ge=4, le=2**36)]


def in_bytes(size: int) -> str:
    """Write a size as '4.0 KiB'."""
    return ByteSize(size).human_readable(separator=" ")


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
        tuple[str, ...], BeforeValidator(split_commas), AfterValidator(one_of(KINDS))
    ] = option(KINDS, f"of {','.join(KINDS)} (default: all)", min_length=1)
    sizes: Annotated[tuple[_Size, ...], BeforeValidator(split_commas)] = option(
        SIZES, "bytes, as 1KiB,1MiB (default: 1KiB to 256MiB, times 4 each)", min_length=1
    )
    repetitions: int = option(
        15, "timed calls of each size, after one that is not", ge=1, le=10_000
    )

    def cell(self, config: RunConfig) -> str:
        return self.backend if self.backend == PLAIN else config.cell


def main(argv: list[str]) -> int:
    """Exit status: 0 all results were right, 1 one was not, 2 the input was wrong."""
    options = CollectivesToTime()

    def read() -> RunConfig:
        nonlocal options
        options, config = parse(argv)
        return config

    def opening(config: RunConfig) -> str:
        sizes = f"{in_bytes(options.sizes[0])} to {in_bytes(options.sizes[-1])}"
        work = f"{', '.join(options.kinds)} of {sizes}, {options.repetitions} times"
        return f"{options.cell(config)}, {config.world_size} ranks: {work}; loading torch ..."

    def load(_: Turns) -> command.RunBody:
        return partial(run, options)

    return command.start(read, opening, load)


def parse(argv: list[str]) -> tuple[CollectivesToTime, RunConfig]:
    """Parse what to time on which ranks. --help prints, exits 0; raises UsageError on bad input."""
    parser = new_parser(CollectivesToTime, _PROG)
    add_options(parser, RunConfig, _OF_RUN)
    words = read_words(parser, argv)
    fields = {name: words.pop(name) for name in _OF_RUN if name in words}
    options = CollectivesToTime.checked(words, _PROG)
    backend = options.backend
    if backend == PLAIN:
        if fields.setdefault("transport", "mpi") != "mpi":
            raise UsageError(f"backend={PLAIN} is MPI alone; leave --transport out")
        backend = REFERENCE
    # it is bench's own rules that know which transport goes with what
    return options, make_config({"backend": backend, "batch_per_rank": 1, **fields})


def fitting(sizes: Sequence[int], local_size: int, memory_bytes: int) -> list[int]:
    """Choose the sizes whose copies all ranks of a node can hold in half of its memory."""
    return [size for size in sizes if COPIES * size * local_size <= memory_bytes // 2]


def run(
    options: CollectivesToTime, config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse
) -> bool:
    """Time the collectives; return True if every result of every collective was right."""
    import torch

    from bench import backends
    from bench.backends import collectives
    from bench.start import write_start
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
    calls = collectives.load(options.backend, config)
    timed: list[Timed] = []
    wrong = 0
    for kind in options.kinds:
        if kind not in calls:
            log.write("lacks", kind=kind, reason=f"{cell} has none")
            continue
        pulse.enter(f"timing {kind}")
        for size in sizes:
            event = time_one(calls, kind, size, options.repetitions, backend, place, launch)
            log.write("collective", **event)
            timed.append(Timed.of_event(event))
            wrong += event["wrong"]
            pulse.tick()
    log.write("end", status=f"failed: {wrong} results are wrong" if wrong else "ok")
    pulse.passed = not wrong
    if launch.rank == 0:
        notes = [f"{cell} has no {kind}" for kind in options.kinds if kind not in calls]
        if large := [in_bytes(size) for size in options.sizes if size not in sizes]:
            notes += [f"not timed, as {COPIES} copies on each rank do not fit: {', '.join(large)}"]
        _print(f"{cell}, {config.world_size} ranks, float32", timed, notes, wrong)
    pulse.leave()
    backend.close()
    return pulse.passed


def time_one(
    calls: Calls,
    kind: str,
    size: int,
    repetitions: int,
    backend: Backend,
    place: Device,
    launch: Launch,
) -> dict[str, Any]:
    """Time a collective without barrier and refill; read the clock when the device has finished.

    Returns its event for the log: seconds [rank][repetition], and how many results were wrong.
    """
    import torch

    call, watch = calls[kind], place.stopwatch()
    ranks, rank = launch.size, launch.rank
    elements = -(-size // 4 // ranks) * ranks  # the same part for every rank
    # small whole numbers, whose sums are exact; no period of theirs is a part's
    pattern = (torch.arange(elements, device=place.torch_device) % 251 + 1).float()
    part = slice(rank * elements // ranks, (rank + 1) * elements // ranks)
    # rank r holds the pattern r + 1 times
    sent, total = pattern * (rank + 1), pattern * (ranks * (ranks + 1) // 2)
    factors = torch.arange(1, ranks + 1, device=pattern.device)
    right = {
        "all_gather": (pattern.view(ranks, -1) * factors[:, None]).view(-1),
        "broadcast": pattern,
        "reduce_scatter": total[part],
        "all_reduce": total,
    }[kind]
    sent = sent[part].clone() if kind == "all_gather" else sent
    tensor, seconds, wrong = sent.clone(), list[float](), 0
    room = tensor if kind in ("all_reduce", "broadcast") else torch.empty_like(right)
    for repetition in range(1 + repetitions):  # the first one warms up: connections, memory
        tensor.copy_(sent)
        watch.now()
        backend.barrier()
        started = watch.now()
        returned = call(tensor, room)
        took = watch.now() - started
        result = room if returned is None else returned
        if repetition:
            seconds.append(took)
            wrong += not torch.equal(result, right)
        result.zero_()  # so that the next one cannot pass for it
    counted = backend.gather((seconds, wrong))
    return {
        "kind": kind,
        "bytes": 4 * elements,
        "seconds": [of_rank for of_rank, _ in counted],
        "wrong": sum(wrong for _, wrong in counted),
    }


def _print(title: str, timed: Sequence[Timed], notes: Sequence[str], wrong: int) -> None:
    """Print the table, and what was not timed or came out wrong."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100, color_system=None)  # a launcher gives ranks a terminal
    table = Table(title=title)
    for column in ("collective", "bytes", "median", "range", "algorithm", "bus"):
        table.add_column(column, justify="left" if column == "collective" else "right")
    for row in timed:
        low, middle, high = (
            quantity(seconds * 1e3)
            for seconds in (min(row.seconds), row.median_s, max(row.seconds))
        )
        rates = [f"{quantity(b / 1e6)} MB/s" for b in (row.bytes_per_s, row.bus_bytes_per_s)]
        table.add_row(row.kind, in_bytes(row.bytes), f"{middle} ms", f"{low} to {high} ms", *rates)
    console.print(table)
    for note in (*notes, f"{wrong} WRONG RESULTS" if wrong else "every result was right"):
        console.print(note)
