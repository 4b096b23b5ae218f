"""constraints.txt and environment.yml pin versions that the package takes, and the same ones."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from bench.tools.setup.install import EXACT

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
# What pip's packages bring along or leave to the machine, and conda's name one by one.
CONDA_ONLY = {"python", "cuda-version", "nccl", "cuda-nvcc", "cuda-libraries-dev"}
CONDA_ONLY |= {"cxx-compiler", "make", "pip"}


def test_every_pin_agrees() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pins = {tuple(line.split("=")[:2]) for line in conda if line.split("=")[0] not in CONDA_ONLY}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in map(Requirement, sum(extras.values(), project["dependencies"])):
        assert requirement.specifier.contains(EXACT[requirement.name]), requirement
    # test is for developers; Horovod is built into conda's environment by set-up
    measuring = [*project["dependencies"], *extras["bench"], *extras["horovod-build"]]
    packages = {Requirement(line).name for line in measuring} - {"horovod"}
    assert pins == {(CONDA_NAMES.get(name, name), EXACT[name]) for name in packages}
