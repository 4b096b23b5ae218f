"""python -m bench collectives: times of a framework's all-reduce, as a table and a log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, ByteSize, Field

from bench import command
from bench.backends.catalogue import REFERENCE, engines
from bench.config import RunConfig, UsageError, make_config
from bench.launch.world import Launch
from bench.lifecycle.ending import Pulse
from bench.lifecycle.turns import Turns
from bench.options import (
    Options,
    Shown,
    add_options,
    new_parser,
    option,
    read_words,
    split_commas,
)
from bench.progress import quantity
from bench.record import RunLog
from bench.study.collectives import Timed

if TYPE_CHECKING:  # the options are read before torch is loaded
    from bench.backends.protocol import Backend
    from bench.train.device import Device

SIZES = tuple(2**power for power in range(10, 29, 2))  # 1 KiB to 256 MiB
_PROG = "python -m bench collectives"
_OF_RUN = ["transport", "world_size", "device", "threads", "log_path", "stall_timeout_s"]
_ROW = f"{'bytes':>10} {'median ms':>10} {'range':>18} {'MB/s':>14} {'bus MB/s':>14}"
_Size = Annotated[ByteSize, Field(ge=4, le=2**36)]


def in_bytes(size: int) -> str:
    """Write a size in bytes as text, such as '4.0 KiB'."""
    return ByteSize(size).human_readable(separator=" ")


class CollectivesToTime(Options):
    """Time the all-reduce of float32 tensors under a launcher, through a framework's own call, and
    check every result.
    """

    example: ClassVar[str] = (
        f"mpirun -n 2 --bind-to none {_PROG} --world-size 2 --backend {REFERENCE} --transport mpi"
    )
    backend: str = option(
        REFERENCE, "whose all-reduce", shown=Shown(metavar=f"{{{','.join(engines())}}}")
    )
    sizes: Annotated[tuple[_Size, ...], BeforeValidator(split_commas)] = option(
        SIZES, "bytes, as 1KiB,1MiB (default: 1KiB to 256MiB, times 4 each)", min_length=1
    )
    repetitions: int = option(
        15, "timed calls of each size, after one that is not", ge=1, le=10_000
    )


def main(argv: list[str]) -> int:
    """Run the command; return 0 if all is right, 1 if not, 2 for bad input, 128 + n on signal n."""
    options = CollectivesToTime()

    def read() -> RunConfig:
        nonlocal options
        options, config = parse(argv)
        return config

    def opening(config: RunConfig) -> str:
        work = f"{len(options.sizes)} sizes, {options.repetitions} times"
        return f"{config.cell}, {config.world_size} ranks: {work}; loading torch ..."

    def load(_: Turns) -> command.RunBody:
        return partial(run, options)

    return command.start(read, opening, load)


def parse(argv: list[str]) -> tuple[CollectivesToTime, RunConfig]:
    """Parse what to time, and a run's configuration. --help exits 0. Raises UsageError."""
    parser = new_parser(CollectivesToTime, _PROG)
    add_options(parser, RunConfig, _OF_RUN)
    words = read_words(parser, argv)
    fields = {name: words.pop(name) for name in _OF_RUN if name in words}
    options = CollectivesToTime.checked(words, _PROG)
    if options.backend not in engines():
        raise UsageError(f"backend={options.backend!r} is none of {', '.join(engines())}")
    return options, make_config({"backend": options.backend, "batch_per_rank": 1, **fields})


def run(
    options: CollectivesToTime, config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse
) -> bool:
    """Time, log and print the all-reduce of each size; return True if all results are right."""
    import torch

    from bench import backends
    from bench.rig import write_start
    from bench.train import device

    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    cell = config.cell
    pulse.enter(f"starting {cell}")
    backend = backends.load(config, launch, place)
    request = {"cell": cell, "repetitions": str(options.repetitions)}
    write_start(config, launch, log, backend, place, request)
    timed: list[Timed] = []
    wrong = 0
    pulse.enter("timing")
    for size in options.sizes:
        event = time_one(size, options.repetitions, backend, place, launch)
        log.write("collective", **event)
        timed.append(Timed.of_event(event))
        wrong += event["wrong"]
        pulse.tick()
    log.write("end", status=f"failed: {wrong} results are wrong" if wrong else "ok")
    pulse.passed = not wrong
    if launch.rank == 0:
        lines = [f"all-reduce of {cell}, {config.world_size} ranks, float32", _ROW]
        for one in timed:
            low, high = (quantity(end * 1e3) for end in (min(one.seconds), max(one.seconds)))
            rates = [f"{quantity(b / 1e6):>14}" for b in (one.bytes_per_s, one.bus_bytes_per_s)]
            median_ms = f"{quantity(one.median_s * 1e3):>10} {f'{low} to {high}':>18}"
            lines.append(f"{in_bytes(one.bytes):>10} {median_ms} {' '.join(rates)}")
        lines.append(f"{wrong} WRONG RESULTS" if wrong else "every result was right")
        print("\n".join(lines), flush=True)
    pulse.leave()
    backend.close()
    return pulse.passed


def time_one(
    size: int, repetitions: int, backend: Backend, place: Device, launch: Launch
) -> dict[str, Any]:
    """Time all-reduces of `size` bytes, each until the device is done. All ranks must call this.

    Returns the log's event: seconds[rank][repetition], and the number `wrong` of wrong results.
    """
    import torch

    watch = place.stopwatch()
    ranks, rank = launch.size, launch.rank
    # small whole numbers, whose sums are exact; rank r holds them r + 1 times
    pattern = (torch.arange(-(-size // 4), device=place.torch_device) % 251 + 1).float()
    sent, right = pattern * (rank + 1), pattern * (ranks * (ranks + 1) // 2)
    tensor, seconds, wrong = sent.clone(), list[float](), 0
    for repetition in range(1 + repetitions):  # the first one warms up: connections, memory
        tensor.copy_(sent)
        watch.now()
        backend.barrier()
        started = watch.now()
        backend.all_reduce(tensor)
        took = watch.now() - started
        if repetition:
            seconds.append(took)
            wrong += not torch.equal(tensor, right)
    counted = backend.gather((seconds, wrong))
    return {
        "kind": "all_reduce",
        "bytes": tensor.nbytes,
        "seconds": [of_rank for of_rank, _ in counted],
        "wrong": sum(wrong for _, wrong in counted),
    }
