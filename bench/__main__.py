"""python -m bench: start the backend, run one configuration, write its log."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from bench import launch as launching
from bench.config import RunConfig, UsageError, parse_argv
from bench.record import SCHEMA, RunLog, append_event
from bench.resources import advice, environment, require_unmodified

if TYPE_CHECKING:
    from bench.backends import Backend

INPUT_ERROR = 2
_RANK_0_SPEAKS_S = 2.0


def main(argv: list[str]) -> int:
    """Exit status: 0 the run is ok, 1 it failed, 2 the input was wrong, 128 + n it was ended by signal n."""
    if argv[:1] == ["doctor"]:
        from bench.doctor.command import main as doctor

        return doctor(argv[1:])
    rank = 0
    try:
        launch = launching.discover(os.environ)
        rank = launch.rank
        config = parse_argv(argv)
        launching.require_world(launch, config.world_size, os.environ)
        require_unmodified(os.environ)
        _set_resources(config, launch)
        log = RunLog(config.log_path if rank == 0 else None)
    except UsageError as error:
        _say_error(rank, str(error))
        return INPUT_ERROR
    _watch_signals(rank, log)
    try:
        return _run(config, launch, log)
    except Exception as error:
        return _record_failure(config, rank, log, error)


def _set_resources(config: RunConfig, launch: launching.Launch) -> None:
    cores = len(os.sched_getaffinity(0))
    os.environ.update(environment(config, launch, cores, os.environ))
    if (line := advice(config, launch, cores)) is not None:
        print(f"warning: {line}", file=sys.stderr, flush=True)


def _watch_signals(rank: int, log: RunLog) -> None:
    if rank == 0:
        from bench.interrupt import on_interrupt

        on_interrupt(lambda name: log.write("end", status="interrupted", signal=name))
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # rank 0 tells; the others leave without a traceback


def _run(config: RunConfig, launch: launching.Launch, log: RunLog) -> int:
    # torch is loaded here, after the threads are set and the input is known to be good
    import torch

    from bench import backends, data, model, progress, train

    torch.set_num_threads(config.threads)
    images = data.load_images(config)
    network = model.build_model(config, images.classes)
    backend = backends.load(config, launch)
    loop = train.Loop(config, backend, network, data.batches(config, launch.rank, images))
    _write_start(config, launch, log, backend, network, data.describe(config, images))
    bar = progress.make_progress(launch.rank)
    try:
        train.measure(loop, backend, config, log, time.perf_counter, lambda: None, bar.window)
    finally:
        bar.close()
    facts = train.checks(loop, backend, config, network)
    passed = _write_end(log, backend, facts)
    if launch.rank == 0:
        _say_result(config, passed, facts)
    del loop  # it holds the wrapped model, which must be gone before its process group
    backend.close()
    return 0 if passed else 1


def _write_start(config: RunConfig, launch: launching.Launch, log: RunLog, backend: Backend, network: Any, samples: Any) -> None:
    import torch

    from bench import host

    ranks = backend.gather(host.describe_rank(launch, torch.get_num_threads()))
    places = {(r["hostname"], r["local_rank"]) for r in ranks}
    if any(r["versions"] != ranks[0]["versions"] for r in ranks):
        raise RuntimeError(f"ranks run different versions: {[r['versions'] for r in ranks]}")
    if len(places) != launch.size or [r["rank"] for r in ranks] != list(range(launch.size)):
        raise RuntimeError(f"{launch.size} ranks hold {len(places)} distinct places (host, local rank): a doubled or lost rank")
    parameters = [p for p in network.parameters() if p.requires_grad]
    workload = {
        **samples,
        "parameters": sum(p.numel() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "preprocessing": "inside the clock",
    }
    facts = {"ranks": ranks, **host.describe_run(os.environ, backend.versions)}
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=facts, workload=workload)


def _write_end(log: RunLog, backend: Backend, facts: dict[str, Any]) -> bool:
    from bench import host

    passed = all(facts["checks"].values())
    status = "ok" if passed else "failed: " + ", ".join(name for name, good in facts["checks"].items() if not good)
    memory = backend.gather(host.peak_memory_bytes())
    log.write("end", status=status, **facts, exchange_bytes=backend.exchange_bytes(), peak_memory_bytes=memory)
    return passed


def _say_result(config: RunConfig, passed: bool, facts: dict[str, Any]) -> None:
    kept = f"log {config.log_path}" if config.log_path else "no --log-path given, nothing kept"
    failed = "" if passed else f", FAILED CHECKS {[name for name, good in facts['checks'].items() if not good]}"
    print(f"{config.cell} on {config.world_size} rank(s): loss {facts['last_loss']:.4g}{failed}; {kept}", file=sys.stderr)


def _record_failure(config: RunConfig, rank: int, log: RunLog, error: Exception) -> int:
    """Leave at once: other ranks may be waiting for this one, and the exit handlers of a broken world may wait for them."""
    message = (str(error).strip().splitlines() or [type(error).__name__])[0]
    wrong_input = isinstance(error, UsageError)
    if not wrong_input:
        message = f"{type(error).__name__}: {message}"
    try:
        if rank == 0:
            log.write("error", rank=rank, message=message)
            log.write("end", status=f"failed: {message}")
        elif config.log_path is not None:
            append_event(config.log_path, "error", rank=rank, message=message)
    except OSError as unwritable:
        print(f"error: rank {rank} cannot write {config.log_path}: {unwritable.strerror}", file=sys.stderr)
    if not wrong_input:
        import traceback

        traceback.print_exc()
    if rank == 0:
        _say_error(0, message)
    else:
        time.sleep(_RANK_0_SPEAKS_S)  # if it fails as well, its launcher ends this rank before it repeats the line
        print(f"error: rank {rank}: {message}", file=sys.stderr, flush=True)
    os._exit(INPUT_ERROR if wrong_input else 1)


def _say_error(rank: int, message: str) -> None:
    if rank == 0:
        print(f"error: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before there was a log to record it in
        sys.exit(128 + signal.SIGINT)
