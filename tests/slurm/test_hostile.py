"""Hostile study and site files: refused in one line, or no shell executes what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import UsageError
from bench.study.files import read_study, read_text
from slurm.fit import fit, jobs, text_of
from slurm.render import render_batch, render_report
from slurm.site import read_site
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
    study = fit(written, site, (1,), source)
    job = jobs(planned(study, folder, 1), site)[0]
    text = text_of(study, written, read_text(source))
    return [render_batch(study, text, site, job, folder), render_report(study, site, folder)]


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
    code = "import sys; sys.modules['fcntl'] = None; from slurm.__main__ import main; main()"
    run = [sys.executable, "-c", code, "run", "local", "--results", str(tmp_path)]
    missing = f"pydantic is not installed for {sys.executable}; run `make setup`"
    for command, why in ((bare, missing), (run, "this system has no file locks (fcntl), so two")):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.stderr.startswith(f"error: {why}")
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
