"""Whether a study can end in a verdict at the noise that is known, before it is run."""

from __future__ import annotations

from bench.config import UsageError
from bench.study.limits import MAX_BLOCKS, MIN_BLOCKS
from slurm.cost import noise
from slurm.session import Work

_LIKELY = 0.5  # a study that ends without a verdict more often than with one is refused


def check(work: Work, assumed: float | None) -> None:
    """Raise UsageError where more blocks are asked for that will hardly end in a verdict."""
    if why := hopeless(work, assumed):
        raise UsageError(f"{why}; --no-verdict goes on all the same")


def hopeless(work: Work, assumed: float | None) -> str:
    """Why the study will hardly end in a verdict, and how many blocks would; '' if it may.

    Asked when blocks are first asked for, and whenever more are: what is begun is gone on with.
    Nothing is said where the noise is neither measured nor given, or where no verdict is wanted.
    """
    before = max((job.blocks for job in work.folder.read_jobs()), default=0)
    wanted = work.blocks >= MIN_BLOCKS and work.study.pairs and not work.no_verdict
    if work.blocks <= before or not wanted:
        return ""
    known = noise(work.statuses, work.study.pairs, assumed, work.site.noise)
    return _hopeless(work, known.sd, known.source) if known.known else ""


def _hopeless(work: Work, sd: float, source: str) -> str:
    from bench.study.looks import nominal_level
    from bench.study.power import POWER, blocks_for_verdict, power_of_verdict

    looks, margin = work.study.looks, work.study.margin
    blocks, level = max((*looks, work.blocks)), nominal_level(looks)
    power = power_of_verdict(sd, margin, blocks, level)
    if power >= _LIKELY:
        return ""
    needed = blocks_for_verdict(sd, margin, level) or f"more than {MAX_BLOCKS}"
    return (
        f"{blocks} blocks will hardly end in a verdict at {source}: a true difference of "
        f"{100 * margin:g} %, the margin, or equality would be shown in {100 * power:.0f} % of "
        f"such studies; {needed} blocks would do in {100 * POWER:.0f} %, or choose a wider margin"
    )
