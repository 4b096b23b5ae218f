"""A real sbatch accepts every golden job script, on nodes as the site's documentation describes
them.
"""

from __future__ import annotations

import pytest

from slurm.load import read_site
from tests.cluster import config
from tests.cluster.namespace import ROOT
from tests.cluster.steps import run

pytestmark = pytest.mark.cluster

GOLDEN = ROOT / "tests/golden"
SITES = [
    path.stem
    for path in sorted((ROOT / "slurm/sites").glob("*.toml"))
    if read_site(path.stem).scheduler == "slurm"
]
STUDIES = [path.stem for path in sorted((ROOT / "slurm/studies").glob("*.toml"))]


@pytest.mark.parametrize("site", SITES)
def test_every_golden_script_is_accepted(site: str) -> None:
    """On partitions, counts, features and GPUs of the site; accounts and qualities of service are
    taken as they are.
    """
    other = config.ELSEWHERE.get(site)
    named = read_site(site).access.partition
    assert other is None or named in ("", other.partition)
    default = (
        [] if other is None or named else [f"--partition={other.partition}"]
    )  # the site's own default is not ours
    for name in (*STUDIES, "report"):
        script = GOLDEN / f"{site}-{name}.sh"
        done = run(["sbatch", "--test-only", *default, str(script)])
        assert done.returncode == 0, f"{script.name}: {done.stderr}"
        assert " to start at " in done.stderr, f"{script.name}: {done.stderr}"


def test_what_the_nodes_lack_is_refused() -> None:
    script = str(GOLDEN / "perlmutter-weak.sh")
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
        done = run(["sbatch", "--test-only", *options, script])
        assert done.returncode != 0, option
