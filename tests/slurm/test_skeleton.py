"""A new site file: valid as written, every key explained, filled in from sinfo and scontrol."""

import re
import tomllib
from pathlib import Path

import pytest

from bench.study.definition import Study
from bench.study.files import read_study
from slurm.load import read_site
from slurm.new_site import EXAMPLES, read_cluster, read_skeleton, skeleton
from slurm.site import Site

SINFO = """\
debug*|4|2|32|2|30:00|(null)
wide|200|2|64|1|infinite|(null)
gpu|20|2|26|2|4-00:00:00|gpu:h100:4(S:0-1),nvme:1
"""


def from_sinfo(text: str, config: str = "") -> Site:
    return Site(**tomllib.loads(skeleton("mine", *read_cluster(text, config))))


def test_a_skeleton_is_valid_and_explains_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm here
    text, source = read_skeleton("mine")
    assert source == ["sinfo did not answer, so its cores, nodes and transport are examples"]
    Path("mine.toml").write_text(text)
    assert read_site("mine.toml").name == "mine"
    for name, field in Site.model_fields.items():
        assert name in text
        assert (field.description or "none") in text


def test_the_partition_with_gpus_fills_it_in() -> None:
    site = from_sinfo(SINFO, "ClusterName      = big\nSLURM_VERSION      = 23.11.4\n")
    assert (site.title, site.slurm_min_version) == ("the cluster big", "23.11.4")
    assert (site.access.partition, site.node.cores, site.node.threads_per_core) == ("gpu", 52, 2)
    assert (site.node.gpus, site.node.vendor) == (4, "cuda")
    assert (site.cpu.per_rank, site.limits.max_nodes, site.limits.max_minutes) == (26, 20, 5760)
    assert site.transport == "nccl"
    assert site.notes == (
        "a rank for each of the 4 GPUs, with its share of the node's 104 CPUs",
        "other partitions: debug, wide",
    )


def test_without_gpus_the_default_partition_fills_it_in() -> None:
    site = from_sinfo("\n".join(SINFO.splitlines()[:2]))
    assert (site.access.partition, site.node.gpus, site.transport) == ("debug", 0, "gloo")
    assert site.limits.max_minutes == 30
    assert read_cluster("", "") == ({}, {})
    lost = {"notes": ["a row of sinfo was not understood: 'sinfo: error'"]}
    assert read_cluster("sinfo: error\n", "") == (lost, {})


def test_a_node_of_cpus_gets_a_rank_for_each_socket_and_a_thread_for_each_core() -> None:
    text = skeleton("mine", *read_cluster("cpu*|9|2|48|2|1-00:00:00|(null)\n", ""))
    site, rule = Site(**tomllib.loads(text)), "a rank for each of the 2 sockets, with a thread for "
    assert (site.node.cores, site.ranks_per_node) == (96, 2)
    assert (site.cpu.per_rank, site.cpu.threads) == (96, 48)
    assert f"# chosen: {rule}each of its 48 cores\nranks_per_node = 2\n" in text
    assert site.notes == (f"{rule}each of its 48 cores",)


@pytest.mark.parametrize(
    ("gres", "vendor", "guess"),
    [
        ("gpu:mi250:8", "rocm", ""),
        ("gpu:MI300A:4", "rocm", ""),
        ("gpu:gh200:1,tmp:5", "cuda", ""),
        ("gpu:pvc:6", "cuda", "# chosen: a guess: 'pvc' is no name known here\n"),
        ("gpu:4", "cuda", "# chosen: a guess: Slurm names no kind of GPU\n"),
    ],
)
def test_the_vendor_follows_from_the_gpus_name(gres: str, vendor: str, guess: str) -> None:
    text = skeleton("mine", *read_cluster(f"gpu|20|2|32|2|1:00:00|{gres}\n", ""))
    assert Site(**tomllib.loads(text)).node.vendor == vendor
    assert f'{guess}vendor = "{vendor}"\n' in text
    assert ("a guess" in text) == bool(guess)


def test_the_examples_in_a_skeleton_are_valid() -> None:
    for key, (line,) in EXAMPLES.items():
        value = line[line.index("[") : line.rindex("]") + 1]
        *table, name = key.split(".")
        head = f"[{table[0]}]\n" if table else ""
        plain = 'name="x"\ntitle="x"\nscheduler="slurm"\nlaunch="srun"\n'
        node = "" if table == ["node"] else "\n[node]\ncores=1\n"
        text = f"{plain}{head}{name} = {value}\n{node}"
        assert Site(**tomllib.loads(text))


SEVERAL_GPUS = """\
cpu*|200|2|64|2|2-00:00:00|(null)|cpu
gpu|24|2|20|1|2-00:00:00|gpu:v100:4(S:0-1)|gpu,v100
gpu|16|2|32|2|2-00:00:00|gpu:a100:4(S:0-1)|gpu,a100
"""
SEVERAL_CPUS = """\
cpu*|100|2|16|1|2-00:00:00|(null)|cpu,haswell
cpu*|300|2|64|1|2-00:00:00|(null)|cpu,milan
"""
MERGED = """\
compute*|412|2|16+|1+|2-00:00:00|(null)
login-test|1|1|4|1|1:00:00|(null)
"""


def test_a_job_asks_for_one_of_several_kinds_of_node_and_the_file_says_which() -> None:
    site = from_sinfo(SEVERAL_GPUS)
    assert (site.gpu.type, site.access.constraint, site.limits.max_nodes) == ("v100", "", 24)
    kinds = "24 of 40 cores and gpu:v100:4 (gpu, v100); 16 of 64 cores and gpu:a100:4 (a100, gpu)"
    assert any(kinds in note for note in site.notes)
    site = from_sinfo(SEVERAL_CPUS)
    assert (site.gpu.type, site.access.constraint, site.node.cores) == ("", "milan", 128)
    assert any(
        "100 of 32 cores (cpu, haswell); 300 of 128 cores (cpu, milan)" in note
        for note in site.notes
    )
    site = from_sinfo(SEVERAL_GPUS.replace("v100:4(S:0-1)|gpu,v100", "a100:4(S:0-1)|gpu,80gb"))
    assert (site.gpu.type, site.access.constraint) == ("a100", "80gb"), "of one type, two memories"
    site = from_sinfo(SEVERAL_GPUS.replace("gpu:v100:4", "gpu:v100:2,gpu:k80:2"))
    assert any("several GPU models (v100, k80)" in note for note in site.notes)
    assert from_sinfo(SINFO).gpu.type == ""  # one kind alone


def test_nodes_that_slurm_merged_are_taken_at_their_smallest_and_that_is_said() -> None:
    site = from_sinfo(MERGED + "odd|many|2|16|1|infinite|(null)\n")
    assert (site.access.partition, site.node.cores, site.limits.max_nodes) == ("compute", 32, 412)
    assert any("nodes of compute differ, and the smallest" in note for note in site.notes)
    assert any("other partitions: login-test" in note for note in site.notes)
    lost = "a row of sinfo was not understood: 'odd|many|2|16|1|infinite|(null)'"
    assert lost in site.notes


def test_the_study_to_copy_is_valid_and_explains_every_key() -> None:
    path = Path(__file__).parents[2] / "slurm" / "templates" / "study.toml"
    study, text = read_study(path), path.read_text()
    assert (study.name, study.world_sizes, len(study.pairs)) == ("my-study", (1, 2), 1)
    for name in Study.model_fields:
        assert re.search(rf"^(# )?({name} = |\[{name}[.\]])", text, re.MULTILINE), name
