"""What srun tells its ranks: python -m tests.cluster.environments, inside the cluster, records
tests/bench/environments anew.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.launch.world import discover
from tests.cluster import steps
from tests.cluster.namespace import ROOT

FOLDER = ROOT / "tests" / "bench" / "environments"
PLUG_INS = ("none", "pmi2", "pmix")
_TOLD = ("SLURM", "PMI", "OMPI_COMM_")  # prefixes; the rest is the user's own
_OURS = ("SLURM_CONF", "SLURM_PMIX_FENCE")  # where this cluster's files are, and how it fences


def told(env: dict[str, str]) -> dict[str, str]:
    """The launcher's variables, without those that only this cluster has."""
    names = (name for name in sorted(env) if name.startswith(_TOLD) and name not in _OURS)
    return {name: env[name] for name in names}


def see(plug_in: str, folder: Path) -> list[dict[str, str]]:
    """What each of five ranks on three nodes (3, 1, 1) is told under `srun --mpi=PLUG_IN`,
    by rank.
    """
    places = folder / "places"
    places.write_text("n1\nn1\nn1\nn2\nn3\n")
    # into files, because lines as long as these mix where srun joins them
    show = (
        f"import json, os; json.dump(dict(os.environ), "
        f"open(f'{folder}/{{os.environ[\"SLURM_PROCID\"]}}.json', 'w'))"
    )
    srun = [
        "srun",
        "-N3",
        "-n5",
        "--distribution=arbitrary",
        f"--nodelist={places}",
        f"--mpi={plug_in}",
    ]
    done = steps.run([*srun, sys.executable, "-c", show], cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    return [told(json.loads((folder / f"{rank}.json").read_text())) for rank in range(5)]


def record(plug_in: str, folder: Path) -> dict[str, Any]:
    """One file of tests/bench/environments."""
    version = steps.run(["srun", "--version"]).stdout.strip()
    ranks = []
    for rank, env in enumerate(see(plug_in, folder)):
        if rank in (1, 4):
            launch = discover(env)
            place = [
                launch.source,
                launch.rank,
                launch.size,
                launch.local_rank,
                launch.local_size,
                launch.key,
            ]
            ranks.append({"launch": place, "env": env})
    how = f"{version} of the test cluster: 5 tasks on 3 nodes (3, 1, 1), srun --mpi={plug_in}"
    return {"source": "recorded", "how": how, "ranks": ranks}


def main() -> None:
    for plug_in in PLUG_INS:
        path = FOLDER / f"srun_{plug_in}.json"
        path.write_text(
            json.dumps(record(plug_in, Path(os.environ["PYTEST_DEBUG_TEMPROOT"])), indent=1) + "\n"
        )
        print(path)


if __name__ == "__main__":
    main()
