"""python -m bench: start the backend, run one configuration, write its log."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from bench import without

try:
    from bench import launch as launching
    from bench.config import RunConfig, UsageError, parse_argv
    from bench.machine import require_fit
    from bench.record import SCHEMA, RunLog, append_event
    from bench.resources import advice, environment, require_unmodified
except ModuleNotFoundError as missing:
    without(missing)

INPUT_ERROR = 2
_RANK_0_SPEAKS_S = 2.0
_LAUNCHER_READS_S = 0.3  # mpirun may drop the last words of a rank that leaves with an error at once


def main(argv: list[str]) -> int:
    """Exit status: 0 the run is ok, 1 it failed, 2 the input was wrong, 128 + n it was ended by signal n."""
    if argv[:1] == ["doctor"]:
        from bench.doctor.command import main as doctor

        return doctor(argv[1:])
    rank, launch = 0, None
    try:
        launch = launching.discover(os.environ)
        rank = launch.rank
        config = parse_argv(argv)
        _require_world(launch, config)
        require_unmodified(os.environ)
        require_fit(config, launch, os.environ)
        _set_resources(config, launch)
        log = RunLog(config.log_path if rank == 0 else None)
    except UsageError as error:
        if rank:
            time.sleep(_RANK_0_SPEAKS_S)  # a launcher ends all ranks when one leaves, so the one that speaks goes first
        _say_error(rank, str(error))
        if launch is not None and launch.size > 1:
            time.sleep(_LAUNCHER_READS_S)
        return INPUT_ERROR
    _watch_signals(rank, log)
    try:
        from bench.run import run  # loads torch: after the threads are set and the input is known to be good

        return 0 if run(config, launch, log) else 1
    except Exception as error:
        return _record_failure(config, rank, log, error)


def _require_world(launch: launching.Launch, config: RunConfig) -> None:
    """Raise WrongWorld; a study's run is recorded as refused, one by hand leaves nothing in the way of the next attempt."""
    try:
        launching.require_world(launch, config.world_size, os.environ)
    except launching.WrongWorld as error:
        if launch.rank == 0 and config.study is not None:
            with contextlib.suppress(UsageError):  # another of several worlds has written it, or it cannot be written
                log = RunLog(config.log_path)
                start = {"config": config.model_dump(mode="json"), "host": {"launch": launch.record()}, "workload": {}}
                log.write("start", schema=SCHEMA, **start)
                _write_failure(log, error, str(error))
        raise


def _write_failure(log: RunLog, error: Exception, message: str) -> None:
    log.write("error", rank=0, type=type(error).__name__, message=message)
    log.write("end", status=f"failed: {message}")


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


def _record_failure(config: RunConfig, rank: int, log: RunLog, error: Exception) -> int:
    """Leave at once: other ranks may be waiting for this one, and the exit handlers of a broken world may wait for them."""
    message = (str(error).strip().splitlines() or [type(error).__name__])[0]
    wrong_input = isinstance(error, UsageError)
    own = getattr(error, "trace", "")  # that of the user's own code follows the line that names it
    trace = f"\n{own}" if own else ""
    if not wrong_input:
        message = f"{type(error).__name__}: {message}"
    try:
        if rank == 0:
            _write_failure(log, error, message)
        elif config.log_path is not None:
            append_event(config.log_path, "error", rank=rank, type=type(error).__name__, message=message)
    except OSError as unwritable:
        print(f"error: rank {rank} cannot write {config.log_path}: {unwritable.strerror}", file=sys.stderr)
    if not wrong_input:
        import traceback

        traceback.print_exc()
    if rank == 0:
        _say_error(0, message + trace)
        time.sleep(_LAUNCHER_READS_S if config.world_size > 1 else 0)
    else:
        time.sleep(_RANK_0_SPEAKS_S)  # if it fails as well, its launcher ends this rank before it repeats the line
        print(f"error: rank {rank}: {message}{trace}", file=sys.stderr, flush=True)
    os._exit(INPUT_ERROR if wrong_input else 1)


def _say_error(rank: int, message: str) -> None:
    if rank == 0:
        print(f"error: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before there was a log to record it in
        sys.exit(128 + signal.SIGINT)
