"""Whether a study's folder gives any number of a training, and in words why it does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.config import UsageError
from plots.analyse.runs import Loaded


class NothingUsable(UsageError):
    """Logs are there, and none gives a number."""


def require(loaded: Loaded, folder: Path) -> None:
    """Raises NothingUsable where no run of the folder is a training's."""
    if loaded.runs.empty:
        raise NothingUsable(f"{folder}: {_nothing_trained(loaded)}")


def _nothing_trained(loaded: Loaded) -> str:
    kinds = {
        "of loader_only": loaded.pipelines,
        "of observed runs": loaded.observed,
        "of runs that their framework watched": loaded.framework,
    }
    usable = " and ".join(kind for kind, frame in kinds.items() if not frame.empty)
    only = f"only logs {usable} are usable; put training runs beside them"
    if usable and not loaded.unusable:
        return only
    counts = Counter(u.reason.splitlines()[0][:120] for u in loaded.unusable)
    most = [f"{n} x {reason}" for reason, n in counts.most_common(3)]
    most += [f"and {len(counts) - 3} other reasons"] if len(counts) > 3 else []
    none = f"none of {len(loaded.unusable)} logs is usable: {'; '.join(most)}"
    return f"{only} (of the others, {none})" if usable else none
