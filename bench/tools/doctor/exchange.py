"""Trying each cell for real: alone under a launcher of our own, else by every rank of the launch at
once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.launch import launcher
from bench.launch.world import Launch
from bench.tools.doctor import process
from bench.tools.doctor.exchange_worker import MARK
from bench.tools.doctor.findings import Finding, failure, ok
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import Options

Say = Callable[[str], None]
ALONE_RANKS = 2
_CURE = "run python -m bench with this --backend and --transport to see all it prints"


def alone(cells: Sequence[str], options: Options, mpirun: bool, say: Say) -> Iterator[Finding]:
    """Two ranks of this machine for each cell: under mpirun, and for lack of it under torchrun,
    which starts no MPI.
    """
    for cell in cells:
        if cell.endswith("/mpi") and not mpirun:
            yield failure(cell, "not tried: there is no mpirun", "see above")
            continue
        ranks = launcher.command("mpirun", ALONE_RANKS, args=launcher.ON_THIS_MACHINE)
        start = [*ranks, *process.python()[:1], "-m"]
        if not mpirun:
            start = process.python(
                "torch.distributed.run", "--standalone", "--nproc-per-node", str(ALONE_RANKS), "-m"
            )
        say(f"trying {cell} on {ALONE_RANKS} ranks of this machine (at most {options.limit_s:g} s)")
        env = {**os.environ, **launcher.root_variables()}
        ended = process.run(
            [*start, *_words([cell], ALONE_RANKS, options)], env, MARK, options.limit_s
        )
        answers = {answer["rank"]: answer for answer in ended.answers}
        yield _judge(cell, answers, ALONE_RANKS, ended.problem)


def take_part(group: Sequence[str], launch: Launch, options: Options, meeting: Meeting) -> None:
    """This rank's share in trying `group` in one process; what came of it is told to the others."""
    command = process.python(*_words(group, launch.size, options))
    ended = process.run(command, os.environ, MARK, options.limit_s * len(group))
    answers = {answer["cell"]: answer for answer in ended.answers}
    for cell in group:
        problem = ended.problem or "not tried after the failure before it"
        meeting.tell(
            f"trial.{cell}",
            answers.get(cell, {"cell": cell, "rank": launch.rank, "error": problem}),
        )


def judge(cell: str, launch: Launch, meeting: Meeting, limit_s: float) -> Finding:
    """Rank 0's word on what all ranks told about `cell`."""
    return _judge(
        cell, meeting.hear(f"trial.{cell}", range(launch.size), limit_s), launch.size, None
    )


def groups(cells: Sequence[str]) -> list[list[str]]:
    """Cells by the process that tries them. MPI starts once in a rank's life, and last, because a
    wrong one may end it.
    """
    over_mpi = [cell for cell in cells if cell.endswith("/mpi")]
    return [[cell] for cell in cells if cell not in over_mpi] + ([over_mpi] if over_mpi else [])


def _words(cells: Sequence[str], world_size: int, options: Options) -> list[str]:
    fields: dict[str, Any] = {
        "world_size": world_size,
        "threads": options.threads,
        "rendezvous_timeout_s": options.limit_s / 2,
    }
    if options.rendezvous_dir is not None:
        fields["rendezvous_dir"] = str(options.rendezvous_dir)
    return [
        "bench.tools.doctor.exchange_worker",
        json.dumps(fields),
        ",".join(cells),
        str(options.limit_s),
    ]


def _judge(
    cell: str, answers: Mapping[int, Mapping[str, Any]], size: int, problem: str | None
) -> Finding:
    errors = {
        rank: str(answer["error"]) for rank, answer in sorted(answers.items()) if "error" in answer
    }
    missing = sorted(set(range(size)) - set(answers))
    if errors:
        # a rank that waits in vain says less than the one that knows why
        rank = min(errors, key=lambda rank: "no answer within" in errors[rank])
        text, _, cure = errors[rank].partition("; ")
        return failure(cell, text if len(errors) == size else f"rank {rank}: {text}", cure or _CURE)
    if missing:
        return failure(cell, problem or f"nothing from rank {', '.join(map(str, missing))}", _CURE)
    answer = answers[0]
    versions = ", ".join(f"{name} {version}" for name, version in answer["versions"].items())
    mib = answer["bytes"] / 2**20
    text = (
        f"{size} ranks average {mib:g} MiB of gradients in {answer['ms']:.3g} ms "
        f"({mib / answer['ms'] * 1000:.3g} MiB/s)"
    )
    return ok(cell, text + (f" with {versions}" if versions else ""))
