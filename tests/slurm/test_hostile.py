"""Hostile study and site files: refused in one line, or no shell executes what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import UsageError
from bench.study.files import read_study, read_text
from slurm.directives import Request
from slurm.fit import fit, jobs, text_of
from slurm.load import read_site
from slurm.render import render_batch, render_report
from tests.slurm.calls import Calls
from tests.slurm.scripts import complaint, planned
from tests.slurm.studies import ROOT, SMALL, write

COMMANDS = """$(touch MARK)|`touch MARK`|' ; touch MARK; '|" ; touch MARK; "|\ntouch MARK\n|\\\n\
touch MARK #|a[$(touch MARK)]|\nEND_OF_STUDY\ntouch MARK\n|\u2028touch MARK|{{ 1 }} %} <# MARK"""
SHOWN = st.characters(exclude_categories=["Cc", "Cs"])
TEXT = st.builds(str.__add__, st.text(SHOWN, max_size=3), st.sampled_from(COMMANDS.split("|")))
SITE = (ROOT / "slurm/sites/generic.toml").read_text()
STUDY = SMALL.replace('"digits"', '"my.images:make"').replace('"ddp/mpi"', '"ddp/gloo"')
# of a site and of a study, dotted keys of free text; a list gets the text as its one element
OF_SITE = "title notes launch_args access.extra network.ifname setup.modules setup.venv env.OPTION"
OF_STUDY = "question run.data_dir"
LISTS = ("notes", "launch_args", "extra", "modules")


def planted(text: str, keys: str, values: Mapping[str, object]) -> str:
    """Put values under those of its dotted keys that are named."""
    document = tomlkit.parse(text).unwrap()
    for key in set(values) & set(keys.split()):
        *tables, name = key.split(".")
        place = document
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = [values[key]] if name in LISTS else values[key]
    return tomlkit.dumps(document)


def rendered(folder: Path) -> list[str]:
    source = folder / "study.toml"
    written, site = read_study(source), read_site(str(folder / "generic.toml"))
    study, request = fit(written, site, (1,), source), Request(site)
    job = jobs(planned(study, folder, 1), site)[0]
    text = text_of(study, written, read_text(source))
    return [render_batch(study, text, request, job, folder), render_report(study, request, folder)]


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(st.sampled_from(f"{OF_SITE} {OF_STUDY}".split()), TEXT, min_size=1, max_size=2)
)
def test_no_shell_executes_a_value(values: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slurm/driver").mkdir(parents=True)
        for file in ("slurm/driver/__main__.py", "module"):
            (folder / file).touch(0o755)
        (folder / "study.toml").write_text(planted(STUDY, OF_STUDY, values))
        (folder / "generic.toml").write_text(planted(SITE, OF_SITE, values))
        scripts, said = [], ""
        try:
            scripts = rendered(folder)
        except UsageError as error:
            said = str(error)
        assert "\n" not in said
        assert complaint(scripts) == ""
        env = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHON": "/bin/true", "SLURM_JOB_ID": "1"}
        for script in scripts:
            subprocess.run(["bash"], input=script, cwd=folder, env=env, text=True, timeout=60)
        assert not [*folder.rglob("MARK")]


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("limits.max_nodes", 10**12, "less than or equal to 1048576"),
        ("policy.exclusive", "yes", "policy.exclusive='yes': should be a valid boolean"),
        ("mpi", "pmix; touch x", "mpi='pmix; touch x': .*should match pattern"),
        ("access.extra", "--array=1-3", "access.extra: .* breaks a job: a job is one launch"),
        ("access.extra", "--nod=9", "breaks a job: nodes and ranks are the study's"),
    ],
)
def test_a_site_of_absurd_values_is_refused(
    tmp_path: Path, key: str, value: object, rule: str
) -> None:
    (tmp_path / "generic.toml").write_text(planted(SITE, key, {key: value}))
    with pytest.raises(UsageError, match=rule):
        read_site(str(tmp_path / "generic.toml"))


def test_an_account_is_one_word(call: Calls) -> None:
    line = call.refuse("render", "weak", "--site", "generic", "--account", "x\ntouch PWN\n#")
    assert line.startswith("--account 'x\\ntouch PWN\\n#' would not reach sbatch as it is; ")


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    study = write(tmp_path, question='question = "Wie schnell ist es über MPI?"')
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["render", str(study), "--results", str(tmp_path / "größe")]
    command = [sys.executable, "-m", "slurm", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "# Wie schnell ist es über MPI?\n" in done.stdout.decode()
    assert f"  --study-dir='{tmp_path}/größe/small'\n" in done.stdout.decode()


def test_without_a_package_or_file_locks_it_is_one_line(tmp_path: Path) -> None:
    """As on Windows, whose Python has no fcntl; -S hides what is installed beside Python."""
    bare = [sys.executable, "-S", "-m", "slurm", "render", "local"]
    code = "import sys; sys.modules['fcntl'] = None; from slurm.__main__ import main; "
    unlocked = [sys.executable, "-c", f"{code}sys.exit(main())"]
    run = [*unlocked, "run", "local", "--results", str(tmp_path)]
    missing = f"pydantic is not installed for {sys.executable}; run `make setup`"
    for command, why in ((bare, missing), (run, "fcntl is not part of Python on ")):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert line.startswith(f"error: {why}")
    render = [*unlocked, "render", "local", "--results", str(tmp_path)]
    subprocess.run(render, cwd=ROOT, capture_output=True, check=True)
