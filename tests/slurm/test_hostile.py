"""Hostile study and site files: refused in one line, or no shell executes what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import tomlkit

from bench.config import UsageError
from bench.study.files import read_study, read_text
from slurm.fit import fit, jobs, text_of
from slurm.render import render_batch, render_report
from slurm.site import read_site
from tests.slurm.studies import ROOT, SMALL, complaint, planned, write

COMMANDS = """$(touch MARK)|`touch MARK`|' ; touch MARK; '|" ; touch MARK; "|\ntouch MARK\n|\\\n\
touch MARK #|a[$(touch MARK)]|\nEND_OF_STUDY\ntouch MARK\n|\u2028touch MARK|{{ 1 }} %} <# MARK"""
SITE = (ROOT / "slurm/sites/generic.toml").read_text()
STUDY = SMALL.replace('"digits"', '"my.images:make"').replace('"ddp/mpi"', '"ddp/gloo"')
# dotted keys of free text, of a site and of a study; a list gets the text as its one element
OF_SITE = "title notes launch_args access.extra network.ifname setup.modules setup.venv env.OPTION"
OF_STUDY = "question run.data_dir"
LISTS = ("notes", "launch_args", "extra", "modules")


def planted(text: str, key: str, value: str) -> str:
    """Put the value under a dotted key."""
    place = document = tomlkit.parse(text).unwrap()
    *tables, name = key.split(".")
    for table in tables:
        place = place.setdefault(table, {})
    place[name] = [value] if name in LISTS else value
    return tomlkit.dumps(document)


def rendered(folder: Path) -> list[str]:
    source = folder / "study.toml"
    written, site = read_study(source), read_site(str(folder / "generic.toml"))
    study = fit(written, site, (1,), source)
    job = jobs(planned(study, folder, 1), site)[0]
    text = text_of(study, written, read_text(source))
    return [render_batch(study, text, site, job, folder), render_report(study, site, folder)]


@pytest.mark.parametrize("key", f"{OF_SITE} {OF_STUDY}".split())
def test_no_shell_executes_a_value(tmp_path: Path, key: str) -> None:
    (tmp_path / "slurm/driver").mkdir(parents=True)
    for file in ("slurm/driver/__main__.py", "module"):
        (tmp_path / file).touch(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": "/bin/true", "SLURM_JOB_ID": "1"}
    for before, command in product(("", "x"), COMMANDS.split("|")):
        of_site = key in OF_SITE.split()
        for name, text, is_its in (("generic", SITE, of_site), ("study", STUDY, not of_site)):
            text = planted(text, key, before + command) if is_its else text
            (tmp_path / f"{name}.toml").write_text(text)
        scripts, refusal = [], ""
        try:
            scripts = rendered(tmp_path)
        except UsageError as error:
            refusal = str(error)
        assert "\n" not in refusal
        assert complaint(scripts) == ""
        for script in scripts:
            subprocess.run(["bash"], input=script, cwd=tmp_path, env=env, text=True, timeout=60)
        assert not [*tmp_path.rglob("MARK")]


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    study = write(tmp_path, question='question = "Wie schnell ist es über MPI?"')
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["render", str(study), "--results", str(tmp_path / "größe")]
    command = [sys.executable, "-m", "slurm", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "# Wie schnell ist es über MPI?\n" in done.stdout.decode()
    assert f"  --study-dir='{tmp_path}/größe/small'\n" in done.stdout.decode()


def test_without_a_package_it_is_one_line() -> None:
    """-S hides what is installed beside Python."""
    bare = [sys.executable, "-S", "-m", "slurm", "render", "local"]
    done = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    missing = f"error: pydantic is not installed for {sys.executable}; run `make setup`"
    assert done.stderr.startswith(missing)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
