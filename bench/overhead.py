"""python -m bench.overhead: what our loop costs against a bare hand-written one, and against Horovod's own benchmark recipe.

Ours and the bare loop run in turns in one process group, on the same samples, and must end with the same parameters, bit
for bit: so both did the same work. Raw seconds of every turn go to results/overhead/; the summary is recomputed from them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import launch as launching
from bench.config import RunConfig, UsageError, make_config
from bench.record import SCHEMA, RunLog, append_event
from bench.resources import environment

if TYPE_CHECKING:
    import torch

    from bench.backends import Backend

RESULTS = Path("results/overhead")
CELLS = {"single": 1, "ddp/mpi": 2, "horovod/mpi": 2}  # ranks of each
STEPS = 3  # of a turn
MIN_PAIRS, MAX_PAIRS = 20, 240
HALF_WIDTH = 0.01  # of the ratio, at which there are enough pairs
Step = Callable[[], None]


def log_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean and 95 % Student t interval on logs of paired ratios (measured at least twice)."""
    from scipy.stats import t

    logs = [math.log(r) for r in ratios]
    mean = sum(logs) / len(logs)
    sd = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    half = float(t.ppf(0.975, len(logs) - 1)) * sd / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def bare_batches(config: RunConfig, rank: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The samples of the study's own loop, as a person would index them by hand."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels - pixels.mean()) / pixels.std()).float().reshape(-1, 1, 8, 8)
    images = images.repeat_interleave(4, 2).repeat_interleave(4, 3).repeat(1, 3, 1, 1)
    targets = torch.from_numpy(labels)
    whole, share = config.samples_per_step, config.samples_per_rank
    for epoch in range(10**9):
        order = torch.from_numpy(np.random.default_rng([config.seed, epoch]).permutation(len(targets)))
        for start in range(0, len(targets) - whole + 1, whole):
            chosen = order[start + rank * share : start + (rank + 1) * share]
            yield images[chosen], targets[chosen]


def bare_loop(config: RunConfig, rank: int) -> tuple[Step, torch.nn.Module]:
    """Plain torch, with the framework wrapped by hand as its tutorial does; gives one step, and the model."""
    import torch
    from torch.nn.functional import cross_entropy

    from bench.model import import_torchvision

    torch.manual_seed(config.seed)
    network = model = import_torchvision().models.resnet50(num_classes=10)
    rate = config.learning_rate(0)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate, momentum=config.momentum, weight_decay=config.weight_decay)
    if config.backend == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif config.backend == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model.train()
    data = bare_batches(config, rank)

    def step() -> None:
        images, labels = next(data)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step, network


def recipe_loop(config: RunConfig) -> Step:
    """Horovod's published synthetic benchmark at our batch, image size and threads: one fixed random batch, plain SGD."""
    import horovod.torch as hvd
    import torch
    from torch.nn.functional import cross_entropy

    from bench.model import import_torchvision

    model = import_torchvision().models.resnet50()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(config.samples_per_rank, 3, config.image_size, config.image_size)
    target = torch.LongTensor(config.samples_per_rank).random_() % 1000

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), target).backward()
        optimizer.step()

    return step


class Meter:
    """Sums the seconds spent in the calls it wraps: what is left of a turn is the harness's own."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def own_share(loop: Any, backend: Backend) -> float:
    """Share of a turn outside data, forward, backward, exchange and update: an upper bound, the loss function is in it."""
    from bench.timing import time_steps

    meter = Meter()
    names = ("zero_grad", "backward", "finish_backward", "step")
    saved = {name: getattr(backend, name) for name in names}
    model, batches = loop._model, loop._batches
    for name, call in saved.items():
        setattr(backend, name, meter.wrap(call))
    loop._model, loop._batches = meter.wrap(model), iter(meter.wrap(lambda: next(batches)), None)
    timed = time_steps(loop.step, 10, time.perf_counter, lambda: None)
    for name, call in saved.items():
        setattr(backend, name, call)
    loop._model, loop._batches = model, batches
    return backend.all_reduce(1 - meter.seconds / timed.seconds, "max")


def measure(config: RunConfig, launch: launching.Launch, log: RunLog) -> None:
    """One cell: warm up every loop, then turns in random order until the ratio is known well enough; needs all ranks."""
    import torch

    from bench import backends, data, host
    from bench.model import build_model
    from bench.timing import time_steps
    from bench.train import Loop, digest

    torch.set_num_threads(config.threads)
    backend = backends.load(config, launch)
    images = data.load_images(config)
    network = build_model(config, images.classes)
    ours = Loop(config, backend, network, data.batches(config, launch.rank, images))
    bare, bare_network = bare_loop(config, launch.rank)
    loops: dict[str, Step] = {"ours": ours.step, "bare": bare}
    if config.backend == "horovod":
        loops["recipe"] = recipe_loop(config)
    ranks = backend.gather(host.describe_rank(launch, torch.get_num_threads()))
    facts = {"ranks": ranks, **host.describe_run(os.environ, backend.versions)}
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=facts, workload={"steps_per_turn": STEPS})
    for step in loops.values():
        time_steps(step, config.warmup_steps, time.perf_counter, lambda: None)
    shuffle = random.Random(config.seed)  # the same order on every rank
    ratios: list[float] = []
    while len(ratios) < MAX_PAIRS:
        order = shuffle.sample(sorted(loops), len(loops))
        seconds = {}
        for name in order:
            backend.barrier()
            timed = time_steps(loops[name], STEPS, time.perf_counter, lambda: None)
            seconds[name] = backend.all_reduce(timed.seconds, "max")
        log.write("pair", index=len(ratios), order=order, seconds=seconds)
        ratios.append(seconds["bare"] / seconds["ours"])
        if len(ratios) >= MIN_PAIRS:
            mean, low, _ = log_interval(ratios)
            if 1 - low / mean <= HALF_WIDTH:  # on every rank alike: the seconds are the slowest rank's
                break
    same = digest(network) == digest(bare_network)
    equal = backend.all_reduce(float(same), "min") == 1.0
    log.write("end", status="ok" if equal else "failed: parameters differ", own_share=own_share(ours, backend))
    del ours, bare, loops, step
    backend.close()


def peak_memory(which: str) -> int:
    """Peak resident bytes of a fresh process that runs one of the two loops alone."""
    out = subprocess.run([sys.executable, "-m", "bench.overhead", "--memory", which], capture_output=True, text=True, check=True)
    return int(out.stdout)


def run_for_memory(which: str) -> None:
    from bench.host import peak_memory_bytes

    config = RunConfig(dataset="digits", batch_per_rank=16, windows=2)
    if which == "ours":
        from bench.__main__ import main

        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  closed with the process
        if main(config.to_argv()) != 0:
            sys.exit(1)
    else:
        os.environ.update(environment(config, launching.discover({}), 1, {}))
        import torch

        torch.set_num_threads(1)
        step, _ = bare_loop(config, 0)
        for _ in range(config.warmup_steps + config.windows * config.steps_per_window):
            step()
    print(peak_memory_bytes())


def summarise(path: Path, ranks: int) -> bool:
    """Print one cell's figures from its log; true if it holds the bars."""
    events = [json.loads(line) for line in path.read_text().splitlines() if line]
    pairs = [e["seconds"] for e in events if e["event"] == "pair"]
    end = next(e for e in events if e["event"] == "end")
    images = STEPS * ranks * events[0]["config"]["batch_per_rank"]
    mean, low, high = log_interval([p["bare"] / p["ours"] for p in pairs])
    good = end["status"] == "ok" and low >= 0.98 and 1 - low / mean <= HALF_WIDTH and end["own_share"] < 0.005
    rates = {name: images * len(pairs) / sum(p[name] for p in pairs) for name in pairs[0]}
    print(f"{path.stem}: throughput of ours / bare {mean:.4f} [{low:.4f}, {high:.4f}] (95 %, n={len(pairs)} pairs of turns)")
    print(f"  harness's own time between steps: at most {100 * end['own_share']:.3f} % of a step")
    print("  " + ", ".join(f"{name} {rate:.1f} images/s" for name, rate in rates.items()))
    if "recipe" in rates:
        mean, low, high = log_interval([p["recipe"] / p["ours"] for p in pairs])
        print(f"  ours / Horovod's recipe {mean:.4f} [{low:.4f}, {high:.4f}]")
    print(f"  {'holds' if good else 'DOES NOT HOLD'}: same parameters, lower bound >= 0.98, half-width <= 1 %, own time < 0.5 %")
    return bool(good)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--cell", choices=CELLS, help=argparse.SUPPRESS)  # inside a launched rank
    parser.add_argument("--memory", choices=("ours", "bare"), help=argparse.SUPPRESS)  # inside a fresh process
    given = parser.parse_args()
    if given.memory:
        run_for_memory(given.memory)
        return 0
    if given.cell:
        return rank_main(given.cell)
    RESULTS.mkdir(parents=True, exist_ok=True)
    good = True
    for cell, ranks in CELLS.items():
        path = log_path(cell)
        path.unlink(missing_ok=True)
        command = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run([*command, sys.executable, "-m", "bench.overhead", "--cell", cell], env=env, check=True)
        good &= summarise(path, ranks)
    memory = {which: peak_memory(which) for which in ("ours", "bare")}
    over = (memory["ours"] - memory["bare"]) / 2**20
    append_event(log_path("single"), "memory", peak_memory_bytes=memory)
    print(f"memory: ours {over:+.1f} MiB over bare on one rank ({'holds' if over <= 50 else 'DOES NOT HOLD'}: <= 50 MiB)")
    return 0 if good and over <= 50 else 1


def log_path(cell: str) -> Path:
    return RESULTS / f"{cell.replace('/', '-')}.jsonl"


def rank_main(cell: str) -> int:
    backend, _, transport = cell.partition("/")
    launch = launching.discover(os.environ)
    fields = {"backend": backend, "transport": transport or "none", "world_size": CELLS[cell], "batch_per_rank": 16}
    config = make_config({**fields, "dataset": "digits"})
    os.environ.update(environment(config, launch, len(os.sched_getaffinity(0)), os.environ))
    try:
        measure(config, launch, RunLog(log_path(cell) if launch.rank == 0 else None))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
