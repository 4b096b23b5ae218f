"""One import as a user types it, for tests: its exit code, what it says, and its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from plots.__main__ import main


@dataclass(frozen=True)
class Ended:
    code: int
    said: str
    points: pd.DataFrame

    def value(self, quantity: str, **place: object) -> float:
        """Return the one mean of a quantity, at a place."""
        rows = self.points[self.points["quantity"] == quantity]
        for name, wanted in place.items():
            rows = rows[rows[name] == wanted]
        rows = rows[~rows["reducer"].str.contains("median over|min over|max over")]
        assert len(rows) == 1, rows
        return float(rows["value"].iloc[0])

    @property
    def quantities(self) -> set[str]:
        return set(self.points["quantity"])


class Import:
    """Writes logs and imports them into a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.count = folder, capsys, 0

    def __call__(self, form: str, files: str | bytes | Mapping[str, str], *options: str) -> Ended:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        named = files if isinstance(files, Mapping) else {"log.txt": files}
        for name, data in named.items():
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        words = ["import", form, *(str(folder / name) for name in named), *options]
        code = main([*words, "--out", str(folder / "out")])
        out, err = self.capsys.readouterr()
        if code:
            assert (err.count("\n"), (folder / "out").exists()) == (1, False), err
        else:
            assert all(line.startswith("warning: ") for line in err.splitlines()), err
        tables = [p for p in folder.glob("out/*.csv") if not p.stem.endswith("-values")]
        return Ended(code, out + err, pd.read_csv(tables[0]) if tables else pd.DataFrame())
