"""The doctor finds planted faults, each as real as one machine allows, and names the cure."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError
from bench.tools.doctor import checks
from bench.tools.doctor.command import parse
from tests.bench.ranks import ROOT, bench, mpich, run

DOCTOR = ["-m", "bench", "doctor", "--model", "tests.bench.tiny:normalised", "--dataset", "digits"]


def test_libraries_that_do_not_belong_together() -> None:
    facts: dict[str, Any] = {"torch": "2.13+cpu", "torchvision": "0.28", "mpi4py": "4.1"}
    facts |= {"horovod": "0.28.1", "mpi": "Open MPI v5.0.11", "errors": {}, "mpi_files": ["/a"]}
    facts |= {"horovod_torch": "2.13+cpu", "horovod_built": ["mpi", "gloo"], "horovod_wheel": "/w"}

    def levels(**changed: Any) -> list[str]:
        return [finding.level for finding in checks.libraries(facts | changed)]

    assert levels() == ["ok", "ok"]
    assert levels(mpi_files=["/a", "/b"]) == ["ok", "failure", "ok"]
    assert levels(horovod_torch="2.13+cu130") == ["ok", "failure"]
    assert levels(horovod_built=["mpi"]) == ["ok", "failure"]
    (missing,) = checks.libraries(facts | {"errors": {"mpi4py": "no libmpi"}})
    assert (missing.name, missing.level) == ("mpi4py", "failure")


def test_a_host_without_a_name() -> None:
    nameless = checks.own_name("no-such-host.invalid")
    assert (nameless.level, "/etc/hosts" in nameless.cure) == ("failure", True)


def test_what_has_nothing_to_compare_is_refused() -> None:
    with pytest.raises(UsageError, match="use --mode sync"):
        parse(["--backend", "ps", "--transport", "mpi", "--world-size", "2", "--mode", "async"])


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Read name -> level and text of each finding."""
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    named = [line for line in lines if line[:1] in (["ok"], ["warning"], ["failure"])]
    return {text[:12].strip(): (level, text[12:].strip()) for level, text in named}


@pytest.mark.ranks
def test_a_fit_machine_and_a_horovod_for_another_torch(tmp_path: Path) -> None:
    """Horovod's own note names another torch; the cell exchanges as ever."""
    (tmp_path / "horovod").mkdir()
    for path in Path(str(find_spec("horovod").origin)).parent.iterdir():  # type: ignore[union-attr]
        (tmp_path / "horovod" / path.name).symlink_to(path)
    (tmp_path / "horovod" / "metadata.json").unlink()
    (tmp_path / "horovod" / "metadata.json").write_text('{"pytorch": "2.1.0"}')
    words = [*DOCTOR, "--backend", "ddp", "--transport", "gloo"]
    done = run([sys.executable, *words], {"PYTHONPATH": str(tmp_path)})
    found = findings(done)
    assert found["ddp/gloo"] == ("ok", "parity holds: equal bit for bit"), done.stderr
    assert found["Horovod"][0] == "failure"
    assert found["Horovod"][1].startswith("was built against torch 2.1.0, but torch ")
    assert {found[name][0] for name in ("libraries", "host name")} == {"ok"}
    assert done.returncode == 1


@pytest.mark.ranks
def test_another_mpis_mpirun_is_told_as_by_a_run() -> None:
    words = [*DOCTOR, "--backend", "ddp", "--transport", "mpi", "--world-size", "2"]
    done = run(mpich(2, *words))
    assert done.returncode == 2
    assert "sees a world of 1: this launcher does not start this MPI" in done.stderr


@pytest.mark.ranks
def test_a_backend_that_sends_no_weights_does_not_pass(tmp_path: Path) -> None:
    """Its gradients are the mean, but of ranks that train different models."""
    code = (ROOT / "tests" / "user" / "hvd_ddp_backend_fourth.py").read_text()
    keeps = """def wrap(self, model, optimizer, config):
            weights = {k: v.clone() for k, v in model.state_dict().items()}
            session = super().wrap(model, optimizer, config)
            model.load_state_dict(weights)
            return session
"""
    code = code.replace("pass\n", keeps).replace('"fourth"', '"fifth"')
    (tmp_path / "hvd_ddp_backend_fifth.py").write_text(code)
    words = [*DOCTOR[2:], "--backend", "fifth", "--transport", "gloo", "--world-size", "2"]
    done = bench(2, *words, extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1, done.stdout + done.stderr
    level, text = findings(done)["fifth/gloo"]
    assert (level, "did not get rank 0's" in text) == ("failure", True)
    done = bench(2, *words, "--world-size", "3", extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2, "a launch of another size"
    assert "mpirun started 2 ranks; use --world-size 2" in done.stderr
