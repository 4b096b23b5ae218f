"""Whether all nodes see what a job needs: a folder that each node has of its own, as /tmp, makes
every job vanish.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.config import UsageError
from slurm.site import Site

# in the environment, separated by ':': folders that all nodes see although they lie below such one
SHARED = "SHARED_FOLDERS"


def check_shared(site: Site, results: Path) -> None:
    """Raise UsageError where checkout, results or environment lie where every node has its own."""
    needed = {"the checkout": Path.cwd(), "the results folder": results}
    if site.setup.venv:
        needed["the environment"] = Path(site.setup.venv)
    shared = [Path(name) for name in os.environ.get(SHARED, "").split(os.pathsep) if name]
    for what, path in needed.items():
        whole = path.resolve()
        below = [top for top in site.paths.node_local if whole.is_relative_to(Path(top).resolve())]
        if below and not any(whole.is_relative_to(folder.resolve()) for folder in shared):
            raise UsageError(
                f"{what} {whole} lies below {below[0]}, of which every node of site {site.name!r} "
                "has its own: its jobs would not find it; move it to a folder that all nodes see, "
                "or correct paths.node_local of the site file"
            )
