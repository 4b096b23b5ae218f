"""environment.yml pins what set-up installs; only names and the absence of Horovod differ, and
are written down here. conda-forge.yml has Horovod from conda-forge, and PyTorch to match.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from bench.tools.setup import install

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()

CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
NOT_FROM_CONDA = {"horovod"}  # built by `bench/tools/setup/install.py --into-active`
EXTRAS = ("bench", "horovod-build")  # test is for developers
# What pip's packages bring along or leave to the machine, and conda's name one by one.
CONDA_ONLY = {
    "python",
    "cuda-version",
    "nccl",
    "cuda-nvcc",
    "cuda-libraries-dev",
    "cxx-compiler",
    "make",
    "pip",
}


CONTAINERS = ROOT / "slurm" / "centre" / "containers"
OURS, CONDA_FORGES = ROOT / "environment.yml", CONTAINERS / "conda-forge.yml"


def environment(path: Path = OURS) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def conda(path: Path = OURS) -> dict[str, list[str]]:
    """Package -> what is asked of it: version, build string."""
    lines: list[str] = environment(path)["dependencies"]
    return {name: wanted for name, *wanted in (line.split("=") for line in lines)}


def test_every_pin_agrees() -> None:
    project = tomllib.loads(PROJECT)["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    names = [Requirement(line).name for line in (*project["dependencies"], *extras)]
    pins = {name: install.exact_versions()[name] for name in names}
    wanted = {
        CONDA_NAMES.get(name, name): version
        for name, version in pins.items()
        if name not in NOT_FROM_CONDA
    }
    found = {
        name: (asked or ["any"])[0] for name, asked in conda().items() if name not in CONDA_ONLY
    }
    assert found == wanted


def test_conda_brings_a_python_that_the_project_takes() -> None:
    (version,) = conda()["python"]
    least = tomllib.loads(PROJECT)["project"]["requires-python"].removeprefix(">=")
    assert [int(part) for part in version.split(".")] >= [int(part) for part in least.split(".")]


def test_the_gpu_build_of_pytorch_from_one_channel() -> None:
    assert conda()["pytorch"][1] == "cuda*"
    assert environment()["channels"] == ["conda-forge", "nodefaults"]
    assert conda().keys() >= CONDA_ONLY


def test_conda_forges_horovod_comes_with_the_torch_it_was_built_for_and_no_compiler() -> None:
    ours, theirs = conda(), conda(CONDA_FORGES)
    differ = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    extra = tomllib.loads(PROJECT)["project"]["optional-dependencies"]["horovod-build"]
    compiling = {"cuda-nvcc", "cuda-libraries-dev", "cxx-compiler", "make", "pip"}
    compiling |= {Requirement(line).name for line in extra}
    assert not compiling & theirs.keys()
    assert differ == compiling | {"horovod", "pytorch", "torchvision", "openmpi"}
    assert environment(CONDA_FORGES)["channels"] == environment()["channels"]


def test_what_conda_forges_recipe_is_said_to_be_is_what_is_asked_for() -> None:
    asked = conda(CONDA_FORGES)
    version, build = asked["horovod"]
    assert version == install.exact_versions()["horovod"]
    said = re.sub(r"\n(?:# )?", " ", CONDA_FORGES.read_text())
    (facts,) = re.findall(
        r"build (\d+) of Horovod ([\d.]+\d) is for linux-64, Python 3.10 to (3.\d+), "
        r"PyTorch ([\d.]+), CUDA 12.9 or ([\d.]+) or none, (Open MPI) (\d)",
        said,
    )
    number, of_horovod, newest_python, torch, cuda, _, mpi = facts
    assert (version, build) == (of_horovod, f"cuda_mpi_openmpi_h*_{number}")
    assert asked["pytorch"] == [f"{torch}.*", "cuda*"]
    assert (asked["cuda-version"], asked["openmpi"]) == ([cuda], [mpi])
    assert int(asked["python"][0][2:]) <= int(newest_python[2:])
    # one minor version behind ours, and so is torchvision's partner
    for name, of_ours in (("pytorch", "torch"), ("torchvision", "torchvision")):
        major, minor = install.exact_versions()[of_ours].split(".")[:2]
        assert asked[name][0].removesuffix(".*") == f"{major}.{int(minor) - 1}"
    page = (CONTAINERS / "README.md").read_text()
    assert f"build {number} of Horovod {version} for PyTorch {torch}" in page
