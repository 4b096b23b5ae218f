"""One rank of a try: exchange gradients over each named cell for about a second, and say how."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from bench.backends.catalogue import facts
from bench.config import RunConfig, UsageError, make_config
from bench.launch.resources import environment
from bench.launch.world import Launch, discover
from bench.tools.doctor import process

FLOATS = 2**20
_SECONDS = 1.0
_MOST = 1000  # steps
_TIMES = 5  # of all gradients


def attempt(config: RunConfig, launch: Launch, size: int) -> dict[str, Any]:
    """The try of one cell, and an all-reduce of `size` bytes. Raises whatever goes wrong."""
    import torch

    from bench import backends
    from bench.train import device

    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    backend = backends.load(config, launch, place)
    weights = torch.nn.Linear(FLOATS, 1, bias=False, device=place.torch_device)
    session = backend.wrap(weights, torch.optim.SGD(weights.parameters(), lr=0.1), config)
    # the gradient is the row: its mean tells who took part
    rows = torch.full((1, FLOATS), launch.rank + 1.0, device=place.torch_device)

    def step_seconds(session: Any, count: int) -> float:
        """Of each of `count` steps, on the slowest rank."""
        backend.barrier()
        started = time.perf_counter()
        for _ in range(count):
            session.zero_grad()
            session.backward(session.model(rows).sum())
            session.synchronize_gradients()
            assert weights.weight.grad is not None
            mean = weights.weight.grad[0, 0].item()  # waits for the device as well
            if mean != (launch.size + 1) / 2:
                ranks = f"the mean of rank + 1 over {launch.size} ranks"
                raise RuntimeError(f"{ranks} came out as {mean}")
            session.step()
        return backend.reduce_scalar(time.perf_counter() - started, "max") / count

    step_seconds(session, 3)  # warm-up
    count = int(_SECONDS / step_seconds(session, 3))
    seconds = step_seconds(session, max(3, min(_MOST, count)))
    versions = backend.versions
    del session  # it must be gone before its process group
    timed = _all_reduce(config, size, backend, place, launch.rank)
    backend.close()
    return {"ms": seconds * 1000, "bytes": 4 * FLOATS, "versions": versions, **timed}


def _all_reduce(
    config: RunConfig, size: int, backend: Any, place: Any, rank: int
) -> dict[str, float]:
    """Median seconds of the slowest rank, empty where none was wanted or the backend has none of
    its own. Raises RuntimeError on a wrong sum.
    """
    if not (size and facts(config.backend).collectives):
        return {}
    from bench.backends import collectives
    from bench.tools.collectives.measure import time_one

    offered = collectives.load(config.backend, config)
    outcome = time_one(offered, "all_reduce", size, _TIMES, backend, place, rank)
    if outcome.wrong:
        raise RuntimeError(f"{outcome.wrong} sums over {config.world_size} ranks came out wrong")
    return {"exchange_s": outcome.timed.median_s}


def main(fields: dict[str, Any], cells: list[str], limit_s: float, size: int) -> None:
    """Try each cell; a try that hangs is ended by SIGALRM, whoever else waits for it."""
    launch = discover(os.environ)
    for cell in cells:
        signal.alarm(int(limit_s))
        backend, transport = cell.split("/")
        fields |= {"backend": backend, "transport": transport, "batch_per_rank": 1}
        fields["device"] = "cuda" if transport == "nccl" else "cpu"
        answer: dict[str, Any] = {"cell": cell, "rank": launch.rank}
        try:
            config = make_config(fields)
            os.environ.update(environment(config, launch, len(os.sched_getaffinity(0)), os.environ))
            answer |= attempt(config, launch, size)
        except UsageError as error:
            answer |= {"error": error.text, "cure": error.cure}
        except Exception as error:
            line = f"{type(error).__name__}: {process.first_line(error)}"
            process.answer(answer | {"error": line, "cure": ""})
            return  # what it left behind in this process would spoil the next cell
        process.answer(answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3]), int(sys.argv[4]))
