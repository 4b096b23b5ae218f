"""How a rank ends: it records why, kills its loading processes and exits with a code but 0.

Exit code 0 is left to `main`, after an `end` that says ok. A rank that ends here ends at once:
other ranks may be waiting for it, and the exit handlers of a broken world may wait for them.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from bench.config import RunConfig, UsageError
from bench.lifecycle import loading
from bench.lifecycle.peers import ENDED, Launcher, loading_processes, state, vanished
from bench.lifecycle.pulse import Pulse
from bench.lifecycle.turns import Turns, TurnsBroken
from bench.progress import say
from bench.record import RunLog, append_event

FAILED, INPUT_ERROR = 1, 2
RANK_0_SPEAKS_S = 2.0  # first: a launcher ends all ranks when one leaves
LAUNCHER_READS_S = 0.3  # mpirun may drop the last words of a rank that leaves with an error at once
_SIGNAL_COMES_S = 1.0  # worlds that take turns are told to end one after the other
_LOOKED_AROUND_S = 0.5  # on a signal rank 0 looks who is gone already, so the others stay that long
_IN_LOADER = re.compile(r"Caught \w+ in (DataLoader worker process \d+)\.$")
_temporary: set[Path] = set()


class Ending:
    """One rank's ways to end. The first thread to call one takes it; the others wait."""

    def __init__(
        self,
        config: RunConfig,
        rank: int,
        log: RunLog,
        pulse: Pulse,
        launcher: Launcher | None,
        turns: Turns,
    ) -> None:
        self._processes = config.world_size
        self._path = config.log_path
        self._rank, self._log, self._pulse = rank, log, pulse
        self._launcher, self._turns = launcher, turns
        self._identity = _identity(self._path)
        self._leaving = threading.Lock()
        self._recorded = threading.Event()  # what is left is words for people

    def failed(self, error: BaseException) -> NoReturn:
        """Record the exception that the run raised, and leave."""
        if isinstance(error, TurnsBroken):
            time.sleep(_SIGNAL_COMES_S)
        if self.is_orphan():  # then the others leave, and what the exchange says of it is no cause
            self.orphaned()
        code = INPUT_ERROR if isinstance(error, UsageError) else FAILED
        self._leave(code, lambda: self._record(error))

    def signalled(self, number: int) -> NoReturn:
        """Record the signal that arrived, and leave."""
        if self._rank and self._leaving.locked():  # rank 0 has spoken; the launcher ends us
            self._recorded.wait(RANK_0_SPEAKS_S)
            leave(FAILED)
        if number == signal.SIGTERM and self.is_orphan():
            self.orphaned()
        self._leave(128 + number, lambda: self._record_signal(number))

    def stalled(self, doing: str, silent_s: float) -> NoReturn:
        """Record that nothing has happened for `silent_s` seconds, and leave."""
        self._leave(FAILED, lambda: self._record_stall(doing, silent_s))

    def orphaned(self) -> NoReturn:
        """Record that the launcher is gone, and leave, as nothing else would end this rank."""

        def record() -> None:
            self._end(status="interrupted", reason="its launcher is gone")
            say("interrupted: the launcher is gone")
            time.sleep(_LOOKED_AROUND_S if self._rank else 0)

        self._leave(FAILED, record)

    def is_orphan(self) -> bool:
        return self._launcher is not None and self._launcher.gone()

    def find_log(self) -> bool:
        """Check whether the log is still where it was created; print an error where it is not."""
        if _identity(self._path) == self._identity:
            return True
        lost = "was removed or replaced while the run went on: its record is lost"
        say(f"error: {self._path} {lost}")
        return False

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
            wrong = f"cannot write {self._path}: {unwritable.strerror}"
            say(f"error: rank {self._rank} {wrong}")
            if self._rank == 0:
                message = f"{wrong}; what was written last had to make room"
                with suppress(OSError):
                    self._log.make_room()
                    self._event(0, "OSError", message)  # before others tell of what that did
                    self._end(status=f"failed: {message}")
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
            loading.stop()
            if not wrong_input:
                traceback.print_exception(error, file=sys.stderr)
                sys.stdout.flush()  # what the user printed
            if self._rank:
                # if rank 0 fails as well, the launcher ends this one before it repeats the line
                time.sleep(RANK_0_SPEAKS_S)
                message = f"rank {self._rank}: {message}"
            self._say([*gone, message])
            if wrong_input and (trace := getattr(error, "trace", "")):
                say(trace)  # of the user's own code, after the line that names it

    def _record_signal(self, number: int) -> None:
        """Record a signal, or the dead rank because of which mpirun or torchrun ends all ranks."""
        loading.stop()  # mpirun kills the group of a rank some tenths of a second later
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
        # the others show their stacks now, and one that leaves ends them all
        time.sleep(RANK_0_SPEAKS_S if self._rank else _LOOKED_AROUND_S)
        if not self._pulse.passed:
            self._end(status=f"failed: rank {self._rank}: {message}")
        healthy = "where a healthy step, or the start, takes that long"
        say(f"nothing happens any more; {healthy}, use a larger --stall-timeout-s")
        self._say([f"rank {self._rank}: {message}"])

    def _record_vanished(self, as_lowest: bool = False) -> list[str]:
        """Record the ranks of this host that ended without a record; return one line for each."""
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
            append_event(self._path, "error", rank=rank, type=kind, message=message)

    def _end(self, **fields: str) -> None:
        if self._rank == 0:  # a log takes only one
            self._log.write("end", **fields)

    def _say(self, lines: list[str]) -> None:
        say("\n".join(f"error: {line}" for line in lines))
        if self._rank == 0 and self._processes > 1:
            time.sleep(LAUNCHER_READS_S)


@contextmanager
def temporary(path: Path) -> Iterator[None]:
    """Remove this file afterwards, also if the process ends in between."""
    _temporary.add(path)
    try:
        yield
    finally:
        _remove_temporary()


def _remove_temporary() -> None:
    for path in tuple(_temporary):
        with suppress(OSError):
            path.unlink()
        _temporary.discard(path)


def leave(code: int) -> NoReturn:
    """End the process now, with its loading processes and temporary files."""
    try:
        _remove_temporary()
        loading.stop()
    finally:
        os._exit(code)


def alarm(limit_s: float) -> None:
    """Let the kernel end the process after `limit_s`, when Python has shut down its threads."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def describe(error: BaseException) -> str:
    """Describe any error in one line."""
    try:
        lines = str(error).strip().splitlines() or [""]
    except Exception:  # of the user's own class
        lines = ["an error without words"]
    line = lines[0]
    if isinstance(error, SystemExit):
        line = f"sys.exit({error.code}) was called ({_raised_at(error)})"
    elif isinstance(error, KeyboardInterrupt):
        line = f"raised ({_raised_at(error)})"
    elif in_loader := _IN_LOADER.match(line):
        return f"{lines[-1]} (in {in_loader[1]})"  # torch puts the process's own error last
    if isinstance(error, UsageError):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _raised_at(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    if not places:
        return "unknown place"
    place = places[-1]
    inside = Path(place.filename).is_relative_to(Path.cwd())
    file = os.path.relpath(place.filename) if inside else place.filename
    return f"{file}:{place.lineno} {place.name}"


def _identity(path: Path | None) -> Any:
    try:
        return None if path is None else ((status := path.stat()).st_dev, status.st_ino)
    except OSError:
        return "gone"
