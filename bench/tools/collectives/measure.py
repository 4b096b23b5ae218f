"""One collective at one size: repetitions with known numbers, timed and checked on every rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.backends.collectives import Collectives
from bench.backends.protocol import Backend
from bench.study.collectives import Timed, slowest
from bench.train.device import Device

_WARM_UP = 1  # calls before the timed ones: connections, caches, fresh memory


@dataclass(frozen=True, kw_only=True)
class Outcome:
    kind: str
    bytes: int
    seconds: list[list[float]]  # [rank][repetition]
    wrong: int  # results, over all ranks and repetitions

    @property
    def timed(self) -> Timed:
        ranks, seconds = len(self.seconds), slowest(self.seconds)
        return Timed(kind=self.kind, bytes=self.bytes, ranks=ranks, seconds=seconds)


def time_one(
    offered: Collectives,
    kind: str,
    size: int,
    repetitions: int,
    backend: Backend,
    place: Device,
    rank: int,
) -> Outcome:
    """Time a collective without barrier and refill; read the clock when the device has finished."""
    call, watch = getattr(offered, kind), place.stopwatch()
    ranks = offered.ranks
    elements = -(-size // 4 // ranks) * ranks  # the same part for every rank
    # small whole numbers, whose sums are exact; no period of theirs is a part's
    pattern = (torch.arange(elements, device=place.torch_device) % 251 + 1).float()
    sent, right = _known(kind, pattern, rank, ranks)
    tensor, seconds, wrong = sent.clone(), [], 0
    for repetition in range(_WARM_UP + repetitions):
        tensor.copy_(sent)
        watch.now()
        backend.barrier()
        started = watch.now()
        result = call(tensor)
        took = watch.now() - started
        if repetition >= _WARM_UP:
            seconds.append(took)
            wrong += not torch.equal(result, right)
        result.zero_()  # so that the next one cannot pass for it
    counted = backend.gather((seconds, wrong))
    of_ranks = [of_rank for of_rank, _ in counted]
    return Outcome(
        kind=kind, bytes=4 * elements, seconds=of_ranks, wrong=sum(wrong for _, wrong in counted)
    )


def _known(
    kind: str, pattern: torch.Tensor, rank: int, ranks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make what a rank gives, and what it must get: rank r holds the pattern r + 1 times."""
    part = slice(rank * len(pattern) // ranks, (rank + 1) * len(pattern) // ranks)
    scaled, total = pattern * (rank + 1), ranks * (ranks + 1) // 2
    if kind == "all_gather":
        factors = torch.arange(1, ranks + 1, device=pattern.device)
        return scaled[part].clone(), (pattern.view(ranks, -1) * factors[:, None]).view(-1)
    if kind == "broadcast":
        return scaled, pattern
    if kind == "reduce_scatter":
        return scaled, pattern[part] * total
    return scaled, pattern * total
