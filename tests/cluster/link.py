"""python -m tests.cluster.link NODE RATE: limit a node's link, as 100mbit, or lift the limit with
`off`; on the login node.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.cluster import config, node


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in config.NODES:
        print(
            f"usage: python -m tests.cluster.link NODE RATE|off, NODE one of "
            f"{', '.join(config.NODES)}",
            file=sys.stderr,
        )
        return 2
    name, rate = arguments
    try:
        node.shape(name, None if rate == "off" else rate)
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
