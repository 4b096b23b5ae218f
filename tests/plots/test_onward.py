"""The head of a page: what its answer stands on, and what to do next."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plots.report.findings import checks
from plots.report.write import analysed
from tests.plots import logs

ROOT = Path(__file__).parents[2]
EQUAL = {"ddp/mpi": 1.0, "horovod/mpi": 1.0}
PLAN = 'cells = ["ddp/mpi", "horovod/mpi"]\nscaling = ["weak", "strong"]\nworld_sizes = [1, 2]\n'
PLAN += "[weak]\nbatch_per_rank = 16\n[strong]\nglobal_batch = 32\n"


GROUPED = ["ddp/mpi@plain", "horovod/mpi@plain", "horovod/mpi@clipped"]


@pytest.mark.parametrize(
    ("in_launch_2", "name"),
    [
        ({}, "in turns"),
        ({"horovod/mpi@plain": "b"}, "2 pairs apart"),
        ({"horovod/mpi@clipped": "b"}, "1 pair apart"),
    ],
)
def test_sides_that_took_turns_with_other_worlds_are_counted(
    tmp_path: Path, in_launch_2: dict[str, str], name: str
) -> None:
    """One pair of frameworks and one of an arm over its cell, in each of six launches."""
    listed = 'cells = ["ddp/mpi", "horovod/mpi"]\nscaling = ["weak"]\nworld_sizes = [2]\n'
    arm = '[arms.clipped]\ncells = ["horovod/mpi"]\nover = "plain"\nclip_norm = 1.0\n'
    logs.study_toml(tmp_path, more=f"{listed}[weak]\nbatch_per_rank = 16\n[arms.plain]\n{arm}")
    for launch, (position, cell) in product(range(6), enumerate(GROUPED)):
        group = in_launch_2.get(cell, "a") if launch == 2 else "a"
        clipped: dict[str, Any] = {"clip_norm": 1.0} if "@clipped" in cell else {}
        run = logs.config(cell, 2, launch=launch, seed=launch, position=position, **clipped)
        where = logs.host(2, turns={"launch": f"{launch}{group}", "turn": position, "worlds": 3})
        noise = np.random.default_rng(3 * launch + position)
        path = tmp_path / "runs" / f"{launch}-{position}.jsonl"
        logs.write(path, run, 0.1, noise, provenance=where)
    names = {check.name: check.holds for check in checks(analysed(tmp_path))}
    assert names[name] is (name == "in turns")


@pytest.mark.parametrize(
    ("first_step", "name", "holds"),
    [
        (1.0, "turns favour neither", True),
        # 0.4 % of five steps, and a quarter of the margin is 0.5 %
        (1.02, "turns favour neither", True),
        (1.2, "turns slow Horovod", False),
        (0.8, "turns slow DDP", False),
    ],
)
def test_a_slow_beginning_of_turns_is_named(
    tmp_path: Path, first_step: float, name: str, holds: bool
) -> None:
    for launch in range(6):
        for position, cell in enumerate(EQUAL):
            slow = first_step if cell == "horovod/mpi" else 1.0
            run = logs.config(
                cell, 2, launch=launch, seed=launch, position=position, lead_in_steps=1
            )
            where = logs.host(2, turns={"launch": str(launch), "turn": position, "worlds": 2})
            noise = np.random.default_rng(2 * launch + position)
            path = tmp_path / "runs" / f"{launch}-{position}.jsonl"
            logs.write(path, run, 0.1, noise, provenance=where, first_step=slow)
    (check,) = (one for one in checks(analysed(tmp_path)) if one.name.startswith("turns "))
    assert (check.name, check.holds) == (name, holds)
    claimed = float(re.findall(r"DDP's times ([\d.]+) ", check.text)[0])
    assert claimed == pytest.approx(first_step, abs=0.01)


def test_what_holds_and_what_does_not(tmp_path: Path) -> None:
    folder = logs.study(tmp_path, cells=EQUAL)
    logs.study_toml(folder, more=PLAN)
    found = {check.name: check.holds for check in checks(analysed(folder))}
    assert found["6 launches of each size"] is True
    assert found["bit-identical parameters"] is True
    assert found["launched apart"] is False
    for log in (folder / "runs").glob("*-horovod-mpi-2.jsonl"):
        log.unlink()
    found = {check.name: check.holds for check in checks(analysed(folder))}
    assert "6 launches of each size" not in found
    assert any(name.endswith((" gap", " gaps")) for name in found)
    assert "equal work" not in found, "a planned pair lacks a side"
