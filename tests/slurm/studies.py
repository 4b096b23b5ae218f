"""Small studies that the tests of slurm/ share."""

from pathlib import Path

from bench.study.definition import Study
from bench.study.files import read_study
from slurm.site import Site

ROOT = Path(__file__).parents[2]

SMALL = """\
name = "small"
question = "Which is faster?"
cells = ["single", "ddp/mpi", "horovod/gloo"]
scaling = ["weak", "strong"]
world_sizes = [1, 2]
launches = 2
seed = 7
time_limit_s = 30
turns = false

[weak]
batch_per_rank = 8

[strong]
global_batch = 8

[run]
dataset = "digits"
windows = 2
nesterov = true
"""


def write(folder: Path, text: str = SMALL, **changes: str) -> Path:
    """Write a study file; each change replaces the line of that key, or leaves it out if empty."""
    lines = []
    for line in text.splitlines():
        key = line.partition(" =")[0]
        new = changes.pop(key, line) if " =" in line else line
        lines += [new] if new or not line else []
    assert not changes, f"no such keys: {changes}"
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def changed(site: Site, **changes: object) -> Site:
    """Give the site other values of dotted keys, '.' written '__', checked as if they stood in its
    file.
    """
    values = site.model_dump(mode="json")
    for key, value in changes.items():
        *tables, name = key.split("__")
        place = values
        for table in tables:
            place = place[table]
        place[name] = value
    return Site(**values)


def small(folder: Path, **changes: str) -> Study:
    return read_study(write(folder, **changes))
