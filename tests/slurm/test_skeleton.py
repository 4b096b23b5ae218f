"""A new site file: valid as written, every key explained, filled in from sinfo and scontrol."""

import tomllib
from pathlib import Path

import pytest

from bench.config import UsageError
from slurm.load import read_site
from slurm.new_site import read_cluster, skeleton, write_skeleton
from slurm.site import Site

SINFO = """\
debug*|4|2|32|2|30:00|(null)
wide|200|2|64|1|infinite|(null)
gpu|20|2|26|2|4-00:00:00|gpu:h100:4(S:0-1),nvme:1
"""


def test_a_skeleton_is_valid_and_explains_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm here
    path, source = write_skeleton("mine")
    assert path == Path("mine.toml")
    assert source == "sinfo did not answer, so its cores, nodes and transport are examples"
    assert read_site("mine.toml").name == "mine"
    text = path.read_text()
    for name, field in Site.model_fields.items():
        assert f"{name}" in text
        assert field.description is not None
        assert field.description in text
    with pytest.raises(UsageError, match=r"mine.toml exists and is never overwritten"):
        write_skeleton("mine")
    with pytest.raises(UsageError, match="'My Site' also names a file"):
        write_skeleton("My Site")


def test_the_partition_with_gpus_fills_it_in() -> None:
    facts = read_cluster(
        SINFO, "ClusterName             = big\nSLURM_VERSION           = 23.11.4\n"
    )
    site = Site(**tomllib.loads(skeleton("mine", facts)))
    assert (site.title, site.slurm_min_version, site.access.partition) == (
        "the cluster big",
        "23.11.4",
        "gpu",
    )
    assert (site.node.cores, site.node.threads_per_core, site.node.gpus, site.node.vendor) == (
        52,
        2,
        4,
        "cuda",
    )
    assert (site.cpu.per_rank, site.limits.max_nodes, site.limits.max_minutes) == (26, 20, 5760)
    assert site.transport == "nccl"


def test_without_gpus_the_default_partition_fills_it_in() -> None:
    site = Site(
        **tomllib.loads(skeleton("mine", read_cluster("\n".join(SINFO.splitlines()[:2]), "")))
    )
    assert (site.access.partition, site.node.gpus, site.transport) == ("debug", 0, "gloo")
    assert site.limits.max_minutes == 30
    assert read_cluster("", "") == read_cluster("sinfo: error\n", "") == {}
