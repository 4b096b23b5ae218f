"""Trying each cell for real: under a launcher of our own, else by every rank of the launch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.launch import launcher
from bench.launch.world import Launch
from bench.tools.doctor import process
from bench.tools.doctor.findings import Finding, failure, ok
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import Options

ALONE_RANKS = 2
_CURE = "run python -m bench with this --backend and --transport to see all it prints"
_TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(ALONE_RANKS), "-m")


def alone(
    cells: Sequence[str], options: Options, mpirun: bool, say: Callable[[str], None]
) -> Iterator[Finding]:
    """Two ranks of this machine for each cell, under mpirun, or torchrun, which starts no MPI."""
    start = launcher.command("mpirun", ALONE_RANKS, args=launcher.ON_THIS_MACHINE)
    start = [*start, *process.python()] if mpirun else process.python(*_TORCHRUN)
    env = {**os.environ, **launcher.root_variables()}
    for cell in cells:
        if cell.endswith("/mpi") and not mpirun:
            yield failure(cell, "not tried: there is no mpirun", "see above")
            continue
        say(f"trying {cell} on {ALONE_RANKS} ranks of this machine (at most {options.limit_s:g} s)")
        ended = process.run([*start, *_words([cell], ALONE_RANKS, options)], env, options.limit_s)
        answers = {answer["rank"]: answer for answer in ended.answers}
        yield _judge(cell, answers, ALONE_RANKS, ended.problem)


def take_part(group: Sequence[str], launch: Launch, options: Options, meeting: Meeting) -> None:
    """This rank's share in trying `group` in one process; what came of it is told to the others."""
    command = process.python(*_words(group, launch.size, options))
    ended = process.run(command, os.environ, options.limit_s * len(group))
    answers = {answer["cell"]: answer for answer in ended.answers}
    none = {"error": ended.problem or "not tried after the failure before it", "cure": ""}
    for cell in group:
        meeting.tell(f"trial.{cell}", answers.get(cell, none))


def judge(cell: str, launch: Launch, meeting: Meeting, limit_s: float) -> Finding:
    """Rank 0's word on what all ranks told about `cell`."""
    answers = meeting.hear(f"trial.{cell}", range(launch.size), limit_s)
    return _judge(cell, answers, launch.size, None)


def _words(cells: Sequence[str], world_size: int, options: Options) -> list[str]:
    fields: dict[str, Any] = {"world_size": world_size, "threads": options.threads}
    fields["rendezvous_timeout_s"] = options.limit_s / 2
    if options.rendezvous_dir is not None:
        fields["rendezvous_dir"] = str(options.rendezvous_dir)
    worker = "bench.tools.doctor.exchange_worker"
    return [worker, json.dumps(fields), ",".join(cells), str(options.limit_s)]


def _judge(
    cell: str, answers: Mapping[int, Mapping[str, Any]], size: int, problem: str | None
) -> Finding:
    errors = {rank: answers[rank] for rank in sorted(answers) if "error" in answers[rank]}
    if errors:
        # a rank that waits in vain says less than the one that knows why
        rank = min(errors, key=lambda rank: "no answer within" in errors[rank]["error"])
        text = errors[rank]["error"]
        text = text if len(errors) == size else f"rank {rank}: {text}"
        return failure(cell, text, errors[rank]["cure"] or _CURE)
    if missing := [str(rank) for rank in range(size) if rank not in answers]:
        return failure(cell, problem or f"nothing from rank {', '.join(missing)}", _CURE)
    ms, mib = answers[0]["ms"], answers[0]["bytes"] / 2**20
    versions = ", ".join(f"{name} {version}" for name, version in answers[0]["versions"].items())
    text = f"{size} ranks average {mib:g} MiB of gradients in {ms:.3g} ms "
    text += f"({mib / ms * 1000:.3g} MiB/s)"
    return ok(cell, text + (f" with {versions}" if versions else ""))
