"""The cluster itself: apart from the machine, nodes apart from each other, links that can be
slowed.
"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from bench.study.collectives import read
from tests.cluster import config, node, steps
from tests.cluster.steps import bench, run

pytestmark = pytest.mark.cluster


def test_nodes_have_names_addresses_and_tmp_of_their_own(tmp_path: Path) -> None:
    script = (
        "import os, socket, sys; print(os.uname()[1], socket.gethostbyname(os.uname()[1]), "
        "os.path.exists(sys.argv[1]))"
    )
    with tempfile.NamedTemporaryFile(dir="/tmp") as here:
        done = run(["srun", "-N4", "-n4", "python3", "-c", script, here.name])
    assert sorted(done.stdout.splitlines()) == [
        f"{name} {config.address(name)} False" for name in config.NODES
    ], done.stderr
    assert socket.gethostname() == config.LOGIN
    run(["srun", "-N4", "-n4", "sh", "-c", f"touch {tmp_path}/$(hostname)"])
    assert sorted(path.name for path in tmp_path.iterdir()) == list(config.NODES)


def test_a_shaped_link_is_slower(tmp_path: Path) -> None:
    """100 Mbit/s carry the 4 MiB that each rank sends and receives in a third of a second."""

    def milliseconds() -> float:
        words = ["--backend", "ddp", "--transport", "gloo", "--world-size", "2", "--sizes", "4MiB"]
        words += ["--kinds", "all_reduce", "--repetitions", "3"]
        log = tmp_path / f"{len(list(tmp_path.glob('*.jsonl')))}.jsonl"
        command = bench("collectives", *words, "--log-path", str(log))
        run(["srun", "-N2", "-n2", "-w", "n1,n2", *command], 120)
        (timed,) = read(log).timed
        return 1000 * timed.median_s

    free = milliseconds()
    node.shape("n2", "100mbit")
    try:
        shaped = milliseconds()
    finally:
        node.shape("n2", None)
    assert shaped > 300 > free
    assert steps.leftovers() == []
