"""Whether all nodes see what a job needs: a folder that each node has of its own, as /tmp, makes
every job vanish.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.config import UsageError
from slurm.site import Site

# in the environment, separated by ':': folders that all nodes see although they lie below such a
# one
SHARED = "SHARED_FOLDERS"


def check_shared(site: Site, results: Path) -> None:
    """Raise UsageError where the checkout, the results or the environment lie in a folder of which
    every node has its own.
    """
    shared = [Path(name) for name in os.environ.get(SHARED, "").split(os.pathsep) if name]
    for what, path in _needed(site, results):
        local = next(
            (top for top in site.paths.node_local if path.is_relative_to(Path(top).resolve())), None
        )
        if local is not None and not any(
            path.is_relative_to(folder.resolve()) for folder in shared
        ):
            raise UsageError(
                f"{what} {path} lies below {local}, of which every node of site {site.name!r} has "
                f"its own: its jobs would not "
                "find it; move it to a folder that all nodes see, or correct paths.node_local of "
                "the site file"
            )


def _needed(site: Site, results: Path) -> Iterator[tuple[str, Path]]:
    yield "the checkout", Path.cwd().resolve()
    yield "the results folder", results.resolve()
    if site.setup.venv:
        yield "the environment", Path(site.setup.venv).resolve()
