"""Costs of collectives against values that were worked out by hand, and what holds of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plots.predict.costs import ALGORITHMS, Algorithm, Array, Terms, parameter_server
from plots.predict.link import Regime

NETWORK = Regime(latency_seconds=10e-6, bytes_per_s=10e9)
LEVELS = Regime(
    latency_seconds=10e-6, bytes_per_s=10e9, node_latency_seconds=5e-6, node_bytes_per_s=50e9
)


def seconds(regime: Regime, terms: Terms, size: float) -> Array:
    start_s, s_per_byte = regime.line(terms)
    return start_s + s_per_byte * size


def ms(
    algorithm: Algorithm | str, ranks: int = 8, per_node: int = 1, regime: Regime = NETWORK
) -> float:
    """Of 100 MB."""
    terms = ALGORITHMS[algorithm] if isinstance(algorithm, str) else algorithm
    return 1e3 * float(seconds(regime, terms(np.array([float(ranks)]), per_node), 100e6)[0])


def test_eight_ranks() -> None:
    assert ms("ring") == pytest.approx(17.64)
    assert ms("recursive_doubling") == pytest.approx(30.03)
    assert ms("rabenseifner") == pytest.approx(17.56)
    assert ms("two_level", per_node=4, regime=LEVELS) == pytest.approx(5.55)
    assert ms("gather_broadcast") == pytest.approx(140.14), "seven messages each way"
    assert ms("parameter_server") == pytest.approx(160.02), "eight messages each way"
    assert ms(parameter_server(4)) == pytest.approx(40.02)


def test_rings_and_trees_of_several_nodes() -> None:
    """Two nodes of four: 14 steps of which 2 are between nodes; all bytes pass the network."""
    assert ms("ring", per_node=4, regime=LEVELS) == pytest.approx(12 * 0.005 + 2 * 0.01 + 17.5)
    volume = 2 / 0.92 * 10
    assert ms("tree", per_node=4, regime=LEVELS) == pytest.approx(6 * 0.005 + 2 * 0.01 + volume)
    assert ms("tree", ranks=4, per_node=4, regime=LEVELS) == pytest.approx(0.03 + volume / 5)
    begun = LEVELS.model_copy(update={"start_seconds": 6e-6})
    assert ms("ring", 4, 4, begun) == pytest.approx(6 * 0.005 + 1.5 * 2 + 0.006)
    assert ms("ring", 1, 4, begun) == 0


def test_ring_and_doubling_cross() -> None:
    ranks = np.array([8.0])
    ring, doubling = (ALGORITHMS[name](ranks, 1) for name in ("ring", "recursive_doubling"))
    assert seconds(NETWORK, ring, 880e3) == pytest.approx(seconds(NETWORK, doubling, 880e3))
    assert seconds(NETWORK, ring, 900e3) < seconds(NETWORK, doubling, 900e3)


@settings(deadline=None)
@given(st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 16), st.floats(0, 1e9))
def test_a_cost_rises_with_ranks_and_bytes(name: str, per_node: int, size: float) -> None:
    """Over whole nodes; one rank exchanges nothing, but with a server."""
    ranks = np.array([1, *(per_node * 2.0 ** np.arange(13))])
    terms = ALGORITHMS[name](ranks, per_node)
    once, twice = (seconds(LEVELS, terms, times * size) for times in (1, 2))
    assert np.all(np.diff(once) >= -1e-12)
    assert np.all(twice >= once)
    assert (once[0] == 0) == (name != "parameter_server")
