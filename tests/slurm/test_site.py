"""A site file with a mistake is refused in one line: the file, the value, the rule and the
way out.
"""

from pathlib import Path

import pytest

from bench.config import UsageError
from slurm.site import read_site

SITE = """\
name = "here"
title = "a cluster"
scheduler = "slurm"
launch = "srun"
transport = "nccl"

[access]
partition = "gpu"

[node]
cores = 64
gpus = 4

[cpu]
per_rank = 16
threads = 2

[limits]
max_nodes = 8
max_minutes = 60
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in SITE
    path = folder / "here.toml"
    path.write_text(SITE.replace(old, new, 1) if old else SITE)
    return path


BAD = [
    # text, what replaces it, how the message begins
    ("gpus = 4", "gpuss = 4", "unknown key 'node.gpuss'; did you mean 'gpus'?"),
    ("per_rank = 16", "per_rank = 17", "cpu.per_rank=17 times 4 ranks is more than the node's"),
    ("threads = 2", "threads = 20", "cpu.threads=20, but a rank has 16 CPUs; use at most 16"),
    ("threads = 2", "ranks_per_node = 5", "cpu.ranks_per_node=5, but a node has 4 GPUs, one"),
    ("gpus = 4", "gpus = 0", "transport='nccl' joins GPUs, and node.gpus is 0"),
    ('launch = "srun"', 'launch = "mpirun"', "launch='mpirun' takes a hostfile, no sched"),
    ('transport = "nccl"', 'mpirun_args = ["-v"]', "mpirun_args has no effect with launch='srun'"),
    ('partition = "gpu"', 'extra = ["-p gpu"]', "access.extra: '-p gpu' is not of the form '--"),
    ('name = "here"', 'name = "there"', "name='there' must be the file's: 'here'"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), BAD, ids=[new or f"no {old}" for old, new, _ in BAD]
)
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, old, new)
    with pytest.raises(UsageError) as caught:
        read_site(str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_keys_that_have_left_are_read_past(tmp_path: Path) -> None:
    left = 'account_required = true\n[paths]\nnode_local = []\n[directives]\nforbidden = ["mem"]\n'
    path = write(tmp_path, 'partition = "gpu"', f"{left}[network]")
    assert read_site(str(path)).network.ifname == ""
