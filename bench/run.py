"""One run on one rank: build what the config names, train, write what was measured and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from bench import backends, data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.config.rules import steep_rate
from bench.instrument import Observer, Observers, trace
from bench.instrument.breakdown import Breakdown
from bench.instrument.emulation import Emulation
from bench.instrument.inject import Sleep
from bench.instrument.parity import Parity
from bench.launch import machine, provenance, sources
from bench.launch.agreement import disagreement, flat
from bench.launch.wire import tcp_bytes
from bench.launch.world import Launch, WrongWorld
from bench.lifecycle.pulse import Pulse
from bench.lifecycle.turns import ALONE, Turns
from bench.progress import result
from bench.record import SCHEMA, RunLog, read_run
from bench.record.user_code import digests
from bench.streams import answer, say
from bench.train import checkpoint, device, torch_settings
from bench.train.checks import check_emulation, check_samples, check_training
from bench.train.device import Device
from bench.train.input import Input
from bench.train.loop import Loop
from bench.train.measure import measure
from bench.train.target import Course, train


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse, turns: Turns = ALONE) -> bool:
    """True if the run did what was asked. Raises UsageError on input that proves wrong only now."""
    if launch.rank == 0 and (steep := steep_rate(config)) is not None:
        say(f"warning: {steep}")
    if config.checkpoint:
        checkpoint.path_of(config)  # a log is not asked for before a run is started
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    pulse.enter("loading data")
    images = data.load_images(config)
    judged = None if config.epochs is None else data.load_held_out(config, images)
    pulse.enter("building the model")
    network = models.build_model(config, images.classes)
    models.prepare(network, config, images)
    machine.require_training_fit(config, launch, _bytes(network.parameters()))
    network = network.to(place.torch_device)
    emulation = None if config.emulate is None else Emulation(network, config, launch.rank)
    network = network if emulation is None else emulation.model
    pulse.enter(f"starting {config.cell}")
    backend = backends.load(config, launch, place)
    # before anything is exchanged that fails, or trains two different things, where ranks differ
    workload: dict[str, Any] = {**data.describe(config, images), **_size(network)}
    workload |= {} if emulation is None else emulation.facts
    workload |= {} if judged is None else {"held_out": judged.samples}
    files = write_start(config, launch, log, backend, place, workload, turns)
    settings = torch_settings.require_alike(config, backend, network)
    watch = place.stopwatch()
    batches = data.batches(config, launch.rank, images, pulse.tick)
    samples = Input(config, batches, place.torch_device)
    # a loop that trains nothing still wraps the model's framework around its ranks, whose barriers
    # it needs
    compared = config.averages and emulation is None
    parity = Parity(config, backend, network) if compared else None
    checkers = (one for one in (emulation, parity) if one is not None)
    watching = Observers(*_observers(config, network, place), *checkers)
    loop = None if config.loader_only else Loop(config, backend, network, samples, watching)
    step: Callable[[], object] = samples.step if loop is None else loop.step
    compiles = config.compile and loop is not None
    pulse.enter("compiling, warm-up" if compiles else "warm-up", _counts(samples, loop))
    alike = {}
    before = tcp_bytes()  # of launcher, rendezvous and start
    try:
        measure(step, samples, backend, config, log, watch, pulse.window, watching, turns)
        if judged is not None:
            course = Course(config, launch, backend, place, images, judged)
            alike = {"trainings_equal": train(course, log, pulse)}
    finally:
        pulse.close()
    moved = tcp_bytes(before)
    facts = check_samples(samples, backend, config) | _imported_later(config, launch, files)
    kept = torch_settings.check_kept(settings, backend)
    facts |= {**kept, "checks": facts["checks"] | kept["checks"]}
    if loop is not None:
        if emulation is not None:
            more = check_emulation(emulation, backend, config, network)
        else:
            more = check_training(loop, parity, backend, config, network, images.classes)
        facts = {**facts, **more, "checks": {**facts["checks"], **more["checks"], **alike}}
        facts["exchange_bytes"] = loop.session.exchange_bytes()
    facts["tcp_bytes"] = backend.gather(moved)
    if config.server_processes:
        facts["servers"], sent = backend.served()
        facts["checks"]["updates_counted"] = sum(s["updates"] for s in facts["servers"]) == sent
    if loop is not None and config.observe == "framework":
        facts["evidence"] = _log_evidence(log, backend, loop)
    failed = [name for name, good in facts["checks"].items() if not good]
    if launch.rank == 0:
        for changed in facts.get("torch_settings_changed", ()):
            say(f"error: the code of a model or data set changed torch's settings, {changed}")
    if launch.rank == 0 and config.trace is not None and config.log_path is not None:
        trace.write(config.trace, read_run(config.log_path))
    _write_end(log, backend, place, facts, failed, turns)
    pulse.passed = not failed  # not before: a rank that is lost until then fails the run
    if launch.rank == 0:
        tell = say if failed else answer  # a script takes what stands on standard output as good
        tell(result(config, pulse.rates, facts.get("last_loss"), failed))
    pulse.leave()
    # they hold the wrapped model, which must be gone before its process group
    del step, loop, parity, watching, emulation
    backend.close()
    return pulse.passed


def _observers(config: RunConfig, network: torch.nn.Module, place: Device) -> Iterator[Observer]:
    """What the config asks for; before a framework wraps the network."""
    if config.observe != "nothing":
        yield Breakdown(network, place.stopwatch(), config.accumulate)
    if config.inject_ms:
        yield Sleep(config.inject_ms / 1000)


def _log_evidence(log: RunLog, backend: Backend, loop: Loop) -> list[dict[str, float]]:
    """What each rank's framework says of a step; each exchange goes to the log by itself."""
    told = backend.gather(loop.session.evidence(loop.steps))
    log.write("exchanges", ranks=[[asdict(x) for x in evidence.exchanges] for evidence in told])
    return [dict(evidence.seconds) for evidence in told]


def _counts(samples: Input, loop: Loop | None) -> Callable[[], tuple[int, int]]:
    """Batches received and steps done, read from the counters that the loop keeps anyway."""
    waits = samples.wait_seconds
    return lambda: (len(waits), len(waits) if loop is None else loop.steps)


def _bytes(parameters: Iterable[torch.nn.Parameter]) -> int:
    return sum(p.numel() * p.element_size() for p in parameters)


def _size(network: torch.nn.Module) -> dict[str, int]:
    trained = [p for p in network.parameters() if p.requires_grad]
    return {"parameters": sum(p.numel() for p in trained), "gradient_bytes": _bytes(trained)}


def write_start(
    config: RunConfig,
    launch: Launch,
    log: RunLog,
    backend: Backend,
    place: Device,
    workload: dict[str, Any],
    turns: Turns = ALONE,
) -> dict[str, bytes]:
    """Compare what all ranks must share, and log it; needs all ranks. Returns the user's own files.

    Raises UsageError where ranks differ or share a place.
    """
    files = sources.loaded(config)
    user_code = digests(files)
    packages = sources.versions(config)
    versions = {**backend.versions, **packages}
    shared = flat(
        {
            **provenance.shared(os.environ, versions),
            "user_code": user_code,
            "workload": workload,
        }
    )
    own = {
        **provenance.describe_rank(launch, torch.get_num_threads()),
        **place.describe(),
        **backend.files,
        **_disturbance(turns),
    }
    told = [*backend.gather((shared, own, provenance.placement(os.environ))), *backend.servers]
    # which a server does not know
    of_workers = ("workload.", "user_code.", *(f"versions.{name}" for name in packages))
    work = {name: value for name, value in shared.items() if name.startswith(of_workers)}
    served = [{**work, **of_all} for of_all, _, _ in backend.servers]
    if problem := disagreement([*(of_all for of_all, _, _ in told[: config.world_size]), *served]):
        raise UsageError(problem)
    ranks = [{**one, "env": provenance.changed(told[0][2], placed)} for _, one, placed in told]
    places = {(r["hostname"], r["local_rank"]) for r in ranks}
    if len(places) != launch.size or [r["rank"] for r in ranks] != list(range(launch.size)):
        held = f"{launch.size} ranks hold {len(places)} distinct places (host, local rank)"
        cure = "see python -m bench doctor under the same launcher"
        raise WrongWorld(f"{held}: a doubled or lost rank; {cure}")
    device.require_own_gpus(ranks)
    if launch.rank == 0:
        facts: dict[str, Any] = {"ranks": ranks[: config.world_size]}
        facts |= {"servers": ranks[config.world_size :]} if backend.servers else {}
        facts |= provenance.describe_run(os.environ, versions)
        facts |= {"user_code": user_code} if user_code else {}
        facts |= {"turns": turns.place.record()} if turns.place else {}
        start = {"config": config.model_dump(mode="json"), "host": facts, "workload": workload}
        log.write("start", schema=SCHEMA, **start)
        sources.keep(files, config.log_path)
    return files


def _disturbance(turns: Turns) -> dict[str, Any]:
    """The node's counters without what they counted in the turns of other worlds."""
    noted, outside = provenance.disturbance(), turns.aside()
    return noted | {k: noted[k] - outside[k] for k in outside if noted[k] is not None}


def _imported_later(
    config: RunConfig, launch: Launch, files: dict[str, bytes]
) -> dict[str, dict[str, str]]:
    """Digests of the user's files that were imported by the training, not before it."""
    later = {k: v for k, v in sources.loaded(config).items() if k not in files}
    if not later:
        return {}
    if launch.rank == 0:
        sources.keep({**files, **later}, config.log_path)
    return {"user_code": digests(later)}


def _write_end(
    log: RunLog,
    backend: Backend,
    place: Device,
    facts: dict[str, Any],
    failed: list[str],
    turns: Turns,
) -> None:
    disturbed = backend.gather(_disturbance(turns))
    log.write(
        "end",
        status="failed: " + ", ".join(failed) if failed else "ok",
        **{"exchange_bytes": [], **facts},
        **{name: [rank[name] for rank in disturbed] for name in disturbed[0]},
        peak_memory_bytes=backend.gather(provenance.peak_memory_bytes()),
        peak_device_memory_bytes=backend.gather(place.peak_memory_bytes()),
    )
