"""python -m bench.overhead: what our loop costs against a bare hand-written one, and against Horovod's own benchmark recipe.

First both train a model of their own, wrapped by our backend and by hand, and must end with the same parameters, bit for bit:
so both do the same work. Then they take turns on one and the same model, so that where a
model lies in memory cannot favour one of them. The interval is over several launches. Raw seconds of every turn
go to a new folder below --results, and the summary is computed from them.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import launch as launching
from bench.config import RunConfig, UsageError, make_config
from bench.record import SCHEMA, RunLog
from bench.resources import environment

if TYPE_CHECKING:
    import torch

    from bench.backends import Backend

RESULTS = Path("results/mine/overhead")
LIMIT_S = 600  # of one launch
CELLS = {"single": 1, "ddp/mpi": 2, "horovod/mpi": 2}  # ranks of each
STEPS = 3  # of a turn
PAIRS = 8  # of turns in one launch
MIN_LAUNCHES, MAX_LAUNCHES = 6, 24
HALF_WIDTH = 0.01  # of the ratio, at which there are enough launches
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
    return bare_step(model, optimizer, bare_batches(config, rank)), network


def bare_step(model: Any, optimizer: Any, data: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> Step:
    """One step as a tutorial writes it, on whatever wrapped model and optimiser."""
    from torch.nn.functional import cross_entropy

    def step() -> None:
        images, labels = next(data)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


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
    """One launch of one cell: equal work first, then turns in random order; needs all ranks."""
    import torch

    from bench import backends, data, host
    from bench.model import build_model
    from bench.timing import time_steps
    from bench.train import Loop, digest

    torch.set_num_threads(config.threads)
    backend = backends.load(config, launch)
    images = data.load_images(config)
    network = build_model(config, images.classes)
    loop = Loop(config, backend, network, data.batches(config, launch.rank, images))
    by_hand, by_hand_network = bare_loop(config, launch.rank)
    for step in (loop.step, by_hand):
        time_steps(step, config.warmup_steps, time.perf_counter, lambda: None)
    equal = backend.all_reduce(float(digest(network) == digest(by_hand_network)), "min") == 1.0
    bare = bare_step(loop._model, loop._optimizer, bare_batches(config, launch.rank))
    steps: dict[str, Step] = {"ours": loop.step, "bare": bare}
    if config.backend == "horovod":
        steps["recipe"] = recipe_loop(config)
        time_steps(steps["recipe"], config.warmup_steps, time.perf_counter, lambda: None)
    facts = {
        "ranks": backend.gather(host.describe_rank(launch, torch.get_num_threads())),
        **host.describe_run(os.environ, backend.versions),
    }
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=facts, workload={"steps_per_turn": STEPS})
    take_turns(steps, backend, log, random.Random(config.seed))
    share = own_share(loop, backend)
    log.write("end", status="ok" if equal else "failed: parameters differ", own_share=share)
    del loop, by_hand, by_hand_network, bare, steps, step
    backend.close()


def take_turns(steps: Mapping[str, Step], backend: Backend, log: RunLog, shuffle: random.Random) -> None:
    """Time every loop once per pair, in random order, the same on every rank; the seconds are the slowest rank's."""
    from bench.timing import time_steps

    for index in range(PAIRS):
        order = shuffle.sample(sorted(steps), len(steps))
        seconds = {}
        for name in order:
            backend.barrier()
            timed = time_steps(steps[name], STEPS, time.perf_counter, lambda: None)
            seconds[name] = backend.all_reduce(timed.seconds, "max")
        log.write("pair", index=index, order=order, seconds=seconds)


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


class Launched:
    """The raw figures of one launch, as read from its log."""

    def __init__(self, path: Path) -> None:
        events = [json.loads(line) for line in path.read_text().splitlines() if line]
        config = RunConfig(**events[0]["config"])
        self.turns = [e["seconds"] for e in events if e["event"] == "pair"]
        self.end = next(e for e in events if e["event"] == "end")
        self.images_per_turn = STEPS * config.samples_per_step

    def ratio(self, other: str) -> float:
        """Throughput of ours over that of `other`: geometric mean over the pairs of turns of this launch."""
        logs = [math.log(turn[other] / turn["ours"]) for turn in self.turns]
        return math.exp(sum(logs) / len(logs))

    def images_per_s(self, name: str) -> float:
        seconds: float = sum(turn[name] for turn in self.turns)
        return self.images_per_turn * len(self.turns) / seconds


def known_well_enough(launches: Sequence[Launched]) -> bool:
    mean, low, _ = log_interval([launch.ratio("bare") for launch in launches])
    return 1 - low / mean <= HALF_WIDTH


def summarise(cell: str, launches: Sequence[Launched]) -> bool:
    """Print one cell's figures; true if it holds the bars."""
    mean, low, high = log_interval([launch.ratio("bare") for launch in launches])
    share = max(launch.end["own_share"] for launch in launches)
    same = all(launch.end["status"] == "ok" for launch in launches)
    good = same and low >= 0.98 and known_well_enough(launches) and share < 0.005
    n = f"n={len(launches)} launches of {PAIRS} pairs"
    print(f"{cell}: throughput of ours / bare {mean:.4f} [{low:.4f}, {high:.4f}] (95 %, {n})")
    print(f"  harness's own time between steps: at most {100 * share:.3f} % of a step")
    names = launches[0].turns[0]
    rates = {name: sum(launch.images_per_s(name) for launch in launches) / len(launches) for name in names}
    print("  " + ", ".join(f"{name} {rate:.1f} images/s" for name, rate in rates.items()))
    if "recipe" in names:
        mean, low, high = log_interval([launch.ratio("recipe") for launch in launches])
        print(f"  ours / Horovod's recipe {mean:.4f} [{low:.4f}, {high:.4f}]")
    print(f"  {'holds' if good else 'DOES NOT HOLD'}: same parameters, lower bound >= 0.98, half-width <= 1 %, own time < 0.5 %")
    sys.stdout.flush()
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help=f"folder of results (default: {RESULTS})")
    parser.add_argument("--cell", choices=CELLS, help=argparse.SUPPRESS)  # inside a launched rank
    parser.add_argument("--log-path", type=Path, help=argparse.SUPPRESS)  # likewise
    parser.add_argument("--memory", choices=("ours", "bare"), help=argparse.SUPPRESS)  # inside a fresh process
    given = parser.parse_args()
    if given.memory:
        run_for_memory(given.memory)
        return 0
    if given.cell:
        return rank_main(given.cell, given.log_path)
    try:
        return compare(given.results / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}; run make setup, or look above", file=sys.stderr)
        return 1


def compare(folder: Path) -> int:
    """Measure every cell into `folder` and print the figures; 0 if all bars hold."""
    folder.mkdir(parents=True)
    good = True
    for cell in CELLS:
        launches: list[Launched] = []
        while len(launches) < MIN_LAUNCHES or (len(launches) < MAX_LAUNCHES and not known_well_enough(launches)):
            launches.append(launch_once(folder, cell, len(launches)))
        good &= summarise(cell, launches)
    memory = {which: peak_memory(which) for which in ("ours", "bare")}
    over = (memory["ours"] - memory["bare"]) / 2**20
    (folder / "memory.json").write_text(json.dumps({"peak_memory_bytes": memory}) + "\n")
    print(f"memory: ours {over:+.1f} MiB over bare on one rank ({'holds' if over <= 50 else 'DOES NOT HOLD'}: <= 50 MiB)")
    return 0 if good and over <= 50 else 1


def launch_once(folder: Path, cell: str, index: int) -> Launched:
    """One fresh process group of one cell."""
    path = folder / f"{cell.replace('/', '-')}-{index:02d}.jsonl"
    launcher = ["mpirun", "-n", str(CELLS[cell]), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", sys.executable]
    command = [*launcher, "-m", "bench.overhead", "--cell", cell, "--log-path", str(path)]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(command, env=env, check=True, timeout=LIMIT_S)
    return Launched(path)


def rank_main(cell: str, log_path: Path) -> int:
    backend, _, transport = cell.partition("/")
    launch = launching.discover(os.environ)
    fields = {
        "backend": backend,
        "transport": transport or "none",
        "world_size": CELLS[cell],
        "batch_per_rank": 16,
        "warmup_steps": 5,
    }
    config = make_config({**fields, "dataset": "digits"})
    os.environ.update(environment(config, launch, len(os.sched_getaffinity(0)), os.environ))
    try:
        measure(config, launch, RunLog(log_path if launch.rank == 0 else None))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
