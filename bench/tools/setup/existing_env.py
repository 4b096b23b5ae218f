"""Build Horovod into an environment that is there already and brings all the rest, as conda's from
environment.yml does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from bench.tools.setup import prerequisites
from bench.tools.setup.runner import Runner, Screen, SetupError
from bench.tools.setup.state import Pins
from bench.tools.setup.steps import Setup, step_environment

# Not setup.log, which is the sign of an environment that `make setup` made and may delete.
LOG = "horovod-build.log"
CURE = (
    "conda env create -f environment.yml, activate it, and start this with its python; or make "
    "an environment: make setup"
)


class ActiveSetup(Setup):
    """The last two steps in somebody else's environment, which keeps no notes of ours: the wheel is
    always installed anew.
    """

    def run(self) -> None:
        self.horovod()
        self.verify()

    def remember(self, **values: str) -> None:
        pass


def into_active(pins: Pins, env: Mapping[str, str], prefix: Path = Path(sys.prefix)) -> int:
    """Exit status. Raises SetupError where the environment lacks something that only its maker can
    add.
    """
    chosen = {
        "TORCH_INDEX_URL": "",
        "MPI_HOME": "",
        "HOROVOD_CXX": env.get("HOROVOD_CXX") or env.get("CXX", ""),
    }
    step_env = step_environment(prefix, chosen, env)
    if absent := prerequisites.missing_to_build(step_env):
        print(prerequisites.text(absent), file=sys.stderr)
        return 1
    check(pins, prefix)
    log = prefix / LOG
    log.write_text("")
    print(f"  building Horovod into {prefix} (log: {log})", flush=True)
    ActiveSetup(prefix, pins, chosen, {}, Runner(step_env, log, Screen())).run()
    return 0


def check(pins: Pins, prefix: Path) -> None:
    """Raise SetupError for what is missing; print what has another version than the one this was
    tried with.
    """
    wanted = {
        name: version
        for group in ("core", "bench", "horovod-build")
        for name, version in pins[group].items()
    }
    found = {
        name: version(name) for name in wanted.keys() - {"horovod", "openmpi"}
    }  # Open MPI is no Python package in conda
    commands = [
        f"bin/{name}" for name in prerequisites.MPI_COMMANDS if not (prefix / "bin" / name).exists()
    ]
    if missing := [*sorted(name for name, has in found.items() if has is None), *commands]:
        raise SetupError("the active environment", f"{prefix} has no {', '.join(missing)}", CURE)
    for name, has in sorted(found.items()):
        if has != wanted[name]:
            print(f"  note: {name} {has}; this was tried with {wanted[name]}")


def version(name: str) -> str | None:
    """Installed version without its local part (+cpu), or None; conda's packages record theirs as
    pip's do.
    """
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None
