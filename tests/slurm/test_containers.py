"""The recipe of an image. A build takes minutes and a base image, so it is done by hand
(slurm/centre/containers/README.md).
"""

from __future__ import annotations

import re

from bench.tools.setup import install
from tests.slurm.studies import ROOT

FILE = ROOT / "slurm" / "centre" / "containers" / "Dockerfile"


def test_the_dockerfile_is_the_projects_own_set_up_on_any_base() -> None:
    found: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            found.setdefault(instruction, []).append(rest)
    assert found.keys() == {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENV"}
    assert (found["ARG"][0], found["FROM"]) == ("BASE", ["${BASE}"])
    assert found["RUN"][-1] == "python3 bench/tools/setup/install.py --venv .venv"
    for name in found["ARG"][1:]:
        assert install.SETTING.match(name), name
    for source in found["COPY"]:
        path, place = source.split()
        assert (ROOT / path).exists()
        assert place == f"{found['WORKDIR'][0]}/{path}"
    # its packages are those that the error message names
    (packages,) = re.findall(r"no-install-recommends (.*)", "\n".join(found["RUN"]))
    assert install.DEBIAN.endswith(f" {packages}")
