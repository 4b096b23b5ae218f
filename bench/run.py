"""One run on one rank: assemble its rig, warm up, time the windows, and log what was measured."""

from __future__ import annotations

from typing import Any

from bench import fom
from bench.config import RunConfig
from bench.config.rules import steep_rate
from bench.instrument.parity import not_proven
from bench.launch import provenance
from bench.launch.machine import busy_share, core_ticks, tcp_bytes
from bench.launch.world import Launch
from bench.lifecycle.ending import Pulse
from bench.lifecycle.turns import ALONE, Turns
from bench.progress import answer, result, say
from bench.record import RunLog
from bench.rig import Rig, assemble, disturbance
from bench.train import checks
from bench.train.device import Stopwatch, time_steps


def measure(rig: Rig, log: RunLog, pulse: Pulse, turns: Turns) -> None:
    """Warm up, then time the windows; log each window's seconds after the window has ended.

    Each window is a turn of `turns`: between turns this run is stopped while other runs work. The
    first step after a stop is slower, so `lead_in_steps`, which do not count, precede a window.
    """
    config, backend, step, watch = rig.config, rig.backend, rig.loop.step, rig.place.stopwatch()
    steps, images = config.steps_per_window, config.samples_per_step * config.steps_per_window
    _record(rig, log, "warmup", 0, _warm_up(rig, watch, turns))
    for index in range(config.windows):
        turns.pass_on(backend.barrier)
        if config.lead_in_steps:
            lead_in = time_steps(step, config.lead_in_steps, watch).step_seconds
            _record(rig, log, "lead_in", index, lead_in)
        before = core_ticks()
        backend.barrier()
        window = time_steps(step, steps, watch)
        busy = busy_share(before, core_ticks())
        seconds = backend.reduce_scalar(window.seconds, "max")  # when all ranks are done
        _record(rig, log, "window", index, window.step_seconds)
        input_seconds = backend.gather(sum(rig.samples.wait_seconds[-steps:]))
        observed = {"input_seconds": input_seconds, "busy_share": backend.gather(busy)}
        log.write("window", index=index, steps=steps, seconds=seconds, **observed)
        pulse.window(index + 1, config.windows, images / seconds)
    turns.end(backend.barrier)


def _warm_up(rig: Rig, watch: Stopwatch, turns: Turns) -> list[float]:
    """Warm up in two turns of the run (see `measure`); return the seconds of each step.

    Between the turns others warm up, and this run stops for long. Steps after that stop are slow,
    with Horovod more often than with DDP. The second turn keeps them out of the first window.
    """
    config, barrier, step = rig.config, rig.backend.barrier, rig.loop.step
    late_steps = min(config.lead_in_steps + config.steps_per_window, config.warmup_steps)
    turns.begin(barrier)
    early_seconds = time_steps(step, config.warmup_steps - late_steps, watch).step_seconds
    turns.pass_on(barrier)
    return early_seconds + time_steps(step, late_steps, watch).step_seconds


def _record(rig: Rig, log: RunLog, phase: str, index: int, step_seconds: list[float]) -> None:
    backend = rig.backend
    log.write("steps", phase=phase, index=index, seconds=backend.gather(step_seconds))
    if observed := rig.observer.take():
        of_ranks = backend.gather(observed)
        parts = {name: [rank[name] for rank in of_ranks] for name in observed}
        log.write("breakdown", phase=phase, index=index, **parts)


EndFacts = dict[str, Any]  # of the log's end


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse, turns: Turns = ALONE) -> bool:
    """Carry out the run; return True if no check failed. Raises UsageError on wrong input."""
    if launch.rank == 0 and (steep := steep_rate(config)) is not None:
        say(f"warning: {steep}")
    with assemble(config, launch, log, pulse, turns) as rig:
        facts = _end_facts(rig, _train(rig, log, pulse, turns))
        failed = [name for name, good in facts["checks"].items() if good is False]
        if launch.rank == 0:
            for changed in facts.get("torch_settings_changed", ()):
                say(f"error: the code of a model or data set changed torch's settings, {changed}")
            if facts["checks"].get("parity", True) is None:
                say(f"warning: {not_proven(facts['parity'])}")
        _write_end(log, rig, facts, failed, turns)
        pulse.passed = not failed  # not before: a rank that is lost until then fails the run
        if launch.rank == 0:
            say(result(config, pulse.rates, facts.get("last_loss"), failed))
            merits = fom.merits(config, pulse.rates, rig.backend.versions, ok=not failed)
            answer(fom.text(merits))
        pulse.leave()
    return pulse.passed


def _train(rig: Rig, log: RunLog, pulse: Pulse, turns: Turns) -> EndFacts:
    """Warm up, time the windows, then train if `epochs` is set; return checks and TCP bytes."""
    config, loop = rig.config, rig.loop
    waits = rig.samples.wait_seconds
    pulse.enter("warm-up", lambda: (len(waits), loop.steps))  # counters the loop keeps anyway
    extra = {}
    before = tcp_bytes()  # of launcher, rendezvous and start
    measure(rig, log, pulse, turns)
    if rig.launch.rank == 0 and loop.one_label is not None:
        labels = f"all labels of rank 0's first batch are {loop.one_label}"
        say(f"warning: dataset={config.dataset!r}: {labels}; if all are, nothing is learnt")
    if config.epochs is not None:
        from bench.train.target import train

        extra = {"trainings_equal": train(rig, log, pulse)}
    return {"checks": extra, "tcp_bytes": rig.backend.gather(tcp_bytes(before))}


def _end_facts(rig: Rig, facts: EndFacts) -> EndFacts:
    """Return `facts` with the training's facts and checks added. All ranks must call this."""
    config, backend, workload = rig.config, rig.backend, rig.workload
    network, emulation = workload.network, workload.emulation
    results = [checks.check_samples(rig.samples, backend, config), _imported_later(rig)]
    results.append(checks.check_kept(rig.settings, backend))
    if emulation is not None:
        averaged = emulation.averaged_steps
        results.append(checks.check_emulation(averaged, backend, config, network))
    else:
        trained = rig.loop, rig.parity, backend, config, network, workload.images.classes
        results.append(checks.check_training(*trained))
    results.append(facts)
    passed = {k: v for one in results for k, v in one.get("checks", {}).items()}
    merged = {k: v for one in results for k, v in one.items()}
    return {**merged, "checks": passed, "exchange_bytes": rig.loop.session.exchange_bytes()}


def _imported_later(rig: Rig) -> dict[str, dict[str, str]]:
    """Save newly imported user files beside the log; return {'user_code': {path: digest}} or {}."""
    files = provenance.user_files(rig.config)
    later = {path: code for path, code in files.items() if path not in rig.user_files}
    if not later:
        return {}
    if rig.launch.rank == 0:
        provenance.keep_files({**rig.user_files, **later}, rig.config.log_path)
    return {"user_code": provenance.digests(later)}


def _write_end(log: RunLog, rig: Rig, facts: EndFacts, failed: list[str], turns: Turns) -> None:
    backend, disturbed = rig.backend, rig.backend.gather(disturbance(turns))
    network, untrained = rig.workload.network, rig.launch.rank or rig.workload.emulation is not None
    log.write(
        "end",
        status="failed: " + ", ".join(failed) if failed else "ok",
        **facts,
        **{name: [rank[name] for rank in disturbed] for name in disturbed[0]},
        peak_memory_bytes=backend.gather(provenance.peak_memory_bytes()),
        peak_device_memory_bytes=backend.gather(rig.place.peak_memory_bytes()),
        # the last of all: it runs the model's own code
        **({} if untrained else {"flops_per_image": checks.flops_per_image(network, rig.config)}),
    )
