"""Watch over a rank, and its early end: the rank records why, and exits with a code above 0.

A rank exits with 0 only through `main`, after an `end` event that says ok. A rank that ends here
kills its data loading processes. It skips all exit handlers: they may wait for other ranks, while
those may wait for its end.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from bench.config import RunConfig, UsageError
from bench.lifecycle.peers import ENDED, loading_processes, state, stop_loading, vanished
from bench.lifecycle.turns import Turns, TurnsBroken
from bench.progress import quantity, say
from bench.record import RunLog, append_event

FAILED, INPUT_ERROR = 1, 2
SIGNALS = (signal.SIGINT, signal.SIGTERM)
RANK_0_SPEAKS_S = 2.0  # first: a launcher ends all ranks when one leaves
LAUNCHER_READS_S = 0.3  # mpirun may drop the last words of a rank that leaves with an error at once
_SIGNAL_COMES_S = 1.0  # worlds that take turns are told to end one after the other
_LOOKED_AROUND_S = 0.5  # on a signal rank 0 looks who is gone already, so the others stay that long
_TICK_S = 1.0
_STACKS_COME_S = 1.5  # ranks notice a stall up to a tick apart, and one that leaves ends them all
_IN_LOADER = re.compile(r"Caught \w+ in (DataLoader worker process \d+)\.$")


class Pulse:
    """Progress of a rank: phase, batches and steps, for screen and watchdog (`watch_over`).

    The main thread updates the pulse and the watchdog reads it. With `shown`, set on one rank, the
    pulse prints phases, windows and epochs to standard error.
    """

    def __init__(self, *, shown: bool) -> None:
        self._say: Callable[[str], object] = say if shown else str
        self._phase, self._ticks = "loading torch", 0
        self._counts: Callable[[], tuple[int, int]] | None = None
        self.rates: list[float] = []  # images/s of the windows so far
        self.passed = False  # an `end` that says ok is written: the record is complete

    def enter(self, phase: str, counts: Callable[[], tuple[int, int]] | None = None) -> None:
        """Start a phase; `counts` returns the numbers of batches received and of steps done."""
        self._phase, self._counts = phase, counts
        self._say(phase)

    def leave(self) -> None:
        """Enter the last phase, "closing"; drop `counts`, which would keep the model in memory."""
        self._phase, self._counts = "closing", None

    def tick(self) -> None:
        """Count one piece of work that `counts` does not count, such as a held-out batch."""
        self._ticks += 1

    def window(self, done: int, total: int, images_per_s: float) -> None:
        """Note and print the speed of window `done` of `total`; call this between windows."""
        self.rates.append(images_per_s)
        self._say(f"window {done}/{total}: {quantity(images_per_s)} images/s")

    def epoch(self, training: int, epoch: int, accuracy: float) -> None:
        """Print an epoch's accuracy, given as 0 to 1; `training` and `epoch` count from 0."""
        self._say(f"training {training + 1}, epoch {epoch + 1}: {100 * accuracy:.2f} % right")

    def beat(self) -> tuple[object, ...]:
        """Return the progress so far. While it stays the same, no step, batch or phase ends."""
        # loading torch from a busy file system may take minutes, module by module
        return self._phase, self._ticks + len(sys.modules), self._counts and self._counts()

    def doing(self) -> str:
        """Return in words the phase, step or batch that is not finished."""
        if self._counts is None:
            return self._phase
        batches, steps = self._counts()
        waiting = f"waiting for its batch of step {batches + 1}"
        return f"in step {steps + 1}" if batches > steps else waiting


class Ending:
    """One rank's ways to end early. Each method but `is_orphan` records why and ends the process.

    The first call counts; calls by other threads wait. `launcher` is the parent's process id, or
    None for a run by hand, which may outlive its parent.
    """

    def __init__(
        self,
        config: RunConfig,
        rank: int,
        log: RunLog,
        pulse: Pulse,
        launcher: int | None,
        turns: Turns,
    ) -> None:
        self._processes, self._path = config.world_size, config.log_path
        self._rank, self._log, self._pulse = rank, log, pulse
        self._launcher, self._turns = launcher, turns
        self._leaving = threading.Lock()
        self._recorded = threading.Event()  # what is left is words for people

    def failed(self, error: BaseException) -> NoReturn:
        """Record the exception that the run raised, and exit: with 2 for a UsageError, else 1."""
        if isinstance(error, TurnsBroken):
            time.sleep(_SIGNAL_COMES_S)
        if self.is_orphan():  # then the others leave, and what the exchange says of it is no cause
            self.orphaned()
        code = INPUT_ERROR if isinstance(error, UsageError) else FAILED
        self._leave(code, lambda: self._record(error))

    def signalled(self, number: int) -> NoReturn:
        """Record the signal `number`, or the lost rank or launcher that caused it; then exit."""
        if self._rank and self._leaving.locked():  # rank 0 has spoken; the launcher ends us
            self._recorded.wait(RANK_0_SPEAKS_S)
            leave(FAILED)
        if number == signal.SIGTERM and self.is_orphan():
            self.orphaned()
        self._leave(128 + number, lambda: self._record_signal(number))

    def stalled(self, doing: str, silent_s: float) -> NoReturn:
        """Record `silent_s` seconds without progress, and what the rank is `doing`; exit."""
        self._leave(FAILED, lambda: self._record_stall(doing, silent_s))

    def orphaned(self) -> NoReturn:
        """Record that the launcher is gone, and exit, as nothing else would end this rank."""

        def record() -> None:
            self._end(status="interrupted", reason="its launcher is gone")
            say("interrupted: the launcher is gone")
            time.sleep(_LOOKED_AROUND_S if self._rank else 0)

        self._leave(FAILED, record)

    def is_orphan(self) -> bool:
        return self._launcher not in (None, os.getppid())  # the kernel replaces an ended parent

    def _leave(self, code: int, record: Callable[[], None]) -> NoReturn:
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()  # another thread is on its way out
        try:
            # a loading process that died may be the cause: torch's handler would raise once more
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._turns.break_off()  # first: ranks that are stopped hear of nothing
            record()
        except OSError as unwritable:
            say(f"error: rank {self._rank} cannot write {self._path}: {unwritable.strerror}")
        finally:
            leave(code)

    def _record(self, error: BaseException) -> None:
        if isinstance(error, OSError) and error.filename == str(self._path):
            raise error  # the log itself
        message, wrong_input = describe(error), isinstance(error, UsageError)
        # torch's own words, where it has noticed first
        if not wrong_input and "DataLoader worker" not in message:
            ended = [child.pid for child in loading_processes() if state(child.pid) == ENDED]
            message += "".join(f"; loading process {pid} has ended" for pid in ended)
        gone = [] if wrong_input else self._record_vanished()
        try:
            self._event(self._rank, type(error).__name__, message)
            self._end(status=f"failed: {gone[0] if gone else message}")
        finally:
            self._recorded.set()
            stop_loading()
            if not wrong_input:
                say("".join(traceback.format_exception(error)).rstrip())
                sys.stdout.flush()  # what the user printed
            if self._rank:
                # if rank 0 fails as well, the launcher ends this one before it repeats the line
                time.sleep(RANK_0_SPEAKS_S)
                message = f"rank {self._rank}: {message}"
            self._say([*gone, message])
            if wrong_input and (trace := getattr(error, "trace", "")):
                say(trace)  # of the user's own code, after the line that names it

    def _record_signal(self, number: int) -> None:
        """Record the signal `number`; if a lost rank caused it, record that rank instead."""
        stop_loading()  # mpirun kills the group of a rank some tenths of a second later
        gone = self._record_vanished(as_lowest=True) if number == signal.SIGTERM else []
        name = signal.Signals(number).name
        if self._rank:
            time.sleep(_LOOKED_AROUND_S)
        elif gone:
            self._end(status=f"failed: {gone[0]}")
            self._say(gone)
        else:
            self._end(status="interrupted", signal=name)
            say(f"interrupted by {name}")

    def _record_stall(self, doing: str, silent_s: float) -> None:
        message = f"no progress for {silent_s:.0f} s: {doing}"
        say(f"rank {self._rank}: {message}; its stacks, innermost first:")
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
        if not self._pulse.passed:
            self._event(self._rank, "Stalled", message)
        time.sleep(_STACKS_COME_S + (RANK_0_SPEAKS_S if self._rank else 0))
        if not self._pulse.passed:
            self._end(status=f"failed: rank {self._rank}: {message}")
        healthy = "where a healthy step, or the start, takes that long"
        say(f"nothing happens any more; {healthy}, use a larger --stall-timeout-s")
        self._say([f"rank {self._rank}: {message}"])

    def _record_vanished(self, as_lowest: bool = False) -> list[str]:
        """Record the ranks that `vanished` lists; return one line for each of these ranks."""
        if self._processes == 1 or self._pulse.passed:
            return []
        gone = vanished(self._path, self._rank, as_lowest)
        for rank, message in gone:
            self._event(rank, "Vanished", message)
        return [f"rank {rank}: {message}" for rank, message in gone]

    def _event(self, rank: int, kind: str, message: str) -> None:
        if self._rank == 0:
            self._log.write("error", rank=rank, type=kind, message=message)
        elif self._path is not None:
            with suppress(FileNotFoundError):  # no log is kept
                append_event(self._path, "error", rank=rank, type=kind, message=message)

    def _end(self, **fields: str) -> None:
        if self._rank == 0:  # a log takes only one
            self._log.write("end", **fields)

    def _say(self, lines: list[str]) -> None:
        say("\n".join(f"error: {line}" for line in lines))
        if self._rank == 0 and self._processes > 1:
            time.sleep(LAUNCHER_READS_S)


def leave(code: int) -> NoReturn:
    """End this process and its data loading processes at once, with exit status `code`."""
    try:
        stop_loading()
    finally:
        os._exit(code)


def describe(error: BaseException) -> str:
    """Describe any error in one line."""
    lines = str(error).strip().splitlines() or [""]
    if in_loader := _IN_LOADER.match(lines[0]):
        return f"{lines[-1]} (in {in_loader[1]})"  # torch puts the process's own error last
    if isinstance(error, UsageError):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")


def on_interrupt(end: Callable[[int], object]) -> None:
    """Start a thread that calls `end(number)` on SIGINT or SIGTERM; `end` must end the process.

    Python runs signal handlers on the main thread only, which may be waiting in C for a rank that
    is gone. Python's handler in C writes the number to a pipe at once, and the thread reads it.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # without a handler the pipe is not written
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch() -> None:
        # other signals with a handler, such as a child's end, come by here as well
        while number := os.read(read_end, 1)[0]:
            if number in SIGNALS:
                end(number)

    threading.Thread(target=watch, name="interrupts", daemon=True).start()


def watch_over(pulse: Pulse, ending: Ending, limit_s: float) -> None:
    """Start a thread that ends the process if `pulse` stops for `limit_s` or the launcher ends.

    The thread reads the pulse and the parent's process id once a second, or more often for a
    short limit. Time in which the whole process is stopped (Ctrl-Z) does not count.
    """

    def watch() -> NoReturn:
        tick_s = min(_TICK_S, limit_s / 4)
        last, silent_s, before = pulse.beat(), 0.0, time.monotonic()
        while True:
            time.sleep(tick_s)
            now = time.monotonic()
            silent_s, before = silent_s + min(now - before, 2 * tick_s), now
            if ending.is_orphan():
                ending.orphaned()
            beat = pulse.beat()
            if beat != last:
                last, silent_s = beat, 0.0
            elif silent_s >= limit_s:
                ending.stalled(pulse.doing(), silent_s)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
