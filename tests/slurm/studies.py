"""Small studies that the tests of slurm/ share, and job scripts of the shipped ones."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from slurm.fit import fit, jobs, text_of
from slurm.render import render_batch, render_job, render_report
from slurm.site import Site, find_study, read_site

ROOT = Path(__file__).parents[2]
SITES = sorted(p.stem for p in (ROOT / "slurm/sites").glob("*.toml"))
CLUSTERS = [name for name in SITES if read_site(name).scheduler == "slurm"]
STUDIES = sorted(p.stem for p in (ROOT / "slurm/studies").glob("*.toml"))

SMALL = """\
name = "small"
question = "Which is faster?"
cells = ["single", "ddp/mpi", "horovod/gloo"]
scaling = ["weak", "strong"]
world_sizes = [1, 2]
launches = 2
seed = 7
time_limit_s = 30
turns = false

[weak]
batch_per_rank = 8

[strong]
global_batch = 8

[run]
dataset = "digits"
windows = 2
nesterov = true
"""


def write(folder: Path, text: str = SMALL, **changes: str) -> Path:
    """Write a study file; each change replaces the line of that key, or leaves it out if empty."""
    lines = []
    for line in text.splitlines():
        key = line.partition(" =")[0]
        new = changes.pop(key, line) if " =" in line else line
        lines += [new] if new or not line else []
    assert not changes, f"no such keys: {changes}"
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def changed(site: Site, **changes: object) -> Site:
    """Give the site other values of dotted keys, '.' written '__', checked as if they stood in its
    file.
    """
    values = site.model_dump(mode="json")
    for key, value in changes.items():
        table, _, name = key.rpartition("__")
        (values[table] if table else values)[name] = value
    return Site(**values)


def small(folder: Path, **changes: str) -> Study:
    return read_study(write(folder, **changes))


def planned(study: Study, folder: Path, launches: int) -> list[PlannedRun]:
    return [run for launch in plan(study, launches, folder / "runs") for run in launch]


def shipped(site: Site, name: str) -> tuple[str, list[PlannedRun]]:
    """Make a shipped study's script and runs; on a cluster the first launch's at the most nodes."""
    source = find_study(name)
    written = read_study(source)
    study = fit(written, site, (), source)
    folder = Path("results") / study.name
    text = text_of(study, written, source.read_text())
    if site.scheduler == "none":
        runs = planned(study, folder, study.launches)
        return render_job(study, text, site, runs, folder), runs
    job = jobs(planned(study, folder, 1), site)[-1]
    return render_batch(study, text, site, job, folder), list(job.runs)


def report(site: Site) -> str:
    return render_report(read_study(find_study("weak")), site, Path("results/weak"))


def run_lines(script: str) -> str:
    return "".join(f"{line}\n" for line in script.splitlines() if line.startswith("run "))


def complaint(scripts: Iterable[str]) -> str:
    """Return what bash says against scripts that it only reads, all of them in one process."""
    text = "\n".join(scripts)
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).stderr
