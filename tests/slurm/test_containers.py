"""The recipes of images: the definitions for Apptainer are held against the Dockerfile, line by
line. A build takes minutes and a base image, so it is done by hand
(slurm/centre/containers/README.md).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.tools.setup import install, wheel

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "slurm" / "centre" / "containers"
DEFINITIONS = {"cuda": "docker.io/nvidia/cuda:", "rocm": "docker.io/rocm/"}
EXPORT = re.compile(r"export (\w+)=(\S+)(?:  # .*)?$")


def instructions() -> dict[str, list[str]]:
    """Instruction of the Dockerfile -> its words, in their order."""
    words: dict[str, list[str]] = {}
    for line in (FOLDER / "Dockerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            words.setdefault(instruction, []).append(rest)
    return words


def sections(kind: str) -> dict[str, list[str]]:
    """Section of a definition -> its lines without indent; "" is the head."""
    lines: dict[str, list[str]] = {"": []}
    for line in (FOLDER / f"{kind}.def").read_text().splitlines():
        if line.startswith("%"):
            lines[line[1:]] = []
        elif line.strip():
            lines[list(lines)[-1]].append(line.strip())
    return lines


def settings_of(kind: str) -> dict[str, str]:
    """What a definition exports before the commands that it shares with the Dockerfile."""
    post = sections(kind)["post"]
    own = post[1 : post.index("# As in the Dockerfile from here on.")]
    assert post[0].lower().startswith(f"# of {kind} alone: ")
    found = [EXPORT.fullmatch(line) for line in own]
    return {match[1]: match[2] for match in found if match}


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


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_a_definition_does_what_the_dockerfile_does(kind: str) -> None:
    found, lines = instructions(), sections(kind)
    assert lines.keys() == {"", "files", "post", "environment"}
    assert lines["files"] == found["COPY"]
    start = lines["post"].index("# As in the Dockerfile from here on.") + 1
    *before, last = found["RUN"]
    assert lines["post"][start:] == [*before, f"cd {found['WORKDIR'][0]}", last]
    assert lines["environment"] == [f"export {word}" for word in found["ENV"]]


@pytest.mark.parametrize(("kind", "base"), DEFINITIONS.items())
def test_only_base_and_settings_differ(kind: str, base: str) -> None:
    head = sections(kind)[""]
    *comments, bootstrap, source = head
    assert bootstrap == "Bootstrap: docker"
    assert source.startswith(f"From: {base}")
    assert any(line.startswith("# Never built: ") for line in comments)
    post = sections(kind)["post"]
    own = post[1 : post.index("# As in the Dockerfile from here on.")]
    assert len(settings_of(kind)) == len(own), "settings alone, and no commands"
    for name in settings_of(kind).keys() - {"PATH"}:
        assert name in install.CHOICES or wheel.BUILD_SETTING.match(name), name


def test_the_gpu_recipes_reach_horovods_build() -> None:
    for kind in DEFINITIONS:
        assert settings_of(kind)["HOROVOD_GPU_OPERATIONS"] == "NCCL"
        assert settings_of(kind)["HOROVOD_NCCL_LINK"] == "SHARED"
    assert "HOROVOD_CMAKE" not in wheel.build_environment(settings_of("cuda"))
    chosen = wheel.build_environment(settings_of("rocm"))["HOROVOD_CMAKE"]
    assert chosen == str(wheel.CMAKE_ROCM)
