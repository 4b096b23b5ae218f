"""The run log: JSON lines written during the run, and the reader that checks their proof.

Schema history (raise SCHEMA on any change, keep an old file under tests/fixtures):
  6  the first that is read. With observe=framework there is an event exchanges, and end has
     evidence
  7  with epochs there are events epoch, workload has held_out, and end has the check
     trainings_equal
  8  host and end may have servers, processes of the parameter server, and end the check
     updates_counted: written until version 1.0. With mode=async there is no parity, ranks may end
     unequal, and epoch has own_correct: of all held-out samples, what each rank has right by its
     own parameters
  9  config has variant; end has tcp_bytes: what each rank moved over TCP while it trained, by
     interface; threads of each rank; the check torch_settings_kept, and torch_settings_changed, in
     words, where the code of a model or data set changed them. With a model or a data set of the
     user's own, host has user_code: SHA-256 of its files, and end has that of the files that were
     imported later. Over NCCL each rank names the file of its NCCL (nccl_library), and versions has
     the loaded library's version, its SHA-256 and the transport that it took. A rank's gpu_settings
     are nvidia-smi's words for compute mode, persistence, MIG, power limit and clocks
 10  a run that takes turns with others has host.turns: launch, the name that all of them share, its
     turn, from 0, and how many worlds they are. Its node's and its own clock ticks leave out what
     passed outside its turns. exit has partner, the run of a launch whose end ended this one, and
     apart: why a run that was to take turns was launched by itself
 11  steps may have the phase lead_in: steps before a window, outside its clock
 12  end has flops_per_image
 14  end has strided_gradients: how many of rank 0's lie in other strides than their parameters,
     and seconds of each of ten copies of them all, from their strides and from their parameters'
 15  each rank has boot_id, its kernel's: nodes that have one share a machine's cores
 16  parity has not_proven: tensors that could not be compared; then the check is null, not true
 17  config has no variant: arm names the condition, of all cells or of one
 18  config has launch in place of block

Events in order are start, steps, breakdown, window, epoch, error, end and exit, every number as
measured: events.py says what each holds. A process that was killed leaves no end.

The last field of end and exit is sha256: of every byte of the file before the text `, "sha256": "`
of that line. What became of a run is no event: bench/record/outcome.py judges it from these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench.config import RunConfig, UsageError, explain
from bench.config.retired import without_retired
from bench.record import archive, proof
from bench.record.events import MOST_INTEGER, MOST_TEXT, Damaged, NoEvent, machine_of, parse
from bench.record.outcome import OK, STATES, RunOutcome, judge, last
from bench.record.proof import CHECKS
from bench.record.writer import RunLog, append_event, changed, lines_of

__all__ = ["CHECKS", "READABLE", "SCHEMA", "STATES", "Run", "RunLog", "RunOutcome", "allocation"]
__all__ += ["append_event", "parse_run", "read_run"]

SCHEMA = 18
READABLE = tuple(range(6, SCHEMA + 1))
_MOST_REASON = 1000  # characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def allocation(job: object, restart: object) -> str:
    """Write 'job 77, restart 1', as a requeued job keeps its id and may get other nodes."""
    return f"job {job}" if str(restart) == "0" else f"job {job}, restart {restart}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One log as read; its values have the types that bench/record/events.py promises.

    `damage` says why the log must not be believed. `torn` names a line that is no event.
    """

    path: Path
    config: RunConfig | None
    host: Mapping[str, Any]
    workload: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    schema: int = SCHEMA
    damage: str | None = None
    torn: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that held a rank, each once, sorted."""
        return tuple(sorted({rank["hostname"] for rank in self.host.get("ranks", ())}))

    @property
    def machines(self) -> int:
        """How many machines held a rank: one or more nodes each."""
        return len({machine_of(rank) for rank in self.host.get("ranks", ())})

    @property
    def allocation(self) -> str:
        """The scheduler's allocation it ran in, or the session that stands for one; '' if none."""
        job = self.host.get("job", {})
        number, restart = job.get("SLURM_JOB_ID"), job.get("SLURM_RESTART_COUNT", 0)
        if number is not None:
            return allocation(number, restart)
        return f"session {session}" if (session := self.exit.get("session")) else ""

    @property
    def windows(self) -> list[Mapping[str, Any]]:
        """The `window` events, in order."""
        return [e for e in self.events if e["event"] == "window"]

    @property
    def window_seconds(self) -> list[float]:
        """Seconds of each window on its slowest rank."""
        return [w["seconds"] for w in self.windows]

    def steps(self, phase: str) -> list[list[list[float]]]:
        """List seconds of every step, shape [window][rank][step]; phase `warmup` is one window."""
        return [e["seconds"] for e in self.events if e["event"] == "steps" and e["phase"] == phase]

    def step_seconds(self, phase: str = "window") -> list[list[float]]:
        """List seconds of every step, shape [rank][step], windows joined; also of another phase."""
        return [list(chain.from_iterable(rank)) for rank in zip(*self.steps(phase), strict=False)]

    @property
    def step_seconds_mean(self) -> float:
        """Mean seconds per step of the whole run: all windows' seconds over their steps."""
        return sum(self.window_seconds) / float(sum(w["steps"] for w in self.windows))

    @property
    def images_per_s(self) -> float:
        """Throughput of the whole run, on all ranks (Hoefler & Belli 2015, rule 3)."""
        assert self.config is not None
        return self.config.samples_per_step / self.step_seconds_mean

    @property
    def end(self) -> Mapping[str, Any]:
        """The `end` event, empty if the process never wrote one."""
        return last(self.events, "end")

    @property
    def exit(self) -> Mapping[str, Any]:
        """The launcher's `exit` event, empty where none was appended."""
        return last(self.events, "exit")

    @property
    def parity_not_proven(self) -> list[str]:
        """Tensors of which the run could not prove that every rank got the mean."""
        return proof.unproven(self.end)

    @cached_property
    def broken(self) -> str | None:
        """Why a log that claims a good end, or has none yet, must not be believed; or None."""
        outcome = judge(self.events)
        if outcome is None:
            return self.damage or self.torn
        ended = self.end or self.exit.get("code") or last(self.events, "error")
        return None if ended else self.damage

    @cached_property
    def outcome(self) -> RunOutcome:
        """What became of the run; ok only if the log proves that it did all it was asked to do."""
        outcome = self._outcome()
        if outcome == OK:
            return OK
        lines = (outcome.reason, *outcome.words)
        reason, *words = (_CONTROL.sub(" ", line)[:_MOST_REASON] for line in lines)
        return RunOutcome(outcome.state, reason or "no reason given", tuple(words))

    def _outcome(self) -> RunOutcome:
        """Judge by causes that events name, then damage, then what a good end does not prove."""
        if self.broken is not None:
            return RunOutcome("failed", self.broken)
        if (outcome := judge(self.events)) is not None:
            return outcome
        if self.config is None:
            return RunOutcome("failed", "no usable start event")
        if (mismatch := proof.wrong_world(self.config, self.host)) is not None:
            return RunOutcome("wrong world", mismatch)
        missing = proof.missing(self.config, self.schema, self.events)
        return OK if missing is None else RunOutcome("failed", missing)

    @property
    def problem(self) -> str | None:
        """Why this log must not be used, or None."""
        return self.outcome.reason or None

    @property
    def state(self) -> str:
        """One of STATES, but never 'planned'; 'running' where there is no end and no exit yet."""
        return self.outcome.state


def read_run(path: Path) -> Run:
    """Read one log in any state, in its study's archive too; raises UsageError only if it cannot
    be read.
    """
    try:
        return parse_run(path, archive.read_file(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def parse_run(path: Path, data: bytes) -> Run:
    """Parse the log in `data` to a Run that can be relied on, whatever the bytes are.

    A torn last line (killed while writing) ends the log. A log of an unknown schema has a problem.
    """
    events, lines, damaged, torn = [], [], [], []
    for line in lines_of(data):
        try:
            events.append(parse(line.text))
            lines.append(line)
        except NoEvent as error:
            torn.append(f"line {line.number} is no event: {error}")
        except Damaged as error:
            damaged.append(f"damaged log: line {line.number}: {error}")
    start = next((event for event in events if event["event"] == "start"), {})
    schema = start.get("schema", READABLE[0])
    config = None
    try:
        config = _config(start) if start else None
    except Damaged as error:
        damaged = [f"no usable start event: {error}"]
    repeated = (
        f"damaged log: {n} {name} events"  # from another run: a run has one of each
        for name in ("start", "end")
        if (n := sum(event["event"] == name for event in events)) > 1
    )
    problems = chain(damaged, repeated, changed(events, lines, data))
    return Run(
        path=path,
        config=config,
        host=start.get("host", {}),
        workload=start.get("workload", {}),
        events=tuple(events),
        schema=schema,
        damage=next(problems, None),
        torn=next(iter(torn), None),
    )


def _config(start: Mapping[str, Any]) -> RunConfig:
    """Read the config that a run was asked for. Raises Damaged where it cannot be read."""
    if start["schema"] not in READABLE:
        reads = f"this version reads {READABLE[0]} to {READABLE[-1]}"
        raise Damaged(f"schema {start['schema']}, and {reads}")
    try:
        values = without_retired(start["config"], start["schema"])
    except ValueError as error:
        raise Damaged(f"config.{error}") from None
    for name, value in values.items():
        size = abs(value) if isinstance(value, int) else 0
        if size >= MOST_INTEGER or (isinstance(value, str) and len(value) > MOST_TEXT):
            raise Damaged(f"config.{name[:MOST_TEXT]} is beyond any real one")
    try:
        config = RunConfig(**values)
    except ValidationError as error:
        raise Damaged(f"config.{explain(error)}") from None
    dumped = config.model_dump(mode="json")
    written = {name: dumped[name] for name in values}
    if json.dumps(values) != json.dumps(written):  # true for 1, or "4" for 4
        name = next(n for n in values if json.dumps(values[n]) != json.dumps(written[n]))
        raise Damaged(f"config.{name}={values[name]!r}, which a log has as {written[name]!r}")
    return config
