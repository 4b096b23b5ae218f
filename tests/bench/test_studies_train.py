"""Every shipped study trains at rates that no training is known to leave, whatever the site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.config import RunConfig
from bench.config.rules import steep_rate
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from slurm.fit import fit
from slurm.site import find_study, read_site

ROOT = Path(__file__).parents[2]
STUDIES = sorted(
    path.stem
    for path in (ROOT / "slurm/studies").glob("*.toml")
    if "emulate" not in read_study(path).fields  # there nothing is trained
)
SITES = sorted(path.stem for path in (ROOT / "slurm/sites").glob("*.toml"))


def largest(name: str) -> Iterator[RunConfig]:
    """Yield the study's runs at the largest world of each curve, on every shipped site."""
    for site in SITES:
        study = fit(read_study(find_study(name)), read_site(site), (), find_study(name))
        runs: list[PlannedRun] = plan(study, 1, ROOT)[0]
        for curve in study.scaling:
            through = [run for run in runs if curve in run.config.curves]
            most = max(run.config.world_size for run in through)
            yield from (run.config for run in through if run.config.world_size == most)


@pytest.mark.parametrize("name", STUDIES)
def test_no_rate_of_the_largest_world_is_steep(name: str) -> None:
    configs = list(largest(name))
    assert not any(map(steep_rate, configs))
    steeper = {"max_lr": None, "base_lr": 100.0, "lr_warmup_steps": 0}
    assert all(steep_rate(config.model_copy(update=steeper)) for config in configs)
