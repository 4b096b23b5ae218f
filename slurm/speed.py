"""Whether runs can end within their time limit, at a speed that is measured or stated."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bench.config import RunConfig
from bench.record import read_run
from bench.record.archive import logs_in
from bench.study.jobs import studies_at
from bench.study.status import duration
from slurm.session import Work

# images/s of ResNet-50 in float32 on one core at 32 px: `single` in results/local. Larger images
# take longer.
OF_A_CORE = 26.4
_MODEL, _PRECISION, _PIXELS = "resnet50", "float32", 32
# what a rank's pace depends on, but for the images it takes at a time
_WORK = (
    *("model", "model_width", "dataset", "image_size", "device", "precision", "compile"),
    *("threads", "emulate"),
)
_MOST_LOGS = 50  # of a folder: enough for a median


@dataclass(frozen=True)
class Pace:
    """Images/s of one rank, and where the number is from."""

    images_per_s: float
    source: str

    def seconds(self, config: RunConfig) -> float:
        """Of all steps of a run; its start comes before them."""
        return config.steps * config.samples_per_rank / self.images_per_s


def too_slow(work: Work) -> str:
    """A line where planned runs will hardly end within the study's time limit; '' if all can."""
    limit_s, paces = work.study.time_limit_s, dict[tuple[object, ...], Pace | None]()
    late: list[tuple[float, RunConfig, Pace]] = []
    for config in (run.config for run in work.todo):
        if (kind := _work(config)) not in paces:
            paces[kind] = _pace(config, work)
        if (pace := paces[kind]) is not None and pace.seconds(config) > limit_s:
            late.append((pace.seconds(config), config, pace))
    if not late:
        return ""
    longest_s, config, pace = max(late, key=lambda run: run[0])
    runs = f"{len(late)} of {len(work.todo)} runs"
    needs = f"{duration(longest_s)} for {config.steps} steps of {config.samples_per_rank} images"
    return (
        f"warning: {runs} will hardly end within time_limit_s={limit_s}: a rank needs {needs} "
        f"at {pace.images_per_s:.3g} images/s, {pace.source}; use more threads, fewer images or "
        "steps, or --time-limit-s with more"
    )


def _pace(config: RunConfig, work: Work) -> Pace | None:
    """As measured at this site, else as its file says, else as measured by this project."""
    if config.emulate is not None:
        return None  # trains nothing, or sleeps as its timeline says
    if known := _measured(work, config):
        return Pace(
            statistics.median(known),
            f"measured there in {len(known)} run{'s' if len(known) > 1 else ''}",
        )
    if work.site.images_per_s is not None:
        return Pace(work.site.images_per_s, "as the site file says")
    stated = (config.model, config.precision, config.device) == (_MODEL, _PRECISION, "cpu")
    if not stated or config.image_size < _PIXELS:
        return None
    source = f"{config.threads} times {OF_A_CORE} of a core in results/local"
    source += " (images_per_s in the site file says otherwise)"
    return Pace(OF_A_CORE * config.threads, source)


def _work(config: RunConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in _WORK)


def _measured(work: Work, config: RunConfig) -> list[float]:
    """Images/s of a rank in runs of the same work: this study's, else of the
    first other one at the site that has any.
    """
    for folder in chain([work.folder.path], studies_at(work.folder.path, work.site.name)):
        if rates := list(_rates(logs_in(folder / "runs")[:_MOST_LOGS], config)):
            return rates
    return []


def _rates(logs: Iterable[Path], wanted: RunConfig) -> Iterator[float]:
    for log in logs:
        with suppress(ValueError, LookupError, TypeError, AttributeError):  # a damaged log
            run = read_run(log)
            if run.state == "ok" and run.config and _work(run.config) == _work(wanted):
                yield run.images_per_s / run.config.world_size
