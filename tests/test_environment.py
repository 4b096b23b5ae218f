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
    lines = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {name: wanted for name, *wanted in (line.split("=") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in map(Requirement, sum(extras.values(), project["dependencies"])):
        assert requirement.specifier.contains(EXACT[requirement.name]), requirement
    # test is for developers; Horovod is built by `bench/tools/setup/install.py --into-active`
    measuring = [*project["dependencies"], *extras["bench"], *extras["horovod-build"]]
    packages = {Requirement(line).name for line in measuring} - {"horovod"}
    asked = {name: version[0] for name, version in conda.items() if name not in CONDA_ONLY}
    assert asked == {CONDA_NAMES.get(name, name): EXACT[name] for name in packages}
    least = project["requires-python"].removeprefix(">=").split(".")
    assert [*map(int, conda["python"][0].split("."))] >= [*map(int, least)]
    assert conda["pytorch"][1] == "cuda*"
    assert conda.keys() >= CONDA_ONLY
