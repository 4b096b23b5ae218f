"""A real sbatch accepts every job script, on nodes as the site's documentation describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.load import read_site
from tests.cluster import config
from tests.cluster.steps import run
from tests.slurm.scripts import CLUSTERS, STUDIES, report, shipped

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("site", CLUSTERS)
def test_every_script_is_accepted(tmp_path: Path, site: str) -> None:
    """On partitions, counts, features and GPUs of the site; accounts and qualities of service are
    taken as they are.
    """
    other = config.ELSEWHERE.get(site)
    named = read_site(site).access.partition
    assert other is None or named in ("", other.partition)
    default = (
        [] if other is None or named else [f"--partition={other.partition}"]
    )  # the site's own default is not ours
    texts = {name: shipped(read_site(site), name)[0] for name in STUDIES}
    texts["report"] = report(read_site(site))
    for name, text in texts.items():
        script = tmp_path / f"{name}.sh"
        script.write_text(text)
        done = run(["sbatch", "--test-only", *default, str(script)])
        assert done.returncode == 0, f"{script.name}: {done.stderr}"
        assert " to start at " in done.stderr, f"{script.name}: {done.stderr}"


def test_what_the_nodes_lack_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(shipped(read_site("perlmutter"), "weak")[0])
    for option in (
        "--partition=gh",
        "--partition=nowhere",
        "--nodes=17",
        "--gpus-per-node=5",
        "--constraint=cpu",
    ):
        options = (
            [option] if option.startswith("--partition") else ["--partition=gpu-nodes", option]
        )
        done = run(["sbatch", "--test-only", *options, str(script)])
        assert done.returncode != 0, option
