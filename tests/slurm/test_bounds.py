"""Absurd input: every value is bounded and of one kind, reaches no shell as code, and is refused in
one line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.config import UsageError
from slurm.directives import Request
from slurm.load import read_site
from slurm.site import Site
from tests.slurm.calls import Calls
from tests.slurm.studies import ROOT, write

SITE = (ROOT / "slurm/sites/testcluster.toml").read_text()
HUGE = "1" + "0" * 23


def read(folder: Path, text: str) -> Site:
    path = folder / "testcluster.toml"
    path.write_text(text)
    return read_site(str(path))


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("max_nodes", HUGE, r"limits.max_nodes=.*less than or equal to 1048576"),
        ("max_nodes", "true", r"limits.max_nodes=True: should be a valid integer"),
        ("exclusive", '"yes"', r"policy.exclusive='yes': should be a valid boolean"),
        ("mpi", '"pmix; touch x"', r"mpi='pmix; touch x': .*should match pattern"),
        ("title", '"x\\ntouch y"', r"title='x\\ntouch y': .*should match pattern"),
        ("title", '"x\\u2028touch"', r"title='x\\u2028touch': .*should match pattern"),
    ],
)
def test_a_site_of_absurd_values_is_refused(
    tmp_path: Path, key: str, value: str, rule: str
) -> None:
    text, found = re.subn(f"(?m)^{key} .*$", f"{key} = {value}".replace("\\", r"\\"), SITE)
    assert found == 1
    with pytest.raises(UsageError, match=rule):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("extra", "rule"),
    [
        ("--comment=a b", "is not of the form '--name=value' or '--name=\"a value\"'"),
        ('--x="a" --nodes=9', "is not of the form '--name=value' or '--name=\"a value\"'"),
        ("--array=1-3", "breaks a job: a job is one block"),
        ("--arr=1-3", "breaks a job: a job is one block"),
        ("--nodes=9", "breaks a job: nodes and ranks are the study's"),
    ],
)
def test_an_extra_option_is_one_that_breaks_no_job(tmp_path: Path, extra: str, rule: str) -> None:
    with pytest.raises(UsageError, match=f"access.extra: .* {rule}"):
        read(tmp_path, SITE + f"\n[access]\nextra = ['''{extra}''']\n")
    fine = "extra = ['--comment=\"a b\"', '--licenses=a@b:2', '--hold']"
    assert len(read(tmp_path, f"{SITE}\n[access]\n{fine}\n").access.extra) == 3


@pytest.mark.parametrize("word", ["x\ntouch PWN\n#", "x y", "x#y", "$(touch PWN)"])
def test_an_account_is_one_word_and_so_is_a_reservation(call: Calls, word: str) -> None:
    for option in ("account", "reservation"):
        line = call.refuse("render", "weak", "--site", "generic", f"--{option}", word)
        assert line.startswith(f"--{option} {word!r} would not reach sbatch as it is; ")
    assert Request(read_site("generic"), "PAS0001-gpu_x.y@z").account


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    study = write(tmp_path, question='question = "Wie schnell ist es über MPI?"')
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    env = {**bare, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["render", str(study), "--results", str(tmp_path / "größe")]
    command = [sys.executable, "-m", "slurm", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "# Wie schnell ist es über MPI?\n" in done.stdout.decode()
    assert f"  --study-dir='{tmp_path}/größe/small'\n" in done.stdout.decode()


def test_a_missing_package_is_one_line() -> None:
    """-S hides what is installed beside Python."""
    command = [sys.executable, "-S", "-m", "slurm", "render", "local"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    missing = f"error: pydantic is not installed for {sys.executable}; run `make setup`"
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout, line.startswith(missing)) == (2, "", True)


def test_without_file_locks_studies_are_rendered_and_not_run(tmp_path: Path) -> None:
    """As on Windows, whose Python has no fcntl."""
    code = "import sys; sys.modules['fcntl'] = None; from slurm.__main__ import main; "
    command = [sys.executable, "-c", f"{code}sys.exit(main())"]
    for verb, found in (("render", 0), ("run", 2)):
        words = [verb, "local", "--results", str(tmp_path)]
        done = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == found, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: this system has no file locks (fcntl), so two jobs could run at")
