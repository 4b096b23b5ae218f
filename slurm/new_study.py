"""A study file to start from: small, valid for one machine, every key explained."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from bench.backends.catalogue import CANDIDATE, REFERENCE, parts
from bench.study.definition import Study
from slurm.explained import explained, new_file, write_new

_WINDOWS = {"warmup_steps": 15, "windows": 20, "lead_in_steps": 1, "steps_per_window": 3}
_RUN = {"model": "resnet50", "dataset": "synthetic", "image_size": 32, "threads": 1}
_MORE = {"weak.batch_per_rank": ("the smaller it is, the larger the share of communication",)}


def write_study(name: str) -> Path:
    """Write NAME.toml in this folder. Raises UsageError if it is there, or the name will not do."""
    path = new_file(name)
    write_new(path, study_text(name))
    return path


def study_text(name: str) -> str:
    """The text of a valid study file; what may be left out is commented out with its default."""
    of_mpi = [parts(side)._replace(transport="mpi").name for side in (REFERENCE, CANDIDATE)]
    values: dict[str, Any] = {
        "name": name,
        "question": "Does it matter which of the two averages the gradients?",
        "cells": ["single", *of_mpi],
        "scaling": ["weak"],
        "world_sizes": [1, 2],
        "blocks": 6,
        "weak.batch_per_rank": 4,
        "run": {**_RUN, **_WINDOWS, "max_lr": 0.001},
    }
    head = f"# Study {name!r}. Change what you need, take out the '# ' of keys that are left out."
    text = "\n".join([head, *explained(Study, values, _MORE)]) + "\n"
    Study(**tomllib.loads(text))  # ours to get right
    return text
