"""Every test of the cluster needs a running one, and leaves it as it found it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster import config, daemons, node, steps


@pytest.fixture(scope="session")
def cluster() -> None:
    """Skip the test outside the cluster, and say how to get one."""
    if os.environ.get("SLURM_CONF") != str(config.SLURM_CONF) or not config.SLURM_CONF.exists():
        pytest.skip(
            daemons.missing() or "these tests run inside the test cluster: make test-cluster"
        )


@pytest.fixture(autouse=True)
def nothing_left(cluster: None) -> Iterator[None]:
    yield
    left = steps.leftovers()
    if left:
        steps.run(["scancel", "--user=root"])
        steps.leftovers()
    daemons.wait_idle(config.NODES, 30)
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def node_to_lose() -> Iterator[None]:
    """Switch on, when the test has ended, the node that tests switch off."""
    yield
    if not node.is_on(steps.LOST):  # a test may have failed before it came to that
        node.start(steps.LOST)
    daemons.wait_idle((steps.LOST,), 60)
