"""What python -m bench does: read the input, run one configuration, record how the run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

from bench.config import RunConfig, UsageError, parse_argv
from bench.launch import world as launching
from bench.launch.machine import keep_freed, require_fit
from bench.launch.provenance import counters
from bench.launch.world import advice, environment, require_unmodified
from bench.lifecycle import ending as endings
from bench.lifecycle.ending import FAILED, INPUT_ERROR, Ending, Pulse, on_interrupt, watch_over
from bench.lifecycle.turns import ALONE, SharedTurns, Turns, TurnTable, place_of
from bench.progress import opening, say
from bench.record import SCHEMA, RunLog, set_aside

_TOOLS = {
    "doctor": "bench.tools.doctor.command",
    "collectives": "bench.tools.collectives",
    "timeline": "bench.tools.timeline",
}
_RANK_0_COMES_S = 10.0  # where it does not, another rank says why it leaves
RunBody = Callable[[RunConfig, launching.Launch, RunLog, Pulse], bool]  # true: did what was asked


def main(argv: list[str]) -> int:
    """Run `argv`; return or exit with 0 if ok, 1 if failed, 2 on bad input, 128 + n on signal n."""
    if argv and (tool := _TOOLS.get(argv[0])):
        main_of_tool: Callable[[list[str]], int] = import_module(tool).main
        return main_of_tool(argv[1:])

    def load(turns: Turns) -> RunBody:
        from bench.run import run

        return partial(run, turns=turns)

    return start(partial(parse_argv, argv), opening, load)


def start(
    read: Callable[[], RunConfig],
    say_what: Callable[[RunConfig], str],
    load: Callable[[Turns], RunBody],
    keeps_log: bool = True,
) -> int:
    """Read the input, print `say_what`'s line, run the function that `load` returns.

    Returns an exit status. Without `keeps_log` no log is written, but ranks on several nodes still
    meet in the folder of `log_path`.
    """
    rank, launch = 0, None
    try:
        launch = launching.discover(os.environ)
        rank = launch.rank
        config = read()
        _require_world(launch, config)
        require_unmodified(os.environ)
        require_fit(config, os.environ)
        if config.emulate is not None:  # a wrong timeline is seen before there is a log
            import_module("bench.instrument.timeline").read_for(config)
        keep_freed(os.environ)
        cores = len(os.sched_getaffinity(0))
        os.environ.update(environment(config, launch, cores, os.environ))
        if (line := advice(config, launch, cores)) is not None:
            say(f"warning: {line}")
        place = place_of(os.environ)
        table = None if place is None else TurnTable(place)
        log = RunLog(None)
        if rank == 0 and keeps_log:
            # a study's driver sets unfinished logs aside itself
            by_hand = config.log_path if config.study is None else None
            if by_hand and (note := set_aside(by_hand)):
                say(f"note: {note}")
            log = RunLog(config.log_path)
    except UsageError as error:
        if rank:  # once rank 0 has spoken, which may start late, the launcher ends this one
            time.sleep(_RANK_0_COMES_S)
        say(f"error: rank {rank}: {error}" if rank else f"error: {error}")
        if launch is not None and launch.size > 1:
            time.sleep(endings.LAUNCHER_READS_S)
        return INPUT_ERROR
    return _live(config, launch, log, table, say_what(config), load)


def _live(
    config: RunConfig,
    launch: launching.Launch,
    log: RunLog,
    table: TurnTable | None,
    opening_line: str,
    load: Callable[[Turns], RunBody],
) -> int:
    """Carry out the run and return its exit status; from here on, any end of the run is logged."""
    pulse = Pulse(shown=launch.rank == 0)
    launcher = None if launch.source == "none" else os.getppid()
    turns = ALONE
    if table is not None:
        turns = SharedTurns(table, launch, counters, config.stall_timeout_s)
    ending = Ending(config, launch.rank, log, pulse, launcher, turns)
    try:
        if launch.rank == 0:
            say(opening_line)
        on_interrupt(ending.signalled)
        watch_over(pulse, ending, config.stall_timeout_s)
        # torch: after the threads are set and the input is known to be good
        passed = load(turns)(config, launch, log, pulse)
    except BaseException as error:
        ending.failed(error)
    pulse.tick()  # the watchdog counts anew, so the kernel is first; it needs none of our threads
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, config.stall_timeout_s)
    return 0 if passed else FAILED


def _require_world(launch: launching.Launch, config: RunConfig) -> None:
    """Raise WrongWorld unless there are `world_size` ranks; a study's run also logs the failure."""
    try:
        launching.require_world(launch, config.world_size, os.environ)
    except launching.WrongWorld as error:
        if launch.rank == 0 and config.study is not None:
            # another of several worlds has written it, or it cannot be written
            with contextlib.suppress(UsageError):
                log = RunLog(config.log_path)
                fields, host = config.model_dump(mode="json"), {"launch": launch._asdict()}
                log.write("start", schema=SCHEMA, config=fields, workload={}, host=host)
                log.write("error", rank=0, type=type(error).__name__, message=str(error))
                log.write("end", status=f"failed: {error}")
        raise
