"""A site file with a mistake is refused in one line: the file's line, the value, the rule and the
way out.
"""

from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.files import line_of
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
vendor = "cuda"

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
    # text, what replaces it, line of the message, how the message begins
    ("gpus = 4", "gpuss = 4", 12, "unknown key 'node.gpuss'; did you mean 'gpus'?; valid here: co"),
    ("per_rank = 16", "per_rank = 17", 16, "cpu.per_rank=17 times 4 ranks is more than the node's"),
    ("threads = 2", "threads = 20", 17, "cpu.threads=20, but a rank has 16 CPUs; use at most 16"),
    ("threads = 2", "ranks_per_node = 5", 17, "cpu.ranks_per_node=5, but a node has 4 GPUs, one"),
    ('gpus = 4\nvendor = "cuda"', "gpus = 0", 5, "transport='nccl' joins GPUs, and node.gpus is 0"),
    ('launch = "srun"', 'launch = "mpirun"', 4, "launch='mpirun' takes a hostfile, no sched"),
    (
        'transport = "nccl"',
        'mpirun_args = ["-v"]',
        5,
        "mpirun_args has no effect with launch='srun'; lea",
    ),
    ('partition = "gpu"', 'extra = ["-p gpu"]', 8, "access.extra: '-p gpu' is not of the form '--"),
    ('partition = "gpu"', 'extra = ["--array=1-3"]', 8, "access.extra: '--array=1-3' breaks a job"),
    ('partition = "gpu"', 'extra = ["--nod=9"]', 8, "access.extra: '--nod=9' breaks a job: submit"),
    (
        "max_nodes = 8",
        "max_nodes = 1000000000000",
        20,
        "limits.max_nodes=1000000000000: should be",
    ),
    ('transport = "nccl"', 'mpi = "pmix; touch x"', 5, "mpi='pmix; touch x': String should match"),
    ('name = "here"', 'name = "there"', 1, "name='there' must be the file's: 'here'"),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"), BAD, ids=[new or f"no {old}" for old, new, _, _ in BAD]
)
def test_a_mistake_names_its_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = write(tmp_path, old, new)
    with pytest.raises(UsageError) as caught:
        read_site(str(path))
    assert str(caught.value).startswith(f"{path}, line {line}: {message}")


def test_keys_that_have_left_are_read_past(tmp_path: Path) -> None:
    left = 'account_required = true\n[paths]\nnode_local = []\n[directives]\nforbidden = ["mem"]\n'
    path = write(tmp_path, 'partition = "gpu"', f"{left}[network]")
    assert read_site(str(path)).network.ifname == ""


def test_the_line_is_the_deepest_that_is_there() -> None:
    text = "a = 1\n[node]  # here\n  gpus = 4\n\n[cpu]\ngpus = 2\nx.y = 3\n"
    assert line_of(text, ("node", "gpus")) == 3
    assert line_of(text, ("cpu", "gpus")) == 6
    assert line_of(text, ("cpu", "x", "y")) == 7
    assert line_of(text, ("node", "cores")) == 2
    assert line_of(text, ("gpus",)) == 1
