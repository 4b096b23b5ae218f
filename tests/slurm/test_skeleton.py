"""A new site file: valid as written, every key explained, filled in from sinfo and scontrol."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bench.study.definition import Study
from bench.study.files import read_study
from slurm.__main__ import main
from slurm.new_site import read_cluster, skeleton
from slurm.site import Site, read_site

TEMPLATES = Path(__file__).parents[2] / "slurm" / "templates"
SINFO = """\
debug*|4|2|32|2|30:00|(null)
wide|200|2|64|1|infinite|(null)
gpu|20|2|26|2|4-00:00:00|gpu:h100:4(S:0-1),nvme:1
"""
SEVERAL_GPUS = """\
cpu*|200|2|64|2|2-00:00:00|(null)|cpu
gpu|24|2|20|1|2-00:00:00|gpu:v100:4(S:0-1)|gpu,v100
gpu|16|2|32|2|2-00:00:00|gpu:a100:4(S:0-1)|gpu,a100
"""
SEVERAL_CPUS = "cpu*|100|2|16|1|1:00:00|(null)|cpu,haswell\ncpu*|300|2|64|1|1:00:00|(null)|cpu,mi\n"
MERGED = "compute*|412|2|16+|1+|2-00:00:00|(null)\nlogin-test|1|1|4|1|1:00:00|(null)\n"


def test_a_template_is_valid_and_explains_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm here
    assert (main(["site", "new", "mine"]), read_site("mine.toml").title) == (0, "the cluster mine")
    assert "cores, nodes and transport are examples" in capsys.readouterr().out
    assert main(["site", "new", "mine"]) == 2
    assert "mine.toml exists and is never overwritten" in capsys.readouterr().err
    study = read_study(TEMPLATES / "study.toml")
    assert (study.name, study.world_sizes, len(study.pairs)) == ("my-study", (1, 2), 1)
    for kind, name in ((Site, "site"), (Study, "study")):
        text = (TEMPLATES / f"{name}.toml").read_text()
        schema = kind.model_json_schema()
        tables = [schema, *schema["$defs"].values()]
        for key in chain.from_iterable(table["properties"] for table in tables):
            assert re.search(rf"^(# )?({key} = |\[{key}[.\]])", text, re.MULTILINE), key


@pytest.mark.parametrize(
    ("sinfo", "wanted", "notes"),
    [
        (SINFO, {"access.partition": "gpu", "node.cores": 52, "node.threads_per_core": 2,
                 "node.gpus": 4, "cpu.per_rank": 26, "transport": "nccl",
                 "limits.max_nodes": 20, "limits.max_minutes": 5760, "gpu.type": ""},
         "a rank for each of the 4 GPUs, with its share of the node's 104 CPUs; "
         "other partitions: debug, wide"),
        ("cpu*|9|2|48|2|1-00:00:00|(null)\n", {"node.cores": 96, "cpu.ranks_per_node": 2,
         "cpu.per_rank": 96, "cpu.threads": 48},
         "each of the 2 sockets, with a thread for each of its 48 cores"),
        ("gpu|20|2|32|2|1:00:00|gpu:MI300A:4\n", {"node.vendor": "rocm"}, ""),
        ("gpu|20|2|32|2|1:00:00|gpu:4\n", {"node.vendor": "cuda"}, "Slurm names no kind of GPU"),
        # one of several kinds of node is asked for, and the file says of which it is
        (SEVERAL_GPUS, {"gpu.type": "v100", "access.constraint": "", "limits.max_nodes": 24},
         "24 of 40 cores, 4 GPUs v100 (gpu, v100); 16 of 64 cores, 4 GPUs a100 (a100, gpu)"),
        (SEVERAL_GPUS.replace("v100:4(S:0-1)|gpu,v100", "a100:4(S:0-1)|gpu,80gb"),
         {"gpu.type": "a100", "access.constraint": "80gb"}, ""),  # of one type, two memories
        (SEVERAL_GPUS.replace("gpu:v100:4", "gpu:v100:2,gpu:k80:2"), {"node.gpus": 4},
         "several GPU models (v100, k80)"),
        (SEVERAL_CPUS, {"gpu.type": "", "access.constraint": "mi", "node.cores": 128},
         "100 of 32 cores (cpu, haswell); 300 of 128 cores (cpu, mi)"),
        # nodes that Slurm merged, and rows that are none
        (MERGED, {"access.partition": "compute", "node.cores": 32, "limits.max_nodes": 412},
         "nodes of compute differ, and the smallest are written"),
        (MERGED + "odd|many|2|16|1|infinite|(null)\n", {"access.partition": "compute"},
         "a row of sinfo was not understood: 'odd|many|2|16|1|infinite|(null)'"),
    ],
)  # fmt: skip
def test_sinfo_fills_it_in(sinfo: str, wanted: dict[str, Any], notes: str) -> None:
    facts = read_cluster(sinfo, "ClusterName      = big\nSLURM_VERSION      = 23.11.4\n")
    assert {key: facts.get(key, "") for key in wanted} == wanted
    site = Site(**tomllib.loads(skeleton("mine", facts)))
    assert notes in "; ".join(site.notes)
    assert (site.title, site.slurm_min_version) == ("the cluster big", "23.11.4")
