"""An installed copy: it holds every file of the rooms, and its command works anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench import version
from hvd_ddp import ROOMS

ROOT = Path(__file__).parents[1]
BUILD = """
import os, sys, tarfile
from setuptools import build_meta
unpacked = sys.argv[1]  # setuptools replaces them
build_meta.build_wheel("from-tree")
archive = build_meta.build_sdist("archive")
tarfile.open(f"archive/{archive}").extractall(unpacked, filter="data")
os.chdir(os.path.join(unpacked, archive.removesuffix(".tar.gz")))
build_meta.build_wheel(unpacked)
"""


def files(folder: Path) -> set[str]:
    found = {p.relative_to(folder) for room in ROOMS for p in (folder / room).rglob("*")}
    return {str(p) for p in found if (folder / p).is_file() and "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel made from the tree, and the one made from its source archive."""
    source, unpacked = (tmp_path_factory.mktemp(name) for name in ("source", "unpacked"))
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("hvd_ddp.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(unpacked)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    return next((source / "from-tree").glob("*.whl")), next(unpacked.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what `pip install .` puts into site-packages."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(site)
    return site


def test_the_source_archive_makes_the_same_wheel(wheels: tuple[Path, Path]) -> None:
    from_tree, from_archive = (
        {(entry.filename, entry.CRC) for entry in zipfile.ZipFile(wheel).infolist()}
        for wheel in wheels
    )
    assert from_archive == from_tree
    assert from_tree


COMMAND = "import sys, hvd_ddp; sys.exit(hvd_ddp.main())"
WITHOUT_TORCH = f"""
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
{COMMAND}
"""


def run(
    installed: Path, folder: Path, *words: str, code: str = COMMAND
) -> subprocess.CompletedProcess[str]:
    # -P: as in a script of pip's, the folder it is started in is not on the path
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


def test_every_file_of_the_rooms_is_in_it(installed: Path) -> None:
    pages = {f"bench/{page}.md" for page in ("EXERCISE", "LEAVING_HOROVOD", "WHY_SLOW")}
    pages |= {f"{room}/README.md" for room in ROOMS}
    assert files(ROOT) - files(installed) <= pages
    assert "Name: horovod-vs-ddp" in next(installed.glob("*.dist-info/METADATA")).read_text()
    assert "hvd-ddp = hvd_ddp:main" in next(installed.glob("*/entry_points.txt")).read_text()


def test_it_renders_a_shipped_study_and_reports_on_logs(installed: Path, tmp_path: Path) -> None:
    script = run(installed, tmp_path, "slurm", "render", "local")
    assert script.returncode == 0, script.stderr
    assert "results/mine/local" in script.stdout
    report = run(
        installed, tmp_path, "plots", "report", str(ROOT / "results/local"), "--out", str(tmp_path)
    )
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.md").exists()


def test_it_describes_a_run(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "bench", "--show-config", "--batch-per-rank", "4")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert 'backend = "single"' in shown.stdout


def test_the_command_names_its_rooms(installed: Path, tmp_path: Path) -> None:
    help_ = run(installed, tmp_path)
    assert help_.returncode == 0
    assert all(f"  {room}  " in help_.stdout for room in ROOMS)
    wrong = run(installed, tmp_path, "plot")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: 'plot' is none of bench, slurm, plots")


def test_hints_name_the_command_that_was_typed(installed: Path, tmp_path: Path) -> None:
    refused = run(installed, tmp_path, "slurm", "run", "local")
    start = "change to the root of a checkout, or write the script here: hvd-ddp slurm render STUDY"
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith(f"from which job scripts run; {start}\n")
    assert not (tmp_path / "results").exists()
    for room in ("slurm", "plots"):
        unknown = run(installed, tmp_path, room, "zzz")
        assert unknown.stderr.endswith(f"; see hvd-ddp {room} --help\n")
    written = run(installed, tmp_path, "slurm", "study", "new", "mine")
    assert written.stdout.endswith("edit it, then: hvd-ddp slurm run mine.toml\n")


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-P", "-c", "import plots; print(plots.version())"],
        [str(Path(sys.executable).with_name("hvd-ddp")), "--version"],
    ],
)
def test_set_up_brings_the_rooms_and_their_command_to_any_folder(
    command: list[str], tmp_path: Path
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version()}\n", "")


def test_advice_fits_an_installed_copy_and_its_command(installed: Path, tmp_path: Path) -> None:
    no_torch = run(installed, tmp_path, "bench", "--batch-per-rank", "4", code=WITHOUT_TORCH)
    assert no_torch.returncode == 2
    (line,) = no_torch.stderr.splitlines()
    cure = "pip install torch torchvision, or run make setup in a checkout of the project"
    assert f"{sys.executable} has no torch, which a run needs; {cure}" in line
    wrong = run(installed, tmp_path, "plots", "zzz")
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("; see hvd-ddp plots --help\n")
    for room in ROOMS:
        shown = run(installed, tmp_path, room, "--help").stdout
        assert f"hvd-ddp {room} " in shown
        assert f"python -m {room}" not in shown


def test_advice_outside_a_checkout_says_where_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-m", "slurm", "--help"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    cure = f"run `make -C {ROOT} setup` and start {ROOT}/.venv/bin/python, or `pip install {ROOT}`"
    missing = f"error: pydantic is not installed for {sys.executable}; {cure}\n"
    assert (done.returncode, done.stderr) == (2, missing)


def test_a_folder_named_like_a_room_is_not_taken_for_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").write_text("raise SystemExit(9)")
    assert run(installed, tmp_path, "bench", "--version").returncode == 0
