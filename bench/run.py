"""One run on one rank: build everything that the config names, train, and write what was measured and checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from bench import backends, data, device, host, machine, model, progress, train
from bench.backends import Backend
from bench.config import RunConfig
from bench.device import Device
from bench.launch import Launch, WrongWorld
from bench.record import SCHEMA, RunLog


def run(config: RunConfig, launch: Launch, log: RunLog) -> bool:
    """True if the run did what was asked. Raises UsageError on input that shows to be wrong only now."""
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    images = data.load_images(config, launch.local_rank)
    network = model.build_model(config, images.classes)
    machine.require_training_fit(config, launch, sum(p.numel() * p.element_size() for p in network.parameters()))
    network = network.to(place.torch_device)
    backend = backends.load(config, launch, place)
    watch = place.stopwatch()
    samples = train.Input(config, data.batches(config, launch.rank, images), place.torch_device, watch.now)
    # a loop that trains nothing still wraps the model's framework around its ranks, whose barriers it needs
    loop = None if config.loader_only else train.Loop(config, backend, network, samples)
    _write_start(config, launch, log, backend, place, _workload(network, data.describe(config, images)))
    step: Callable[[], object] = samples.step if loop is None else loop.step
    bar = progress.make_progress(launch.rank)
    try:
        train.measure(step, samples, backend, config, log, watch, bar.window)
    finally:
        bar.close()
    facts = train.check_samples(samples, backend, config)
    if loop is not None:
        facts = _joined(facts, train.check_training(loop, backend, config, network))
    passed = _write_end(log, backend, place, facts)
    if launch.rank == 0:
        _say_result(config, facts)
    del step, loop  # they hold the wrapped model, which must be gone before its process group
    backend.close()
    return passed


def _joined(facts: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {**facts, **more, "checks": {**facts["checks"], **more["checks"]}}


def _workload(network: torch.nn.Module, samples: dict[str, Any]) -> dict[str, Any]:
    parameters = [p for p in network.parameters() if p.requires_grad]
    return {
        **samples,
        "parameters": sum(p.numel() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters),
    }


def _write_start(
    config: RunConfig, launch: Launch, log: RunLog, backend: Backend, place: Device, workload: dict[str, Any]
) -> None:
    ranks = backend.gather({**host.describe_rank(launch, torch.get_num_threads()), **place.describe()})
    places = {(r["hostname"], r["local_rank"]) for r in ranks}
    if any(r["versions"] != ranks[0]["versions"] for r in ranks):
        raise RuntimeError(f"ranks run different versions: {[r['versions'] for r in ranks]}")
    if len(places) != launch.size or [r["rank"] for r in ranks] != list(range(launch.size)):
        raise WrongWorld(
            f"{launch.size} ranks hold {len(places)} distinct places (host, local rank): a doubled or lost rank; "
            "see python -m bench doctor under the same launcher"
        )
    device.require_own_gpus(ranks)
    facts = {"ranks": ranks, **host.describe_run(os.environ, backend.versions)}
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=facts, workload=workload)


def _failed(facts: dict[str, Any]) -> list[str]:
    return [name for name, good in facts["checks"].items() if not good]


def _write_end(log: RunLog, backend: Backend, place: Device, facts: dict[str, Any]) -> bool:
    failed = _failed(facts)
    log.write(
        "end",
        status="failed: " + ", ".join(failed) if failed else "ok",
        **facts,
        exchange_bytes=backend.exchange_bytes(),
        peak_memory_bytes=backend.gather(host.peak_memory_bytes()),
        peak_device_memory_bytes=backend.gather(place.peak_memory_bytes()),
    )
    return not failed


def _say_result(config: RunConfig, facts: dict[str, Any]) -> None:
    kept = f"log {config.log_path}" if config.log_path else "no --log-path given, nothing kept"
    failed = f", FAILED CHECKS {names}" if (names := _failed(facts)) else ""
    result = "input pipeline alone" if config.loader_only else f"loss {facts['last_loss']:.4g}"
    print(f"{config.cell} on {config.world_size} rank(s): {result}{failed}; {kept}", file=sys.stderr)
