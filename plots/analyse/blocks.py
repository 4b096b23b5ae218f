"""Blocks: what two points share where they are compared, and what a block is called."""

from __future__ import annotations

from typing import NamedTuple

NO_BLOCK = -1  # runs started by hand name no block and together make one


class Block(NamedTuple):
    """One randomised pass inside one allocation: what two points share where they are compared.

    `allocation` is '' where no scheduler handed out nodes; the hosts are then compared as facts.
    """

    number: int
    allocation: str = ""


ALL_BLOCKS = Block(-2)  # stands for every block where two points share none


def block_name(block: Block) -> str:
    """'block 3 (job 77)', or what stands in its place."""
    name = {NO_BLOCK: "no block recorded", ALL_BLOCKS.number: "all blocks"}.get(
        block.number, f"block {block.number}"
    )
    return f"{name} ({block.allocation})" if block.allocation else name
