"""What a run takes besides its time, as far as its log says: memory and arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.record import Run
from bench.study import stats
from bench.study.stats import Estimate


def of_run(run: Run) -> dict[str, float]:
    """Read off a run what is known: bytes of its largest rank, operations, peak of a device."""
    config, end = run.config, run.end
    assert config is not None
    values = {
        "rank_memory_bytes": _largest(end.get("peak_memory_bytes", ())),
        "device_memory_bytes": _largest(end.get("peak_device_memory_bytes", ())),
        "flops_per_image": end.get("flops_per_image"),
        "peak_flops_per_s": config.peak_tflops and 1e12 * config.peak_tflops,
    }
    return {name: float(value) for name, value in values.items() if value}


def _largest(of_ranks: Iterable[float | None]) -> float | None:
    return max((x for x in of_ranks if x is not None), default=None)


def of_point(
    blocks: Sequence[Mapping[str, float]], rate: Estimate, world_size: int
) -> dict[str, Estimate | None]:
    """Estimate what a point takes, by block, at its images/s; None where not known alike in all.

    Utilisation is of the device's peak as stated (model FLOP utilisation, Chowdhery et al. 2022).
    """

    def mean(name: str) -> Estimate | None:
        # of some blocks it would stand beside an n that is not its own
        values = [block[name] for block in blocks if name in block]
        return stats.geometric_mean(values) if len(values) == len(blocks) else None

    def constant(name: str) -> float | None:
        of_blocks = {block.get(name) for block in blocks}
        return of_blocks.pop() if len(of_blocks) == 1 else None

    flops, peak = constant("flops_per_image"), constant("peak_flops_per_s")
    achieved = rate.times(flops / world_size) if flops else None
    return {
        "rank_memory_bytes": mean("rank_memory_bytes"),
        "device_memory_bytes": mean("device_memory_bytes"),
        "flops_per_s_and_rank": achieved,
        "flop_utilisation": achieved.times(1 / peak) if achieved and peak else None,
    }
