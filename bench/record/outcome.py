"""What became of a run: state, reason and each rank's last words, from its log alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.launch.world import WrongWorld

# A planned run has no log yet; every other state is a log's.
STATES: tuple[str, ...] = ("ok", "running", "planned", "failed", "timed out", "interrupted")
STATES += ("out of memory", "node lost", "wrong world")
Event = Mapping[str, Any]

# What a rank says of its own memory: Python, numpy, C++, torch on the host, torch on a GPU.
_RANK_MEMORY = re.compile(
    r"(?i)MemoryError\b|\bbad_alloc\b|can't allocate memory|Cannot allocate memory|"
    r"CUDA (error: )?out of memory"
)
# What Slurm's step daemon (for the kernel's cgroup, or its own limit) and srun say of a rank.
_LAUNCHER_MEMORY = re.compile(
    r"(?i)error: .*(\boom[-_]kill|exceeded (job |step )?memory limit|OUT_OF_MEMORY|"
    r"tasks? [\d,-]+: Out Of Memory)"
)
# srun and Slurm's step daemon; mpirun says it of its daemon on the other node.
_NODE = re.compile(r"(?i)\bnode failure\b|\bNODE_FAIL\b|lost communication with a remote daemon")
# How launchers name a rank and its end: srun; mpirun of a signal, which Open MPI 5 puts on a line
# of its own; of an exit code. A rank has six digits at most: more would be counted for minutes.
_SRUN_RANKS = re.compile(r"\btasks? ([\d,-]+): (.+)")
_SRUN_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MPIRUN_SIGNAL = re.compile(r"\bprocess rank (\d{1,6}) with PID .* exited on\s+(signal [^\n]*)")
_MPIRUN_CODE = re.compile(r"Process name: \[[^\n]*,(\d{1,6})\]\s+Exit code: +(\d+)")
_TELLING = re.compile(r"error: |[\w.]*(Error|Exception)\b")
_KILL = re.compile(r"\bsignal 9\b|tasks? [\d,-]+: Killed")
_BROKEN = "TurnsBroken"  # of a rank that another one woke to end
_KILLED = 137  # the shell's code for it
_MOST_WORDS = 8


@dataclass(frozen=True)
class RunOutcome:
    """`reason` is one line, '' only if the run is ok; `words` has a line for each rank's last."""

    state: str
    reason: str = ""
    words: tuple[str, ...] = ()


OK = RunOutcome("ok")


def judge(events: Sequence[Event]) -> RunOutcome | None:
    """Tell what the events say against a run, or None where its own `end` says that all is well.

    A known root cause outranks the way the run ended: ranks that survive a lost one are killed or
    time out later, and would hide it.
    """
    errors = [event for event in events if event["event"] == "error"]
    end, launcher = last(events, "end"), last(events, "exit")
    status = end.get("status", "")
    if status == "ok" and not errors:
        return None
    launcher_lines = list(launcher.get("said", ()))
    words = _words(errors, launcher_lines)
    code = f"exit code {launcher['code']}: " if "code" in launcher else ""
    by = f" by {end['signal']}" if end.get("signal") else ""
    stopped = f"stopped: {end['reason']}" if end.get("reason") else f"stopped{by}"
    ended = launcher.get("timed_out") or launcher.get("interrupted")
    if (cause := next(_causes(errors, launcher_lines), None)) is not None:
        return RunOutcome(*cause, words)
    if (partner := launcher.get("partner")) and status != "ok":
        return RunOutcome("failed", f"ended with {partner}, the run that it took turns with")
    killed = launcher.get("code") == _KILLED or any(_KILL.search(line) for line in launcher_lines)
    if (kills := launcher.get("oom_kills")) and killed and not ended:
        memory = f"killed, and the kernel killed {kills} process(es) for lack of memory"
        return RunOutcome("out of memory", code + memory, words)
    if launcher.get("timed_out") and status != "ok":
        return RunOutcome("timed out", f"timed out after {launcher.get('limit_s')} s", words)
    if launcher.get("interrupted") and status != "ok":
        return RunOutcome("interrupted", stopped)  # whatever ranks say while they are ended
    if errors:
        # the first is the cause, as ranks that lose a peer complain after it
        root = next((error for error in errors if error.get("type") != _BROKEN), errors[0])
        return RunOutcome("failed", code + _error(root), words)
    if status == "interrupted" and launcher.get("code") and "interrupted" in launcher:
        # the job was not stopped: when a rank dies, its launcher ends the others
        died = words[0] if words else f"{stopped} because another rank died"
        return RunOutcome("failed", code + died, words)
    if status == "interrupted":
        return RunOutcome("interrupted", stopped)
    if end:
        return RunOutcome("failed", code + status.removeprefix("failed: "), words)
    if launcher:
        return RunOutcome("failed", code + (words[0] if words else "no end event"), words)
    return RunOutcome("running", "no end event: killed or still running")


def last(events: Sequence[Event], name: str) -> Event:
    """Find the last event of a name; return an empty one if there is none."""
    return next((event for event in reversed(events) if event["event"] == name), {})


def _causes(errors: Sequence[Event], launcher_lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield causes that have a state of their own, each with the line that proves it, in order."""
    memory = "out of memory"
    yield from (("node lost", line) for line in launcher_lines if _NODE.search(line))
    yield from ((memory, _error(e)) for e in errors if _RANK_MEMORY.search(e["message"]))
    for line in launcher_lines:
        if _LAUNCHER_MEMORY.search(line) or _RANK_MEMORY.search(line):
            yield memory, line
    # later ones may only miss a rank that has failed
    if errors and errors[0].get("type") == WrongWorld.__name__:
        yield "wrong world", _error(errors[0])


def _error(error: Event) -> str:
    return f"rank {error['rank']}: {error['message']}"


def _words(errors: Sequence[Event], launcher_lines: Sequence[str]) -> tuple[str, ...]:
    """Take one line per rank that left one, equal lines joined, else the launcher's last line."""
    by_rank: dict[int, str] = {}
    for error in errors:
        by_rank.setdefault(error["rank"], error["message"])
    for rank, line in _rank_lines(launcher_lines):
        by_rank.setdefault(rank, line)
    if not by_rank:
        telling = [line for line in launcher_lines if _TELLING.match(line)]
        return tuple((telling or list(launcher_lines))[-1:])
    ranks_of: dict[str, list[int]] = {}
    for rank, line in sorted(by_rank.items()):
        ranks_of.setdefault(line, []).append(rank)
    lines = [f"rank {','.join(map(str, ranks))}: {line}" for line, ranks in ranks_of.items()]
    more = [f"and {len(lines) - _MOST_WORDS} more"] if len(lines) > _MOST_WORDS else []
    return (*lines[:_MOST_WORDS], *more)


def _rank_lines(launcher_lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Read ranks and their last words from the launchers' lines on single ranks."""
    text = "\n".join(launcher_lines)
    for tasks, ending in _SRUN_RANKS.findall(text):
        for part in tasks.split(","):
            if match := _SRUN_RANGE.fullmatch(part):
                ranks = range(int(match[1]), int(match[2] or match[1]) + 1)
                yield from ((rank, ending) for rank in ranks)
    yield from ((int(rank), ending.rstrip(".")) for rank, ending in _MPIRUN_SIGNAL.findall(text))
    yield from ((int(rank), f"exit code {code}") for rank, code in _MPIRUN_CODE.findall(text))
