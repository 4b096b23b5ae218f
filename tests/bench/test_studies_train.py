"""Every shipped study trains at rates that no training is known to leave, whatever the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.rules import steep_rate
from bench.study.files import read_study
from bench.study.plan import plan
from slurm.fit import fit
from slurm.site import find_study, read_site

ROOT = Path(__file__).parents[2]
STUDIES = sorted(
    path.stem
    for path in (ROOT / "slurm/studies").glob("*.toml")
    if "emulate" not in read_study(path).fields  # there nothing is trained
)
SITES = sorted(path.stem for path in (ROOT / "slurm/sites").glob("*.toml"))


@pytest.mark.parametrize("name", STUDIES)
def test_no_rate_is_steep(name: str) -> None:
    for site in SITES:
        study = fit(read_study(find_study(name)), read_site(site), (), find_study(name))
        configs = [run.config for run in plan(study, 1, ROOT)[0]]
        assert not any(map(steep_rate, configs))
        steeper = {"max_lr": None, "base_lr": 100.0, "lr_warmup_steps": 0}
        assert steep_rate(configs[0].model_copy(update=steeper))
