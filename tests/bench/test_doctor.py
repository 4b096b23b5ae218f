"""The doctor finds planted faults, each as real as one machine allows, and names the cure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.launch.world import Launch
from bench.tools.doctor import checks
from bench.tools.doctor.checks import Finding
from bench.tools.doctor.trial import parse
from tests.bench.ranks import ROOT, bench, mpich, run

DOCTOR = ["-m", "bench", "doctor", "--model", "tests.bench.tiny:normalised", "--dataset", "digits"]
HERE = ["lo", "eth0", "ib0"]


def levels(found: Iterable[Finding]) -> list[str]:
    return [finding.level for finding in found]


@pytest.mark.parametrize(
    ("source", "env", "mpi", "level"),
    [
        ("mpirun", {}, "Open MPI v5.0.11", "ok"),
        ("mpirun", {}, "MPICH Version: 4.0.2", "failure"),
        ("hydra", {}, "Intel(R) MPI Library 2021.11", "ok"),
        ("hydra", {}, "Open MPI v4.1.4", "failure"),
        ("srun", {}, "Open MPI v5.0.11", "failure"),
        ("srun", {"PMIX_NAMESPACE": "slurm.pmix.42.0"}, "Open MPI v5.0.11", "ok"),
        ("srun", {}, "MVAPICH2 Version : 2.3.7", "ok"),
        ("torchrun", {}, "Open MPI v5.0.11", "ok"),
    ],
)
def test_the_library_against_the_launcher(
    source: str, env: Mapping[str, str], mpi: str, level: str
) -> None:
    assert checks.mpi_started(Launch(source, 0, 2, 0, 2, "k"), mpi, env).level == level


@pytest.mark.parametrize(
    ("path", "version", "mpi", "level"),
    [
        ("/bin/mpirun", "mpirun (Open MPI) 4.1.4", "Open MPI v4.1.4", "ok"),
        ("/bin/mpirun", "mpirun (Open MPI) 4.1.4", "Open MPI v5.0.11", "warning"),
        ("/bin/mpirun", "HYDRA build details:\n Version: 4.0.2", "Open MPI v5.0.11", "failure"),
        (None, "", "Open MPI v5.0.11", "failure"),
    ],
)
def test_mpirun_against_the_library(
    path: str | None, version: str, mpi: str | None, level: str
) -> None:
    assert checks.mpirun(path, version, mpi).level == level


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "ok"),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, "ok"),
        ({"GLOO_SOCKET_IFNAME": "ib"}, "failure"),
        ({"NCCL_SOCKET_IFNAME": "ib"}, "ok"),
        ({"NCCL_SOCKET_IFNAME": "=ib"}, "failure"),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, "ok"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "failure"),
    ],
)
def test_interfaces(env: Mapping[str, str], expected: str) -> None:
    (found,) = checks.interfaces(env, HERE, several_hosts=True)
    assert found.level == expected
    if env.get("GLOO_SOCKET_IFNAME") == "lo":
        assert found.cure == "unset it, or name one of eth0, ib0"
        assert levels(checks.interfaces(env, HERE, several_hosts=False)) == ["ok"]


def test_a_host_that_does_not_know_its_name() -> None:
    found = checks.own_name("no-such-host.invalid")
    assert (found.level, "/etc/hosts" in found.cure) == ("failure", True)


def test_libraries() -> None:
    good: dict[str, Any] = {"torch": "2.13+cpu", "torchvision": "0.28", "mpi4py": "4.1"}
    good |= {"horovod": "0.28.1", "mpi": "Open MPI v5.0.11", "errors": {}, "mpi_files": ["/a"]}
    assert levels(checks.libraries(good)) == ["ok"]
    assert levels(checks.libraries(good | {"mpi_files": ["/a", "/b"]})) == ["ok", "failure"]
    (_, pair) = checks.libraries(good | {"torchvision_alone": "no nms"})
    assert pair.level == "warning"
    assert pair.cure.endswith("TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu")
    (missing,) = checks.libraries(good | {"errors": {"mpi4py": "no libmpi"}})
    assert (missing.name, missing.level) == ("mpi4py", "failure")


def test_horovods_build() -> None:
    built = {"mpi": True, "gloo": True, "nccl": False}
    facts = {"torch": "2.13.0+cpu", "errors": {}, "horovod_built": built}
    (good,) = checks.horovod_build({"pytorch": "2.13.0+cpu"}, facts | {"horovod_origin": "mine"})
    expected = ("ok", "for torch 2.13.0+cpu, with mpi, gloo, from mine")
    assert (good.level, good.text) == expected
    assert levels(checks.horovod_build({"pytorch": "2.13.0+cu130"}, facts)) == ["failure"]
    assert levels(checks.horovod_build(None, facts)) == ["warning"]
    no_gloo = facts | {"horovod_built": built | {"gloo": False}}
    assert levels(checks.horovod_build({"pytorch": "2.13.0+cpu"}, no_gloo)) == ["failure"]


def test_both_frameworks_call_one_nccl() -> None:
    facts: dict[str, Any] = {"gpus": 1, "horovod_built": {"nccl": True}}
    assert levels(checks.nccl(facts | {"nccl": {"ddp": "a", "horovod": "a"}})) == ["ok"]
    (two,) = checks.nccl(facts | {"nccl": {"ddp": "a", "horovod": "b"}})
    assert (two.level, "horovod calls b: two exchanges" in two.text) == ("failure", True)
    (unknown,) = checks.nccl(facts | {"nccl": {"error": "two are loaded", "cure": "unload"}})
    assert (unknown.text, unknown.cure) == ("two are loaded", "unload")
    assert levels(checks.nccl(facts | {"horovod_built": {"nccl": False}})) == ["warning"]
    assert not list(checks.nccl({"gpus": 0}))


def test_data_and_folders(tmp_path: Path) -> None:
    assert checks.data("digits", None).level == "ok"
    assert checks.data("imagefolder", tmp_path).level == "failure", "a folder without classes"
    assert checks.data("svhn", tmp_path).level == "warning"
    (tmp_path / "train_32x32.mat").write_text("")
    assert checks.data("svhn", tmp_path).level == "ok"
    below = checks.folder(tmp_path / "train_32x32.mat" / "below", "logs go to", "--log-path")
    assert (below.level, "--log-path" in below.cure) == ("failure", True)
    assert (
        checks.folder(tmp_path / "new", "ranks meet in", "").text == f"ranks meet in {tmp_path}/new"
    )


def test_what_has_nothing_to_compare_is_refused() -> None:
    with pytest.raises(UsageError, match="use --mode sync"):
        parse(["--backend", "ps", "--transport", "mpi", "--world-size", "2", "--mode", "async"])


def found(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Read name -> level and text of each finding."""
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:2] != "--"]
    names = [line for line in (("", ""), *lines) if line[0] in ("ok", "warning", "failure")]
    return {text[:12].strip(): (level, text[12:].strip()) for level, text in names}


@pytest.mark.ranks
def test_a_fit_machine_and_what_does_not_import(tmp_path: Path) -> None:
    """Horovod's own note names another torch; the cell exchanges as ever."""
    (tmp_path / "horovod").mkdir()
    for path in Path(str(find_spec("horovod").origin)).parent.iterdir():  # type: ignore[union-attr]
        (tmp_path / "horovod" / path.name).symlink_to(path)
    note = tmp_path / "horovod" / "metadata.json"
    note.unlink()
    note.write_text('{"pytorch": "2.1.0"}')
    words = [*DOCTOR, "--backend", "ddp", "--transport", "gloo"]
    done = run([sys.executable, *words], {"PYTHONPATH": str(tmp_path)})
    said = found(done)
    assert said["ddp/gloo"][1].startswith("parity holds: equal bit for bit"), done.stderr
    assert said["Horovod"][0] == "failure"
    assert said["Horovod"][1].startswith("was built against torch 2.1.0, but torch ")
    assert {said[name][0] for name in ("libraries", "interface", "folder", "mpirun")} == {"ok"}
    assert done.stdout.splitlines()[-1].endswith(" 1 failure")
    assert done.returncode == 1


@pytest.mark.ranks
def test_another_mpis_mpirun_and_a_dead_interface_are_found_before_the_exchange() -> None:
    words = [*DOCTOR, "--backend", "ddp", "--transport", "mpi", "--world-size", "2"]
    done = run(mpich(2, *words), {"NCCL_SOCKET_IFNAME": "nosuch0"})
    said = found(done)
    assert said["MPI"][0] == said["interface"][0] == "failure"
    assert "hydra starts MPICH, but the library is Open MPI" in said["MPI"][1]
    assert "sees a world of 1" in done.stdout + done.stderr
    assert done.returncode != 0


@pytest.mark.ranks
def test_a_launch_of_another_size_is_refused() -> None:
    done = bench(2, *DOCTOR[2:], "--backend", "ddp", "--transport", "gloo", "--world-size", "3")
    assert done.returncode == 2
    assert "mpirun started 2 ranks; use --world-size 2" in done.stderr


@pytest.mark.ranks
def test_a_backend_that_sends_no_weights_does_not_pass(tmp_path: Path) -> None:
    """Its gradients are the mean, but of ranks that train different models."""
    code = (ROOT / "tests" / "user" / "hvd_ddp_backend_fourth.py").read_text()
    keeps = "\n".join(
        [
            "def wrap(self, model, optimizer, config):",
            "            weights = {k: v.clone() for k, v in model.state_dict().items()}",
            "            session = super().wrap(model, optimizer, config)",
            "            model.load_state_dict(weights)",
            "            return session",
        ]
    )
    code = code.replace("pass\n", f"{keeps}\n").replace('"fourth"', '"fifth"')
    (tmp_path / "hvd_ddp_backend_fifth.py").write_text(code)
    words = [*DOCTOR[2:], "--backend", "fifth", "--transport", "gloo", "--world-size", "2"]
    done = bench(2, *words, extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1, done.stdout + done.stderr
    level, text = found(done)["fifth/gloo"]
    assert (level, "did not get rank 0's" in text) == ("failure", True)


@pytest.mark.ranks
def test_a_model_of_two_outputs_is_told_in_a_line(tmp_path: Path) -> None:
    code = [
        *("from torch import nn", "class Pair(nn.Linear):", "    def forward(self, x):"),
        "        return (super().forward(x.mean((2, 3))),) * 2",
        *("def make(classes):", "    return Pair(3, classes)"),
    ]
    (tmp_path / "pair_of_outputs.py").write_text("\n".join(code))
    words = ["--model", "pair_of_outputs:make", "--dataset", "digits", "--world-size", "2"]
    cell = ["--backend", "ddp", "--transport", "gloo"]
    done = bench(2, "doctor", *words, *cell, extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2, done.stdout + done.stderr
    assert "error: model='pair_of_outputs:make' gave a tuple of 2, not scores" in done.stderr
    assert "Traceback" not in done.stderr
