"""What a job script says of its study, its site and itself."""

from __future__ import annotations

import argparse
from pathlib import Path


class JobOptions(argparse.Namespace):
    """What a job script says of itself and its site; __main__.py explains each."""

    study_dir: Path
    study: str
    limit_s: int
    python: str
    container: list[str]
    launcher: str
    launch_args: list[str]
    own_env: dict[str, list[str]]
    job: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int | None
    minutes: int
    lead_s: int
    requeue: bool
    no_kill: bool
    cells: list[str]
    preflight: list[str]
    calibration: list[str]
    report: bool
    again: list[str]
