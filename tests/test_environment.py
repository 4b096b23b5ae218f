"""environment.yml pins what set-up installs; only names and the absence of Horovod differ, and
are written down here.
"""

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


OURS = ROOT / "environment.yml"


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
