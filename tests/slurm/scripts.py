"""Job scripts of the shipped studies at the shipped sites, rendered in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from slurm.fit import Job, fit, jobs, text_of
from slurm.render import render_batch, render_job, render_report
from slurm.site import Site, find_study, read_site
from tests.slurm.studies import ROOT

SITES = sorted(p.stem for p in (ROOT / "slurm/sites").glob("*.toml"))
CLUSTERS = [name for name in SITES if read_site(name).scheduler == "slurm"]
STUDIES = sorted(p.stem for p in (ROOT / "slurm/studies").glob("*.toml"))


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
    job: Job = jobs(planned(study, folder, 1), site)[-1]
    return render_batch(study, text, site, job, folder), list(job.runs)


def report(site: Site) -> str:
    return render_report(read_study(find_study("weak")), site, Path("results/weak"))


def run_lines(script: str) -> str:
    return "".join(f"{line}\n" for line in script.splitlines() if line.startswith("run "))


def complaint(scripts: Iterable[str]) -> str:
    """Return what bash says against scripts that it only reads, all of them in one process."""
    text = "\n".join(scripts)
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).stderr
