"""The Ramble application, with recorders for Ramble's directives: Ramble itself is not tried."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench import fom
from bench.config import make_config, parse_argv
from tests.slurm.centre_tools import CENTRE

PATH = CENTRE / "ramble" / "application.py"
DIRECTIVES = ["executable", "workload", "workload_variable", "figure_of_merit", "tags"]
DIRECTIVES += ["success_criteria"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Each directive's calls, positions and names; the file is executed as Python executes it."""
    recorded: dict[str, list[Any]] = defaultdict(list)
    appkit = ModuleType("ramble.appkit")

    def directive(name: str) -> Any:
        return lambda *values, **named: recorded[name].append(SimpleNamespace(v=values, **named))

    vars(appkit).update({name: directive(name) for name in DIRECTIVES})
    vars(appkit)["ExecutableApplication"] = object
    monkeypatch.setitem(sys.modules, "ramble", ModuleType("ramble"))
    monkeypatch.setitem(sys.modules, "ramble.appkit", appkit)
    exec(compile(PATH.read_text(), str(PATH), "exec"), {})
    return recorded


def test_its_command_is_one_of_ours(calls: dict[str, list[Any]]) -> None:
    (train,) = calls["executable"]
    defaults = {v.v[0]: v.default for v in calls["workload_variable"]}
    ramble = {"n_ranks": "8", "experiment_run_dir": "/x"}
    words = train.v[1].format(**defaults, **ramble).split()
    assert words[:3] == ["python", "-m", "bench"]
    config = parse_argv(words[3:])
    assert (config.cell, config.world_size) == ("ddp/nccl", 8)


def test_its_figures_are_those_of_our_lines(calls: dict[str, list[Any]]) -> None:
    config = make_config(
        {"backend": "horovod", "transport": "mpi", "world_size": 4, "batch_per_rank": 8}
    )
    text = fom.text(fom.merits(config, [400.0, 440.0, 420.0], {}, ok=True))
    figures = {
        figure.v[0]: float(re.search(figure.fom_regex, text)[figure.group_name])  # type: ignore[index]
        for figure in calls["figure_of_merit"]
    }
    assert figures["Ranks"] == 4
    assert figures["Total"] == pytest.approx(419.3, abs=0.1)
    assert figures["Per device"] == pytest.approx(figures["Total"] / 4, abs=0.1)
    assert figures["Half width"] > 0
    checks, ranks = calls["success_criteria"]
    failed = fom.text(fom.merits(config, [400.0, 440.0], {}, ok=False))
    assert re.search(checks.match, text)
    assert not re.search(checks.match, failed)
    assert (ranks.fom_name, ranks.formula.format(value=4, n_ranks=4)) == ("Ranks", "4 == 4")


def test_it_names_what_the_suite_gives() -> None:
    """Its only import is Ramble's; it says that it was not run."""
    tree = ast.parse(PATH.read_text())
    assert [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)] == ["ramble.appkit"]
    assert "Not run" in (ast.get_docstring(tree) or "")
