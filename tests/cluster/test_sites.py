"""A real sbatch accepts every job script, on nodes as the site's documentation describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.site import read_site
from tests.cluster import config
from tests.cluster.steps import run
from tests.slurm.studies import CLUSTERS, STUDIES, report, shipped

pytestmark = pytest.mark.cluster


def test_every_script_of_every_site_is_accepted(tmp_path: Path) -> None:
    """Judge accounts and qualities of service not at all: this cluster has none."""
    for site in map(read_site, CLUSTERS):
        other = config.ELSEWHERE.get(site.name)
        assert other is None or site.access.partition in ("", other.partition)
        sent = other is not None and not site.access.partition  # a default of the site's own
        default = [f"--partition={other.partition}"] if sent and other else []
        texts = {name: shipped(site, name)[0] for name in STUDIES} | {"report": report(site)}
        for name, text in texts.items():
            script = tmp_path / f"{site.name}-{name}.sh"
            script.write_text(text)
            done = run(["sbatch", "--test-only", *default, str(script)])
            assert done.returncode == 0, f"{script.name}: {done.stderr}"
            assert " to start at " in done.stderr, f"{script.name}: {done.stderr}"
    for option in ("--nodes=17", "--gpus-per-node=5", "--constraint=cpu"):
        script = tmp_path / "perlmutter-weak.sh"
        wrong = ["sbatch", "--test-only", "--partition=gpu-nodes", option, str(script)]
        assert run(wrong).returncode != 0, "the nodes lack it"
