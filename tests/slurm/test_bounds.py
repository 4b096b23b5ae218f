"""Hostile and absurd input: every value is bounded and of one kind, reaches no shell as code, and
is refused in one line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
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
        ("cores", "4.0", r"node.cores=4.0: should be a valid integer"),
        ("exclusive", '"yes"', r"policy.exclusive='yes': should be a valid boolean"),
        (
            "signal_lead_s",
            "100000",
            r"policy.signal_lead_s=100000: should be less than or equal to",
        ),
        ("mpi", '"pmix; touch x"', r"mpi='pmix; touch x': .*should match pattern"),
        ("mpi", '"a#b"', r"mpi='a#b': .*should match pattern"),
        ("title", '"x\\ntouch y"', r"title='x\\ntouch y': .*should match pattern"),
        ("title", '"x\\u0000"', r"title='x\\x00': .*should match pattern"),
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
    "extra",
    ["--comment=a b", "--x=`touch y`", "--x=$(touch y)", "--x='y'", '--x="a" --nodes=9', "--x=a#b"],
)
def test_an_extra_option_is_one_option(tmp_path: Path, extra: str) -> None:
    rule = r"access.extra: .* is not of the form '--name=value' or '--name=\"a value\"'"
    with pytest.raises(UsageError, match=rule):
        read(tmp_path, SITE + f"\n[access]\nextra = ['''{extra}''']\n")
    fine = "extra = ['--comment=\"a b\"', '--licenses=a@b:2', '--hold']"
    assert len(read(tmp_path, f"{SITE}\n[access]\n{fine}\n").access.extra) == 3


@pytest.mark.parametrize(
    "option", ["--array=1-3", "--arr=1-3", "--wait", "--parsable", "--output=x", "--nodes=9"]
)
def test_an_extra_option_that_breaks_a_job_is_refused(tmp_path: Path, option: str) -> None:
    rule = rf"access.extra: '{option}' breaks a job: .*; leave it out"
    with pytest.raises(UsageError, match=rule):
        read(tmp_path, f"{SITE}\n[access]\nextra = ['{option}']\n")


@pytest.mark.parametrize(
    "account", ["x\ntouch PWN\n#", "x y", "x#y", "x'y", 'x"y', "x\\y", "$(touch PWN)", "x\x00", "é"]
)
def test_an_account_is_one_word_and_so_is_a_reservation(account: str) -> None:
    with pytest.raises(UsageError, match=r"^--account .* would not reach sbatch as it is"):
        Request(read_site("generic"), account)
    with pytest.raises(UsageError, match=r"^--reservation .* would not reach sbatch as it is"):
        Request(read_site("generic"), reservation=account)
    assert Request(read_site("generic"), "PAS0001-gpu_x.y@z").account


def test_the_command_line_refuses_an_account_with_commands(call: Calls) -> None:
    line = call.refuse("render", "weak", "--site", "generic", "--account", "x\ntouch PWN\n#")
    assert line.startswith(r"--account 'x\ntouch PWN\n#' would not reach sbatch as it is; ")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--blocks", "10001"], "--blocks '10001': Input should be less than or equal"),
        (["--blocks", HUGE], "--blocks '10000"),
        (["--time-limit-s", "2592001"], "--time-limit-s '2592001': Input should be less"),
        (["--results", ""], "--results is empty; name a folder, or leave it out"),
        (["--nodes", "٣"], "--nodes '٣' is no list of node counts; write --nodes 1,2,4"),
        (["--nodes", "9" * 5000], "--nodes '9999"),
    ],
)
def test_an_absurd_option_is_one_short_line(call: Calls, words: list[str], rule: str) -> None:
    line = call.refuse("render", "smoke", "--site", "testcluster", *words)
    assert line.startswith(rule)
    assert len(line) < 900


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"x = " + b"[" * 100_000, "tables or lists are nested too deeply; a study needs two"),
        (b'name = "\xff"\n', "'utf-8' codec can't decode byte 0xff"),
        (b'name = "a\x00b"\n', "Illegal character"),
        (b"blocks = " + b"9" * 5000, "Exceeds the limit"),
        (b"#" * (2**20 + 1), "longer than 1048576 bytes, so this is no study or site file"),
    ],
)
def test_a_file_that_is_no_study_is_one_line(
    call: Calls, tmp_path: Path, content: bytes, rule: str
) -> None:
    (tmp_path / "study.toml").write_bytes(content)
    assert rule in call.refuse("render", str(tmp_path / "study.toml"))


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


def test_the_most_blocks_are_rendered_in_seconds(call: Calls, tmp_path: Path) -> None:
    """By this process's own clock: the machine may be busy."""
    cells = 'cells = ["single", "ddp/mpi", "horovod/mpi"]'
    scaling, blocks = 'scaling = ["weak"]', "blocks = 10000\nmax_blocks = 10000"
    study = write(tmp_path, cells=cells, scaling=scaling, blocks=blocks)
    study.write_text(study.read_text().replace("[strong]\nglobal_batch = 8\n", ""))
    began = time.process_time()
    code, out, _ = call("render", str(study), "--results", str(tmp_path))
    assert code == 0
    assert out.count("\nrun b") == 50_000
    assert time.process_time() - began < 20


def test_a_missing_package_is_one_line() -> None:
    """-S hides what is installed beside Python."""
    for words in (["slurm", "--help"], ["slurm", "render", "local"]):
        command = [sys.executable, "-S", "-m", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        missing = f"error: pydantic is not installed for {sys.executable}; run `make setup`"
        assert line.startswith(missing)


def test_without_file_locks_studies_are_rendered_and_not_run(tmp_path: Path) -> None:
    """As on Windows, whose Python has no fcntl."""
    code = (
        "import sys; sys.modules['fcntl'] = None; from slurm.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code]
    kept = ["local", "--results", str(tmp_path)]
    for verb, found in (("render", 0), ("status", 0), ("run", 2)):
        done = subprocess.run([*command, verb, *kept], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == found, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: this system has no file locks (fcntl), so two jobs could run at")
