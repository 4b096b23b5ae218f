"""How ranks tell each other what they found: files in a folder, as nothing else is known to work.

Rank 0 opens the meeting under a new name and the others write into that; who followed an old
opening sees the new one while it waits. Every wait has a limit.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.launch.world import Launch

_POLL_S = 0.05


class Meeting:
    """One rank's seat: making rank 0's and `tell` raise OSError where the folder is read-only."""

    def __init__(self, folder: Path, launch: Launch) -> None:
        self._folder, self._rank = folder, launch.rank
        self._stem = f"doctor.{launch.source}.{launch.key}"
        self._opening = folder / f"{self._stem}.open.json"
        self._name: str | None = None
        self._told: dict[str, Any] = {}
        if launch.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self.close()  # what an earlier launch of the same key left
            self._name = uuid.uuid4().hex
            _write(self._opening, self._name)

    def tell(self, topic: str, value: Any) -> None:
        """Leave `value` under `topic` for everybody."""
        self._told[topic] = value
        if self._name is not None:
            _write(self._path(topic, self._rank), value)

    def hear(
        self,
        topic: str,
        ranks: Iterable[int],
        limit_s: float,
        meant: Callable[[Any], bool] = lambda value: True,
    ) -> dict[int, Any]:
        """What `ranks` told under `topic`, as soon as all have; after `limit_s` what there is.

        A value that is not `meant` for the hearer does not count: an earlier meeting left it.
        """
        heard: dict[int, Any] = {}
        wanted = set(ranks)
        deadline = time.monotonic() + limit_s
        while True:
            self._follow()
            for rank in wanted - heard.keys():
                for value in filter(meant, _read(self._path(topic, rank))):
                    heard[rank] = value
            if len(heard) == len(wanted) or time.monotonic() > deadline:
                return heard
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Rank 0 removes every file of the meeting."""
        for path in self._folder.glob(f"{self._stem}.*.json"):
            path.unlink(missing_ok=True)

    def _path(self, topic: str, rank: int) -> Path:
        return self._folder / f"{self._stem}.{self._name}.{topic.replace('/', '-')}.{rank}.json"

    def _follow(self) -> None:
        """Move to the meeting that is open now, and say again there what was said before."""
        for name in _read(self._opening) if self._rank else ():
            if name != self._name:
                self._name = name
                for topic, value in self._told.items():
                    self.tell(topic, value)


def _write(path: Path, value: Any) -> None:
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    partial.write_text(json.dumps(value))
    partial.rename(path)


def _read(path: Path) -> list[Any]:
    """The file's value as a list of one, or nothing where there is none yet."""
    try:
        return [json.loads(path.read_text())]
    except (OSError, ValueError):
        return []
