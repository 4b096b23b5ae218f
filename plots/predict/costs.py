"""What a collective costs: steps and bytes of each algorithm, inside a node and between nodes.

Every algorithm takes `steps * latency + volume * bytes / bandwidth` on each of the two levels: it
is described by these four numbers, for an array of ranks. Bandwidth is what one rank gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Cost = Callable[[Array | float], Array]  # seconds of messages of so many bytes, by row

_TREE_SHARE = 0.92  # of the bandwidth, which a tree reaches (NCCL, src/graph/tuning.cc)


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """Of one message, by ranks: steps one after the other, and bytes per byte of the message."""

    node_steps: Array
    node_volume: Array
    network_steps: Array
    network_volume: Array

    def line(
        self,
        latency_s: Array | float,
        bytes_per_s: Array | float,
        node_latency_s: Array | float,
        node_bytes_per_s: Array | float,
    ) -> tuple[Array, Array]:
        """Seconds at no bytes, and seconds per byte, by ranks: both levels one after the other."""
        start_s = self.node_steps * node_latency_s + self.network_steps * latency_s
        s_per_byte = self.node_volume / node_bytes_per_s + self.network_volume / bytes_per_s
        return start_s, s_per_byte

    @property
    def step_share(self) -> Array:
        """Mean bytes of a step per byte of the message; 1 where there is no step."""
        steps = self.node_steps + self.network_steps
        share = (self.node_volume + self.network_volume) / np.maximum(steps, 1)
        return np.where(steps > 0, share, 1.0)


# of numbers of ranks, and ranks per node, of which the last may have fewer
Algorithm = Callable[[Array, int], Terms]


def _over_slower(ranks: Array, per_node: int, steps: Array, volume: Array) -> Terms:
    """All over the network, unless one node has all ranks."""
    several = (ranks > per_node) | (per_node == 1)
    return Terms(
        node_steps=np.where(several, 0.0, steps),
        node_volume=np.where(several, 0.0, volume),
        network_steps=np.where(several, steps, 0.0),
        network_volume=np.where(several, volume, 0.0),
    )


def ring(ranks: Array, per_node: int) -> Terms:
    """Reduce-scatter and all-gather in a ring (Patarasuk & Yuan 2009), node after node."""
    nodes = np.ceil(ranks / per_node)
    between = np.where(nodes > 1, 2 * (nodes - 1), 0.0)
    volume = _over_slower(ranks, per_node, between, 2 * (ranks - 1) / ranks)
    return Terms(
        node_steps=2 * (ranks - 1) - between,
        node_volume=volume.node_volume,
        network_steps=between,
        network_volume=volume.network_volume,
    )


def recursive_doubling(ranks: Array, per_node: int) -> Terms:
    """The whole message to a partner in each round (Thakur, Rabenseifner & Gropp 2005)."""
    rounds = np.ceil(np.log2(ranks))
    return _over_slower(ranks, per_node, rounds, rounds)


def rabenseifner(ranks: Array, per_node: int) -> Terms:
    """Halving, then doubling, of the message (Thakur, Rabenseifner & Gropp 2005)."""
    return _over_slower(ranks, per_node, 2 * np.ceil(np.log2(ranks)), 2 * (ranks - 1) / ranks)


def tree(ranks: Array, per_node: int) -> Terms:
    """A chain in each node and a tree of nodes, up and down, pipelined (NCCL)."""
    nodes = np.ceil(ranks / per_node)
    volume = np.where(ranks > 1, 2 / _TREE_SHARE, 0.0)
    slower = _over_slower(ranks, per_node, volume, volume)
    return Terms(
        node_steps=2 * (np.minimum(ranks, per_node) - 1),
        node_volume=slower.node_volume,
        network_steps=2 * np.floor(np.log2(nodes)),
        network_volume=slower.network_volume,
    )


def two_level(ranks: Array, per_node: int) -> Terms:
    """Reduce-scatter in each node, a ring of nodes for each part, all-gather in each node."""
    inside, nodes = np.minimum(ranks, per_node), np.ceil(ranks / per_node)
    return Terms(
        node_steps=2 * (inside - 1),
        node_volume=2 * (inside - 1) / inside,
        network_steps=2 * (nodes - 1),
        network_volume=2 * (nodes - 1) / nodes / inside,
    )


def gather_broadcast(ranks: Array, per_node: int) -> Terms:
    """Each rank's whole message to the first, one after the other, and the mean back to each."""
    return _over_slower(ranks, per_node, 2 * (ranks - 1), 2 * (ranks - 1))


def parameter_server(servers: int) -> Algorithm:
    """Every rank's part to each server and back: a server's link carries those of all ranks."""

    def terms(ranks: Array, per_node: int) -> Terms:
        return _over_slower(ranks, per_node, np.full_like(ranks, 2.0), 2 * ranks / servers)

    return terms


ALGORITHMS: Mapping[str, Algorithm] = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "tree": tree,
    "two_level": two_level,
    "gather_broadcast": gather_broadcast,
    "parameter_server": parameter_server(servers=1),
}
