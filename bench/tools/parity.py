"""python -m bench parity: a cell's exchange, several times over one step, against one process."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

from bench import command
from bench.config import RunConfig, UsageError, parse_argv
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.record import RunLog
from bench.record.sealed import finite
from bench.streams import say

STEPS = 5  # the first has DDP's first buckets, the others its rebuilt ones
ELEMENTS = 2**16  # compared of each tensor: all of most


def main(argv: list[str]) -> int:
    """Exit status: 0 every step agrees, 1 one does not, 2 wrong input."""
    return command.start(partial(parse, argv), _opening, lambda _: run)


def parse(argv: list[str]) -> RunConfig:
    """A run's options. Raises UsageError on bad input."""
    config = parse_argv(argv)
    if config.loader_only:
        raise UsageError("loader_only=True exchanges no gradients to compare; leave it out")
    if not config.averages:
        raise UsageError(f"mode={config.mode} takes no mean to compare; use --mode sync")
    # at a rate of 0 nothing is learnt, so that every step is the same
    still = {"base_lr": 0.0, "max_lr": None, "windows": 1, "warmup_steps": 3}
    return config.model_copy(update={**still, "steps_per_window": STEPS - 3})


def _opening(config: RunConfig) -> str:
    ranks, images = config.world_size, config.samples_per_rank
    what = f"{config.model} at {config.image_size} px, {images} images on each of {ranks} rank(s)"
    return f"parity of {config.cell}: {what}, one step {STEPS} times; loading torch ..."


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse) -> bool:
    """True if the exchanged gradients of every step are the mean of the ranks' own."""
    import torch

    from bench import backends, data, models
    from bench.instrument.parity import Parity, relative
    from bench.run import write_start
    from bench.train import device
    from bench.train.input import Input
    from bench.train.loop import Loop

    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    images = data.load_images(config)
    network = models.build_model(config, images.classes).to(place.torch_device)
    pulse.enter(f"starting {config.cell}")
    backend = backends.load(config, launch, place)
    write_start(config, launch, log, backend, place, data.describe(config, images))
    batch = itertools.repeat(next(data.batches(config, launch.rank, images)))
    parity = Parity(config, backend, network, range(STEPS), ELEMENTS)
    samples = Input(config, batch, place.torch_device)
    loop = Loop(config, backend, network, samples, parity)
    pulse.enter("comparing")
    for _ in range(STEPS):
        torch.manual_seed(config.seed)  # of a model that draws, such as with dropout
        loop.step()
        pulse.tick()
    # the first step is left out: with other buckets the order of summation is another
    usual, *again = parity.exchanged[1:]
    other = backend.gather([relative(found, usual) for found in again])
    unequal = [any(tensor) for tensor in zip(*itertools.chain.from_iterable(other), strict=True)]
    facts: dict[str, Any] = {
        **config.model_dump(mode="json", include=set(_TOLD)),
        "cell": config.cell,
        "steps": parity.record(),
        "exchange_not_deterministic": list(itertools.compress(parity.names, unequal)),
        "holds": parity.holds,
    }
    log.write("parity", **facts)
    log.write("end", status="ok" if parity.holds else "failed: parity")
    pulse.passed = parity.holds
    if launch.rank == 0:
        print(json.dumps(finite(facts)), flush=True)
        say(_result(facts))
    pulse.leave()
    del loop, parity  # they hold the wrapped model, which must be gone before its process group
    backend.close()
    return pulse.passed


_TOLD = (
    *("world_size", "settings", "model", "precision", "memory_format", "accumulate"),
    *("compression", "batch_per_rank", "global_batch", "image_size", "threads", "device"),
)


def _result(facts: dict[str, Any]) -> str:
    """The worst step in words, and what is not the same twice."""
    worst = max(facts["steps"], key=lambda step: step["relative_difference"])
    found = f"max|difference| / max|gradient| {worst['relative_difference']:.1e}"
    if worst["tensor"]:
        found += f" in {worst['tensor']} of step {worst['step']}"
    agrees = "equal bit for bit" if not worst["relative_difference"] else found
    line = f"parity {'holds' if facts['holds'] else 'DOES NOT HOLD'}: {agrees}"
    line += f" (allowed {worst['allowed']:.1e}), {worst['elements']} elements"
    noisy = sorted({name for step in facts["steps"] for name in step["not_deterministic"]})
    for what, names in (("gradients", noisy), ("exchange", facts["exchange_not_deterministic"])):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            line += f"; {what} not deterministic: {names[0]}{more}"
    return line
