"""A study of one GPU: its machine's line names the GPU, and its page says that nothing travels."""

from __future__ import annotations

from plots.analyse.study import machine
from tests.plots import logs


def test_gpus_are_counted_over_nodes_also_where_they_have_no_name_of_their_own() -> None:
    host = logs.host(4)
    for place, rank in enumerate(host["ranks"]):
        uuid = f"index {place % 2}"
        rank |= {"hostname": f"node{place // 2}", "gpu": "GH200", "gpu_uuid": uuid}
    assert machine(host) == "4 x GH200, Test CPU @ 2 GHz, 2 cores per node, 2 nodes"
