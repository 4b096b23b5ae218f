"""What the doctor is asked: its command line, checked before anything is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from bench.backends.catalogue import REFERENCE, facts
from bench.backends.catalogue import cells as all_cells
from bench.config import RunConfig, UsageError, make_config, words_beside
from bench.options import Options, one_of, option, split_commas
from bench.record import read_run
from bench.study.strides import Strides, strides

_PROG = "python -m bench doctor"
# its trials start ranks alone, no servers
_CELLS = [cell for cell in all_cells() if "/" in cell and not facts(cell).server]
_TRIED = f"what to try, comma-separated, of {', '.join(_CELLS)}; default: all that can be; "


class OneRank(NamedTuple):
    """A training of one rank, from its log: seconds of a step, bytes of all gradients, device, and
    how its gradients lie.
    """

    step_s: float
    gradient_bytes: int
    device: str
    strides: Strides | None = None


def _one_rank(log: Path) -> OneRank:
    rule = "name a log of python -m bench --log-path, on one rank, that ended well"
    if not log.is_file():
        raise UsageError(f"--one-rank {str(log)!r} is no file; {rule}")
    run = read_run(log)
    config, size = run.config, run.workload.get("gradient_bytes")
    if run.problem or config is None:
        raise UsageError(f"--one-rank {str(log)!r}: {run.problem or 'no run'}; {rule}")
    if config.world_size > 1 or config.loader_only or not size:
        raise UsageError(f"--one-rank {str(log)!r} is not of one rank that trained; {rule}")
    return OneRank(run.seconds_per_step, int(size), config.device, strides(run.end))


class Doctor(Options):
    """Look at this machine, or under mpirun, srun, torchrun or horovodrun at this launch: one line
    per finding, with the cure. Exit status: 0 fit (warnings included), 1 a failure was found, 2 the
    input was wrong.
    """

    example: ClassVar[str] = f"mpirun -n 2 --bind-to none {_PROG} --world-size 2"
    hidden: ClassVar[Sequence[str]] = ("config",)
    world_size: int | None = option(None, "ranks that the launch must have")
    # None: the launcher decides which can be tried
    cells: Annotated[
        tuple[str, ...] | None, BeforeValidator(split_commas), AfterValidator(one_of(_CELLS))
    ] = option(None, f"{_TRIED}--cells= tries none")
    as_json: bool = option(False, "print JSON on standard output", alias="json")
    limit_s: int = option(60, "seconds for each try", ge=1, le=3600)
    one_rank: Path | None = option(
        None,
        "log of a training on one rank, to say by how much more ranks can be faster at most, and "
        "what gradients in other strides cost",
    )
    config: RunConfig  # data set, folders and threads, as runs will be told

    @cached_property
    def alone(self) -> OneRank | None:
        """Of `one_rank`. Raises UsageError where that is not the log of a training of one rank."""
        return None if self.one_rank is None else _one_rank(self.one_rank)


def parse(argv: Sequence[str]) -> Doctor:
    """Options from a command line. --help prints and exits 0; raises UsageError on bad input."""
    of_run = ("dataset", "data_dir", "rendezvous_dir", "threads", "sysfs")
    words, fields = words_beside(Doctor, argv, _PROG, of_run)
    fields |= {"world_size": words["world_size"]} if "world_size" in words else {}
    # bench's own rules know its fields: which data sets there are, and which need a folder
    config = make_config({"backend": REFERENCE, "batch_per_rank": 1, **fields})
    return Doctor.checked({**words, "config": config}, _PROG)
