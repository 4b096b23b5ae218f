"""Trying each cell for real: under a launcher of our own, else by every rank of the launch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.backends.catalogue import CATALOGUE, engines
from bench.launch import launcher
from bench.launch.world import Launch
from bench.study.collectives import efficiencies
from bench.tools.doctor import process
from bench.tools.doctor.findings import Finding, failure, ok, warning
from bench.tools.doctor.mailbox import Meeting
from bench.tools.doctor.options import Doctor, OneRank
from bench.tools.doctor.ranks import NO_MPI

ALONE_RANKS = 2
_WORTH_A_CURE = 0.01  # of a step
_DIGITS = 12  # of a SHA-256: enough to tell files apart
_CURE = "run python -m bench with this --backend and --transport to see all it prints"
_TORCHRUN = ("torch.distributed.run", "--standalone", "-m", "--nproc-per-node")


def cells(launch: Launch, chosen: Sequence[str] | None, gpus: int) -> list[str]:
    """Framework/transport pairs to try."""
    if chosen is not None:
        return [*chosen]
    transports = ["gloo"] if launch.source in NO_MPI else ["mpi", "gloo"]
    local = 1 if launch.source == "none" else launch.local_size  # NCCL refuses two on one GPU
    transports += ["nccl"] if gpus >= local else []
    pairs = [(name, transport) for transport in transports for name in engines()]
    return [f"{name}/{over}" for name, over in pairs if over in CATALOGUE[name].transports]


def groups(cells: Sequence[str]) -> list[list[str]]:
    """Cells by the process that tries them; MPI last, because a wrong one may end the rank."""
    over_mpi = [cell for cell in cells if cell.endswith("/mpi")]  # it starts once in a process
    alone = [[cell] for cell in cells if cell not in over_mpi]
    return [*alone, over_mpi] if over_mpi else alone


def ranks_alone(cell: str, gpus: int) -> int:
    """Of this machine, for a cell: two, but for NCCL where there is one GPU."""
    return 1 if cell.endswith("/nccl") and gpus == 1 else ALONE_RANKS


def alone(
    cells: Sequence[str], options: Doctor, mpirun: bool, gpus: int, say: Callable[[str], None]
) -> Iterator[Finding]:
    """Some ranks of this machine for each cell, under mpirun, or torchrun, which starts no MPI."""
    env = {**os.environ, **launcher.root_variables()}
    for cell in cells:
        if cell.endswith("/mpi") and not mpirun:
            yield failure(cell, "not tried: there is no mpirun", "see above")
            continue
        size = ranks_alone(cell, gpus)
        say(f"trying {cell} on {size} rank(s) of this machine (at most {options.limit_s:g} s)")
        start = launcher.command("mpirun", size, args=launcher.ON_THIS_MACHINE)
        start = [*start, *process.python()] if mpirun else process.python(*_TORCHRUN, str(size))
        command = [*start, *_words([cell], size, options)]
        answers, problem = process.run(command, env, options.limit_s)
        by_rank = {answer["rank"]: answer for answer in answers}
        yield judge(cell, by_rank, size, problem)
        yield from bound(cell, by_rank, size, options.alone)


def take_part(group: Sequence[str], launch: Launch, options: Doctor, meeting: Meeting) -> None:
    """This rank's share in trying `group` in one process; what came of it is told to the others."""
    command = process.python(*_words(group, launch.size, options))
    answers, problem = process.run(command, os.environ, options.limit_s * len(group))
    none = {"error": problem or "not tried after the failure before it", "cure": ""}
    by_cell = {answer["cell"]: answer for answer in answers}
    for cell in group:
        meeting.tell(f"trial.{cell}", by_cell.get(cell, none))


def _words(cells: Sequence[str], world_size: int, options: Doctor) -> list[str]:
    """The worker's command line."""
    fields = options.config.model_dump(mode="json", include={"threads", "rendezvous_dir"})
    fields |= {"world_size": world_size, "rendezvous_timeout_s": options.limit_s / 2}
    worker = "bench.tools.doctor.exchange_worker"
    size = options.alone.gradient_bytes if options.alone else 0
    return [worker, json.dumps(fields), ",".join(cells), str(options.limit_s), str(size)]


def bound(
    cell: str, answers: Mapping[int, Mapping[str, Any]], size: int, alone: OneRank | None
) -> Iterator[Finding]:
    """How much faster than `alone` a world of `size` can be at most, at the same batch per rank.

    N times the efficiencies of `bench.study.collectives`; nothing where the exchange was not timed,
    or on another device than `alone`.
    """
    exchange_s = answers.get(0, {}).get("exchange_s")
    if alone is None or exchange_s is None or size < 2 or device(cell) != alone.device:
        return
    visible, hidden = (size * e for e in efficiencies(alone.step_s, exchange_s))
    step, mb = f"{1000 * alone.step_s:.3g} ms", f"{alone.gradient_bytes / 1e6:.3g} MB"
    text = (
        f"{cell}: {size} ranks process at most {visible:.2f} times the images of one if nothing of "
        f"the exchange is hidden, {hidden:.2f} times if all is: a step takes {step}, an "
        f"all-reduce of its {mb} of gradients {1000 * exchange_s:.3g} ms"
    )
    if exchange_s > alone.step_s:
        cure = "use more images per rank, --compression fp16, or a faster network"
        yield warning("speed-up", f"{text}, which no step can hide", cure)
    else:
        yield ok("speed-up", text)


def layout(alone: OneRank | None) -> Iterator[Finding]:
    """Whether DDP would warn of strides in the training of one rank, and what that costs."""
    if alone is None or alone.strides is None:
        return
    if not alone.strides.count:
        yield ok("strides", f"all {alone.strides.of} gradients lie as their parameters do")
        return
    words = alone.strides.words(alone.step_s)
    if alone.strides.added_s < _WORTH_A_CURE * alone.step_s:
        yield ok("strides", f"{words}; the warning may be ignored")
    else:
        cure = "give the model the layout of its images, as --memory-format channels_last does"
        yield warning("strides", words, cure)


def device(cell: str) -> str:
    """Where a cell's gradients are."""
    return "cuda" if cell.endswith("/nccl") else "cpu"


def judge(
    cell: str, answers: Mapping[int, Mapping[str, Any]], size: int, problem: str | None = None
) -> Finding:
    """The word on what the ranks of a world of `size` answered about `cell`."""
    if errors := {rank: answers[rank] for rank in sorted(answers) if "error" in answers[rank]}:
        # a rank that waits in vain says less than the one that knows why
        rank = min(errors, key=lambda rank: "no answer within" in errors[rank]["error"])
        who = "" if len(errors) == size else f"rank {rank}: "
        return failure(cell, who + errors[rank]["error"], errors[rank]["cure"] or _CURE)
    if missing := [str(rank) for rank in range(size) if rank not in answers]:
        return failure(cell, problem or f"nothing from rank {', '.join(missing)}", _CURE)
    ms, mib = answers[0]["ms"], answers[0]["bytes"] / 2**20
    shown = {k: v[:_DIGITS] if "sha256" in k else v for k, v in answers[0]["versions"].items()}
    versions = ", ".join(f"{name} {version}" for name, version in shown.items())
    who = "1 rank averages" if size == 1 else f"{size} ranks average"
    text = f"{who} {mib:g} MiB of gradients in {ms:.3g} ms "
    text += f"({mib / ms * 1000:.3g} MiB/s)" + (f" with {versions}" if versions else "")
    return ok(cell, text)
