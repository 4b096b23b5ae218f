"""What became of a run: state, reason and each rank's last words, from its log alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.launch.world import WrongWorld

# A planned run has no log yet; every other state is a log's.
STATES = (
    "ok",
    "running",
    "planned",
    "failed",
    "timed out",
    "interrupted",
    "out of memory",
    "node lost",
    "wrong world",
)
Event = Mapping[str, Any]

# What a rank says of its own memory: Python, numpy, C++, torch on the host, torch on a GPU.
_RANK_MEMORY = re.compile(
    r"MemoryError\b|\bbad_alloc\b|can't allocate memory|Cannot allocate memory|CUDA (error: )?out "
    r"of memory",
    re.IGNORECASE,
)
# What is said of a rank by those who ended it: Slurm's step daemon for the kernel's cgroup or its
# own limit, and srun.
_LAUNCHER_MEMORY = re.compile(
    r"error: .*(\boom[-_]kill|exceeded (job |step )?memory limit|OUT_OF_MEMORY|tasks? [\d,-]+: "
    r"Out Of Memory)",
    re.IGNORECASE,
)
# srun and Slurm's step daemon; mpirun says it of its daemon on the other node.
_NODE = re.compile(
    r"\bnode failure\b|\bNODE_FAIL\b|lost communication with a remote daemon", re.IGNORECASE
)
# How launchers name a rank and its end: srun; mpirun of a signal, which Open MPI 5 puts on a line
# of its own; of an exit code.
_SRUN_RANKS = re.compile(r"\btasks? ([\d,-]+): (.+)")
_MPIRUN_SIGNAL = re.compile(r"\bprocess rank (\d+) with PID .* exited on\s+(signal [^\n]*)")
_MPIRUN_CODE = re.compile(r"Process name: \[[^\n]*,(\d+)\]\s+Exit code: +(\d+)")
_TELLING = re.compile(r"error: |[\w.]*(Error|Exception)\b")
_KILL = re.compile(r"\bsignal 9\b|tasks? [\d,-]+: Killed")
_KILLED = 137  # the shell's code for it
_MOST_WORDS = 8


@dataclass(frozen=True)
class Verdict:
    """`reason` is one line, '' only if the run is ok; `words` has a line for each rank's last."""

    state: str
    reason: str = ""
    words: tuple[str, ...] = ()


OK = Verdict("ok")


def judge(events: Sequence[Event]) -> Verdict | None:
    """What the events say against a run, or None where its own `end` says that all is well.

    A known root cause outranks the way the run ended: ranks that survive a lost one are killed or
    time out later, and would hide it.
    """
    errors = [event for event in events if event["event"] == "error"]
    end, launcher = _last(events, "end"), _last(events, "exit")
    done = end.get("status") == "ok"
    if done and not errors:
        return None
    said = list(launcher.get("said", ()))
    words = _words(errors, said)
    if (cause := next(_causes(errors, said), None)) is not None:
        return Verdict(*cause, words)
    if _killed_for_memory(launcher, said):
        reason = (
            f"killed, and the kernel killed {launcher['oom_kills']} process(es) for lack of "
            f"memory meanwhile"
        )
        return Verdict("out of memory", _with_code(launcher, reason), words)
    if launcher.get("timed_out") and not done:
        return Verdict("timed out", f"timed out after {launcher.get('limit_s')} s", words)
    if launcher.get("interrupted") and not done:
        return Verdict("interrupted", _stopped(end))  # whatever ranks say while they are ended
    if errors:  # the first is the cause: ranks that lose a peer complain after it
        return Verdict("failed", _with_code(launcher, _error(errors[0])), words)
    if end.get("status") == "interrupted" and launcher.get("code") and "interrupted" in launcher:
        # nobody stopped the job: a launcher ends the other ranks of one that died
        reason = words[0] if words else f"{_stopped(end)} because another rank died"
        return Verdict("failed", _with_code(launcher, reason), words)
    if end.get("status") == "interrupted":
        return Verdict("interrupted", _stopped(end))
    if not end and not launcher:
        return Verdict("running", "no end event: killed or still running")
    if not end:
        return Verdict("failed", _with_code(launcher, words[0] if words else "no end event"), words)
    return Verdict(
        "failed", _with_code(launcher, str(end["status"]).removeprefix("failed: ")), words
    )


def _last(events: Sequence[Event], name: str) -> Event:
    return next((event for event in reversed(events) if event["event"] == name), {})


def _causes(errors: Sequence[Event], said: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Causes that have a state of their own, each with the line that proves it, in order."""
    yield from (("node lost", line) for line in said if _NODE.search(line))
    yield from (
        ("out of memory", _error(error))
        for error in errors
        if _RANK_MEMORY.search(error["message"])
    )
    yield from (
        ("out of memory", line)
        for line in said
        if _LAUNCHER_MEMORY.search(line) or _RANK_MEMORY.search(line)
    )
    # later ones may only miss a rank that has failed
    if errors and errors[0].get("type") == WrongWorld.__name__:
        yield "wrong world", _error(errors[0])


def _killed_for_memory(launcher: Event, said: Sequence[str]) -> bool:
    """The kernel killed for memory, a rank was killed, and no limit or person ended the run."""
    ended = launcher.get("timed_out") or launcher.get("interrupted")
    killed = launcher.get("code") == _KILLED or any(_KILL.search(line) for line in said)
    return bool(launcher.get("oom_kills")) and killed and not ended


def _error(error: Event) -> str:
    return f"rank {error['rank']}: {error['message']}"


def _stopped(end: Event) -> str:
    """By what the run was stopped, as far as it knew."""
    if end.get("reason"):
        return f"stopped: {end['reason']}"
    return f"stopped by {end['signal']}" if end.get("signal") else "stopped"


def _with_code(launcher: Event, reason: str) -> str:
    return f"exit code {launcher['code']}: {reason}" if "code" in launcher else reason


def _words(errors: Sequence[Event], said: Sequence[str]) -> tuple[str, ...]:
    """One line per rank that left one, equal lines joined; else the last of the launcher's."""
    by_rank: dict[int, str] = {}
    for error in errors:
        by_rank.setdefault(error["rank"], error["message"])
    for rank, line in _told(said):
        by_rank.setdefault(rank, line)
    if not by_rank:
        telling = [line for line in said if _TELLING.match(line)]
        return tuple((telling or list(said))[-1:])
    ranks_of: dict[str, list[int]] = {}
    for rank, line in sorted(by_rank.items()):
        ranks_of.setdefault(line, []).append(rank)
    lines = [f"rank {','.join(map(str, ranks))}: {line}" for line, ranks in ranks_of.items()]
    more = [f"and {len(lines) - _MOST_WORDS} more"] if len(lines) > _MOST_WORDS else []
    return (*lines[:_MOST_WORDS], *more)


def _told(said: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What launchers say of single ranks."""
    text = "\n".join(said)
    for tasks, how in _SRUN_RANKS.findall(text):
        for part in tasks.split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                yield from ((rank, how) for rank in range(int(first), int(last or first) + 1))
    yield from ((int(rank), how.rstrip(".")) for rank, how in _MPIRUN_SIGNAL.findall(text))
    yield from ((int(rank), f"exit code {code}") for rank, code in _MPIRUN_CODE.findall(text))
