"""One run on one rank: assemble its rig, train, and log what was measured and checked."""

from __future__ import annotations

from typing import Any

from bench import fom
from bench.config import RunConfig
from bench.config.rules import steep_rate
from bench.instrument.parity import not_proven
from bench.launch import provenance, sources
from bench.launch.wire import tcp_bytes
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.lifecycle.turns import ALONE, Turns
from bench.measure import measure
from bench.progress import result
from bench.record import RunLog
from bench.rig import Rig, assemble
from bench.start import disturbance
from bench.streams import answer, say
from bench.train import flops, torch_settings
from bench.train.checks import check_emulation, check_samples, check_training
from bench.train.target import Course, train

EndFacts = dict[str, Any]  # of the log's end


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse, turns: Turns = ALONE) -> bool:
    """Run, and tell if all went as asked. Raises UsageError on input that proves wrong only now."""
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
    """Warm up, time the windows, and train to a target where one is asked for."""
    config, loop, images = rig.config, rig.loop, rig.workload.images
    waits = rig.samples.wait_seconds
    pulse.enter("warm-up", lambda: (len(waits), loop.steps))  # counters the loop keeps anyway
    checks = {}
    before = tcp_bytes()  # of launcher, rendezvous and start
    measure(rig, log, pulse.window, turns)
    if rig.launch.rank == 0 and loop.scores > images.classes:  # as a head left as it was has
        scores = f"{loop.scores} scores for {images.classes} classes"
        say(f"note: model={config.model!r} gives {scores}")
    if rig.launch.rank == 0 and loop.one_label is not None:
        labels = f"all labels of rank 0's first batch are {loop.one_label}"
        say(f"warning: dataset={config.dataset!r}: {labels}; if all are, nothing is learnt")
    if (held_out := rig.workload.held_out) is not None:
        course = Course(config, rig.launch, rig.backend, rig.place, images, held_out)
        checks = {"trainings_equal": train(course, log, pulse)}
    return {"checks": checks, "tcp_bytes": rig.backend.gather(tcp_bytes(before))}


def _end_facts(rig: Rig, facts: EndFacts) -> EndFacts:
    """Gather what the log's end says of the training, with its checks; needs every rank's call."""
    config, backend, workload = rig.config, rig.backend, rig.workload
    results = [check_samples(rig.samples, backend, config), _imported_later(rig)]
    results.append(torch_settings.check_kept(rig.settings, backend))
    if workload.emulation is not None:
        results += [check_emulation(workload.emulation, backend, config, workload.network)]
    else:
        trained = rig.loop, rig.parity, backend, config, workload.network, workload.images.classes
        results += [check_training(*trained)]
    checks = {k: v for one in (*results, facts) for k, v in one.get("checks", {}).items()}
    facts = {k: v for one in (*results, facts) for k, v in one.items()} | {"checks": checks}
    facts["exchange_bytes"] = rig.loop.session.exchange_bytes()
    return facts


def _imported_later(rig: Rig) -> dict[str, dict[str, str]]:
    """Keep the user's files that the training was first to import, and return their digests."""
    files = sources.loaded(rig.config)
    later = {path: code for path, code in files.items() if path not in rig.user_files}
    if not later:
        return {}
    if rig.launch.rank == 0:
        sources.keep({**rig.user_files, **later}, rig.config.log_path)
    return {"user_code": sources.digests(later)}


def _write_end(log: RunLog, rig: Rig, facts: EndFacts, failed: list[str], turns: Turns) -> None:
    backend, disturbed = rig.backend, rig.backend.gather(disturbance(turns))
    network, untrained = rig.workload.network, rig.launch.rank or rig.workload.emulation is not None
    log.write(
        "end",
        status="failed: " + ", ".join(failed) if failed else "ok",
        **{"exchange_bytes": [], **facts},
        **{name: [rank[name] for rank in disturbed] for name in disturbed[0]},
        peak_memory_bytes=backend.gather(provenance.peak_memory_bytes()),
        peak_device_memory_bytes=backend.gather(rig.place.peak_memory_bytes()),
        # the last of all: it runs the model's own code
        **({} if untrained else {"flops_per_image": flops.per_image(network, rig.config)}),
    )
