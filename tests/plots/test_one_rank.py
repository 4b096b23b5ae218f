"""A study of one GPU: its machine's line names the GPU, and its page says that nothing travels."""

from __future__ import annotations

from pathlib import Path

from plots.analyse.study import machine
from plots.report.write import make
from tests.plots import logs


def test_gpus_are_counted_over_nodes_also_where_they_have_no_name_of_their_own() -> None:
    host = logs.host(4)
    for place, rank in enumerate(host["ranks"]):
        uuid = f"index {place % 2}"
        rank |= {"hostname": f"node{place // 2}", "gpu": "GH200", "gpu_uuid": uuid}
    assert machine(host) == "4 x GH200, Test CPU @ 2 GHz, 2 cores per node, 2 nodes"


def test_a_page_says_that_one_rank_exchanges_nothing(tmp_path: Path) -> None:
    for block in range(6):
        for cell, step_s in (("ddp/gloo", 0.12), ("horovod/gloo", 0.1 + 0.001 * block)):
            path = tmp_path / "runs" / f"{block}-{cell[:3]}.jsonl"
            logs.write(path, logs.config(cell, 1, block=block), step_s)
    first, *_ = make(tmp_path, tmp_path)
    assert ", where nothing is exchanged" in first
    assert (
        "On 1 rank nothing is exchanged: there DDP copies gradients through its buckets all the "
        "same; Horovod registers no hooks. It says nothing of more ranks."
    ) in (tmp_path / "report.md").read_text()
