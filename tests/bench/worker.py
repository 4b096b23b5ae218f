"""One rank of a test: starts a backend, calls a function with it, and saves what every rank gave.

    mpirun -n 2 python -m tests.bench.worker tests.bench.test_traps:traps OUT.pt --backend horovod

Rank 0 also saves the names of its threads before and after the backend is closed.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.config import RunConfig, parse_argv
from bench.launch import world as launching
from bench.launch.world import environment
from tests.bench.ranks import together

DATA = ("--dataset", "digits", "--image-size", "8", "--batch-per-rank", "4")


@dataclass
class Rank:
    """What a test's function has: a started backend, with which it may train any config."""

    config: RunConfig
    backend: Any
    number: int

    def loop(self, config: RunConfig, network: Any, observer: Any = None) -> Any:
        """Make the study's own loop on this rank's shard."""
        import torch

        from bench.train.loop import Input, Loop

        samples = Input(config, shard(config, self.number), torch.device("cpu"))
        return Loop(config, self.backend, network, samples, observer)

    def equal(self, network: Any) -> bool:
        """Check whether all ranks hold the same parameters."""
        from bench.train.checks import digest

        return len(set(self.backend.gather(digest(network)))) == 1


def shard(config: RunConfig, rank: int) -> Any:
    """Make the batches of one rank of `config`'s world, whatever its backend."""
    from bench.data import batches, load_images

    shared = {"batch_per_rank", "dataset", "image_size", "seed", "precision", "world_size"}
    whole = RunConfig(backend="ddp", **config.model_dump(include=shared))
    return batches(whole, rank, load_images(whole))


def attempt(call: Callable[[], object]) -> str:
    """Return the traceback of the error that `call` raises, or ''."""
    try:
        call()
    except Exception:
        return traceback.format_exc()
    return ""


def on_ranks(
    ranks: int, function: Callable[[Rank], Any], *argv: str, extra: Mapping[str, str] | None = None
) -> tuple[list[Any], dict[str, list[str]]]:
    """Call a test's function on each of the ranks, on digits; return what it gave by rank, and the
    threads of rank 0.
    """
    import torch

    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.pt"
        name = f"{function.__module__}:{function.__name__}"
        words = ["--world-size", str(ranks), *DATA, *argv]
        done = together(ranks, __name__, name, out, *words, extra=extra)
        assert done.returncode == 0, done.stdout + done.stderr
        by_rank, threads = torch.load(out, weights_only=False)
        return by_rank, threads


def _threads() -> list[str]:
    """List this process's threads as the kernel names them, less a thread that ends meanwhile."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(task.joinpath("comm").read_text().strip())
    return names


def main(function: str, out: str, *argv: str) -> None:
    config, launch = parse_argv([*argv]), launching.discover(os.environ)
    os.environ.update(environment(config, launch, 1, os.environ))
    import torch

    from bench import backends
    from bench.train import device

    torch.set_num_threads(1)
    backend = backends.load(config, launch, device.choose(config, launch))
    given = backend.gather(pkgutil.resolve_name(function)(Rank(config, backend, launch.rank)))
    threads = {"open": _threads()}
    backend.close()
    threads["closed"] = _threads()
    if launch.rank == 0:
        torch.save((given, threads), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
