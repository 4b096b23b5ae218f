"""Studies on the cluster as a user does them: a study file, the site `testcluster` or a variant,
and `python -m slurm`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.record import Run
from tests.cluster import models, steps
from tests.cluster.namespace import ROOT

_STUDY = """\
name = "{name}"
question = "Does it come to its end?"
cells = {cells}
scaling = ["batch"]
nodes = [{nodes}]
{launches}
time_limit_s = 180
expected_run_s = 15
turns = {turns}

[batch]
batch_per_rank = [8]

[run]
model = "tests.cluster.models:waits"
dataset = "synthetic"
warmup_steps = 3
windows = 2
steps_per_window = 3
"""
_SITE = (ROOT / "slurm/sites/testcluster.toml").read_text()


def site(folder: Path, extra: Sequence[str] = (), **changes: str) -> Path:
    """Write testcluster as a site of the user's own, with further options of sbatch and with values
    of keys replaced.
    """
    text = _SITE.replace('name = "testcluster"', 'name = "here"')
    for key, value in changes.items():
        text, found = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
        assert found == 1, key
    path = folder / "here.toml"
    path.write_text(f"{text}\n[access]\nextra = {list(extra)}\n".replace("'", '"'))
    return path


@dataclass(frozen=True)
class Tiny:
    """One launch of one run for each cell, at one node count: one job."""

    folder: Path
    site: Path
    name: str = "tiny"
    cells: tuple[str, ...] = ("ddp", "horovod")
    nodes: int = 2
    turns: bool = False  # else one run after the other
    launches: str = "launches = 1"  # and further keys

    @property
    def hold(self) -> Path:
        """While this file is there, runs stop in their first step."""
        return self.folder / "hold"

    def start(
        self, verb: str, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start one `python -m slurm VERB` of this study."""
        source = self.folder / f"{self.name}.toml"
        text = _STUDY.format(
            name=self.name,
            cells=list(self.cells),
            nodes=self.nodes,
            launches=self.launches,
            turns=str(self.turns).lower(),
        )
        source.write_text(text.replace("'", '"'))
        where = ["--site", str(self.site), "--results", str(self.folder / "results")]
        command = [sys.executable, "-m", "slurm", verb, str(source), *where, *words]
        told = {**os.environ, models.HOLD: str(self.hold), "PYTHON": sys.executable, **(env or {})}
        return subprocess.Popen(
            command, cwd=ROOT, env=told, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def do(
        self,
        verb: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        code: int = 0,
        limit_s: float = 240,
    ) -> str:
        """Run `python -m slurm VERB` to its end; require exit code `code`, return what it said."""
        process = self.start(verb, *words, env=env)
        said, _ = process.communicate(timeout=limit_s)
        assert process.returncode == code, f"{said}\n{self.printed()}"
        return said

    def submit(self, preflight: bool = False, report: bool = False) -> str:
        """Submit the one job, and with `report` another after it; the first one's number."""
        said = self.do(
            "submit",
            *([] if report else ["--no-report"]),
            env={} if preflight else {"PREFLIGHT": "no"},
        )
        number, *_ = re.findall(r"submitted as job (\d+)", said)
        return str(number)

    def resume(self) -> None:
        """Submit what is missing."""
        self.do("submit", "--no-report", env={"PREFLIGHT": "no"})

    def wait(self, code: int = 0, limit_s: float = 240) -> str:
        return self.do("status", "--follow", "--poll-s", "0.5", code=code, limit_s=limit_s)

    def stop_in_first_run(self) -> None:
        """Return once the job's first run is held in the middle."""
        first, *_ = self._lines()
        self.hold.touch()
        self._until(first, '"event": "start"')

    def stop_in_second_run(self) -> None:
        """Return once the job's first run is complete and its second is held in the middle."""
        first, second = self._lines()
        self._until(first, '"event": "exit"')
        self.hold.touch()
        self._until(second, '"event": "start"')

    def _lines(self) -> list[Path]:
        """List the logs of the job's runs, in the order of the runs."""
        script = sorted(self._top.glob("job-*.sh"))[-1].read_text()
        return [
            self._top / "runs" / f"{name}.jsonl" for name in re.findall(r"(?m)^run (\S+)", script)
        ]

    @property
    def _top(self) -> Path:
        return self.folder / "results" / self.name

    def _until(self, log: Path, event: str, limit_s: float = 150) -> None:
        deadline = time.monotonic() + limit_s
        while not (log.exists() and event in log.read_text()):
            if time.monotonic() > deadline:
                pytest.fail(f"{log.name} holds no {event} after {limit_s:g} s\n{self.printed()}")
            time.sleep(0.05)

    def logs(self, attempts: bool = False) -> list[Run]:
        """Read the logs of the runs, or those of attempts that were set aside, by name; check that
        each has no event lost or doubled.
        """
        paths = sorted((self._top / "runs").glob("*.jsonl"))
        return [
            steps.recorded_once(path) for path in paths if (".attempt-" in path.name) == attempts
        ]

    def states(self, attempts: bool = False) -> list[str]:
        return [run.state for run in self.logs(attempts)]

    def printed(self) -> str:
        """Read all that jobs and runs have printed."""
        paths = [*self._top.glob("jobs/*.out"), *self._top.glob("runs/*.out")]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in paths)
