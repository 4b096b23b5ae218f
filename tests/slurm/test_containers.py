"""The recipe of an image. A build takes minutes and a base image, so it is done by hand
(slurm/centre/containers/README.md).
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.tools.setup import install, wheel

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "slurm" / "centre" / "containers"


def instructions() -> dict[str, list[str]]:
    """Instruction of the Dockerfile -> its words, in their order."""
    words: dict[str, list[str]] = {}
    for line in (FOLDER / "Dockerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            words.setdefault(instruction, []).append(rest)
    return words


def test_the_dockerfile_is_the_projects_own_set_up_on_any_base() -> None:
    found = instructions()
    assert found.keys() == {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENV"}
    assert (found["ARG"][0], found["FROM"]) == ("BASE", ["${BASE}"])
    assert found["RUN"][-1] == "python3 bench/tools/setup/install.py --venv .venv"
    assert not re.search(r"\bpip\b|horovod==", (FOLDER / "Dockerfile").read_text())
    for name in found["ARG"][1:]:
        assert name in install.CHOICES or wheel.BUILD_SETTING.match(name), name
    for source in found["COPY"]:
        path, place = source.split()
        assert (ROOT / path).exists()
        assert place == f"{found['WORKDIR'][0]}/{path}"


def test_its_packages_are_those_that_ci_and_the_error_message_name() -> None:
    (packages,) = re.findall(r"no-install-recommends (.*)", "\n".join(instructions()["RUN"]))
    needs = (ROOT / "bench/tools/setup/needs.py").read_text()
    assert packages.split() == ["g++", "make", "python3-dev", "python3-venv"]
    assert all(f'"{package}"' in needs for package in packages.split())
