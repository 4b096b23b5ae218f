"""`check`: a reference is written, held against this machine and refused where it is of something
else; launches are stand-ins, but for one tiny real run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.record import read_run
from bench.study.files import read_study
from slurm.check.answer import FORMATS, Answer, compare, outcome
from slurm.check.command import CheckMachine
from slurm.check.measure import _in_allocation, make_plan
from slurm.check.reference import LEAST_LAUNCHES, Reference, read_reference, unlike
from slurm.load import find_study, read_site
from tests.check_trials import COLUMNS, ROOT, count, row, rows_of, schedule, sleep_ms
from tests.check_trials import STUDY as TRIED
from tests.simulation.check import Machine, counts
from tests.slurm.calls import Calls
from tests.slurm.fake_slurm import install
from tests.slurm.stand_in import environment
from tests.slurm.studies import TINY

STUDY = f"""\
name = "tiny"
question = "Is it as fast?"
cells = ["ddp", "horovod"]
scaling = ["weak"]
world_sizes = [1]
{TINY}"""

Checks = Callable[..., tuple[object, str, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Calls) -> Checks:
    """`check(...)` with a reference of 8 images in 0.25 s, launches being stand-ins."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tiny.toml").write_text(STUDY)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def run(*words: str) -> tuple[object, str, str]:
        file = str(tmp_path / "machine.json")
        place = ["--results", str(tmp_path / "results"), "--blocks", "4"]
        study = [] if words[:1] == ("check",) else [f"{tmp_path}/tiny.toml"]
        ranks = [] if "--ranks" in words else ["--ranks", "2"]
        return call("check", *study, "--reference", file, *ranks, *place, *words)

    return run


def written(tmp_path: Path, sessions: int = 1, factor: float = 1.0) -> Path:
    """A reference as the stand-ins would make it, `factor` times as fast."""
    work = {"transport": "mpi", "world_size": 2, "batch_per_rank": 4, "dataset": "digits"}
    work |= {"model": "tests.bench.tiny:plain", "steps_per_window": 2, "warmup_steps": 3}
    speeds = {"images_per_s": [32.0 * factor] * 4, "rank_images_per_s": [[16.0 * factor] * 2] * 4}
    session = {"started": "", "hosts": ["vm"] * 2, "processors": [], "versions": {}}
    text = {
        "workload": {f"{name}/mpi": work | {"backend": name} for name in ("ddp", "horovod")},
        "sessions": [session | {"cells": {"ddp/mpi": speeds, "horovod/mpi": speeds}}] * sessions,
    }
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(text))
    return path


def test_a_reference_is_written_gone_on_with_and_held(tmp_path: Path, check: Checks) -> None:
    for session in (1, 2):
        code, out, err = check("--write-reference")
        assert code == 0, err
        assert f"machine.json: session {session}, of 4 launches; logs: " in out
    reference = read_reference(tmp_path / "machine.json")
    assert reference.speeds("ddp/mpi") == [(32.0,) * 4] * 2  # 8 images in 0.25 s
    assert reference.shares("horovod/mpi", 1) == [[1.0] * 4] * 2
    assert reference.workload["ddp/mpi"]["model"] == "tests.bench.tiny:plain"

    code, out, err = check("--format", "json")
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["outcome"], answer["exit_code"], answer["reason"]) == ("within", 0, "")
    of_all = {one["cell"] for one in answer["comparisons"] if one["rank"] is None}
    assert of_all == {"ddp/mpi", "horovod/mpi"}
    assert len(answer["comparisons"]) == 6
    assert {one["change"]["ratio"] for one in answer["comparisons"]} == {1.0}
    logs = sorted((Path(answer["folder"]) / "runs").glob("*.jsonl"))
    assert [read_run(log).state for log in logs] == ["ok"] * 8


def test_a_slower_machine_is_1_in_every_format(tmp_path: Path, check: Checks) -> None:
    written(tmp_path, sessions=3, factor=1.1)
    code, out, _ = check("--format", "junit")
    assert code == 1
    suite = ElementTree.fromstring(out)
    assert suite.attrib["tests"] == "6"
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("2", "0")
    failed = [case.attrib["name"] for case in suite if case.find("failure") is not None]
    assert sorted(failed) == ["ddp/mpi, 2 ranks", "horovod/mpi, 2 ranks"]

    code, out, err = check("--format", "bencher")
    assert code == 1
    metrics = json.loads(out)["ddp/mpi on 2 ranks"]
    assert metrics["images_per_s"] == {"value": pytest.approx(32)}
    assert metrics["images_per_s_per_device"] == {"value": pytest.approx(16)}
    assert metrics["of_reference"] == {"value": pytest.approx(1 / 1.1)}
    assert "ddp/mpi, 2 ranks: slower: 32 images/s, 0.909 of the reference, below 0.980" in err


def test_a_launch_that_fails_is_3_and_no_slowness(
    tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    monkeypatch.setenv("STAND_IN", json.dumps({"1": "fail"}))
    code, out, _ = check("--format", "junit")
    assert code == 3
    (case,) = ElementTree.fromstring(out)
    (error,) = case.findall("error")
    assert error.attrib["message"].startswith("0 complete launches, 4 are needed; b00-01-")
    assert "boom" in error.attrib["message"]
    code, out, _ = check("--write-reference")
    assert (code, path.read_bytes()) == (3, before)
    assert "could not measure: 0 complete launches, 4 are needed; b00-01-" in out


def test_a_budget_is_kept(tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.setenv("STAND_IN", json.dumps({"0": "hang", "1": "hang"}))
    code, out, _ = check("--budget", "24s", "--format", "json")
    assert code == 3
    answer = json.loads(out)
    assert answer["comparisons"] == []
    assert answer["reason"] == "0 complete launches, 4 are needed; the budget of 24 s was used up"


def test_another_machine_is_3(tmp_path: Path, check: Checks) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace('"processors": []', '"processors": ["Abacus 1"]'))
    code, out, _ = check()
    assert code == 3
    assert "could not measure: the reference is of Abacus 1, and this is unknown; logs:" in out


def test_inside_a_slurm_job_it_starts_steps_and_submits_nothing(
    tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_ON_NODE": "4"}
    job |= {"SLURM_JOB_NODELIST": "r[1-2]", "FAKE_HOSTS": "r1 r2"}
    for name, value in {**job, "SLURM_JOB_END_TIME": str(int(time.time()) + 3600)}.items():
        monkeypatch.setenv(name, value)
    code, out, err = check("--format", "json")
    assert code == 0, err
    logs = sorted((Path(json.loads(out)["folder"]) / "runs").glob("*.out"))
    assert len(logs) == 8
    for log in logs:
        assert "mpirun --nodes=2 --nodelist=r1,r2 --ntasks=2 --ntasks-per-node=1" in log.read_text()
    assert not (tmp_path / "sbatch.said").exists()


def test_a_job_of_somebody_elses_is_not_started_again(
    tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its site asks for that, where a job of our own leaves launches over."""
    written(tmp_path)
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_ON_NODE": "4"}
    for name, value in {**job, "FAKE_HOSTS": "r1 r2"}.items():
        monkeypatch.setenv(name, value)
    planned = make_plan(
        read_site("testcluster"),
        tmp_path,
        600,
        site_name="testcluster",
        study=f"{tmp_path}/tiny.toml",
        ranks=2,
        cells=(),
        blocks=4,
        inject_ms=0.0,
    )
    assert planned.site.policy.requeue
    _in_allocation(planned, 600)
    script = (planned.folder.path / "check.sh").read_text()
    assert "--requeue" not in script.replace("--no-requeue", "")


def test_more_ranks_than_a_job_has_places_are_refused(
    check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    code, out, err = check("--write-reference", "--ranks", "8")
    assert (code, out) == (2, "")
    rule = "--ranks 8 on 1 node(s) of 4 CPUs each; choose at most 4 --ranks, or a larger job"
    assert err == f"error: {rule}\n"


def test_ranks_on_other_nodes_are_another_machine(tmp_path: Path) -> None:
    reference = read_reference(written(tmp_path))
    now = reference.sessions[0]
    assert unlike(reference, now) == ""
    apart = now.model_copy(update={"hosts": ("r1", "r2")})
    said = "the reference has its ranks on 1 node(s), this check on 2, or otherwise spread"
    assert unlike(reference, apart).startswith(said)
    assert unlike(reference, now.model_copy(update={"hosts": ("r7", "r7")})) == ""


def test_a_crash_is_no_slow_machine(
    tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setattr(CheckMachine, "_run", lambda _: 1 // 0)
    code, _, err = check()
    assert code == 3
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("words", "text", "problem"),
    [
        ([], None, "machine.json: no such reference; write one on the machine while it is well"),
        ([], '{"workload": {', "is no reference of this version: Invalid JSON"),
        ([], '{"workload": {}, "sessions": []}', "is no reference of this version: sessions=[]"),
        (["--ranks", "4"], "", "world_size=2 in ddp/mpi, this check has 4; check the same"),
        (["--cells", "ddp/gloo,horovod/gloo"], "", "has no ddp/gloo, it has ddp/mpi, horovod/mpi"),
        (["check", "--cells", "ddp/mpi"], "", "lead_in_steps=the default in ddp/mpi"),
        (["--cells", "ddp/pigeon"], "", "ddp/pigeon"),
        (["--write-reference", "--cells", "ddp/mpi"], "", "also has horovod/mpi; a further"),
        (["--write-reference", "--inject-ms", "3"], "", "would spoil what --write-reference keeps"),
        (["--blocks", "5"], "", "--blocks '5': Input should be a multiple of 2"),
        (["--tolerance", "2"], "", "--tolerance '2'"),
        (["--budget", "soon"], "", "--budget 'soon' is no time with its unit"),
        ([], '{"workload": {"ddp/mpi": {"world_size": [8]}}, "sessions": []}', "is no reference"),
        (["--site", "testcluster"], "", "starts ranks inside a Slurm allocation"),
    ],
)
def test_wrong_input_is_2_and_one_line(
    tmp_path: Path, check: Checks, words: list[str], text: str | None, problem: str
) -> None:
    path = written(tmp_path)
    if text:
        path.write_text(text)
    elif text is None:
        path.unlink()
    code, out, err = check(*words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert problem in line


def test_it_is_started_once(check: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    code, out, err = check("--write-reference")
    assert (code, out) == (2, "")
    assert err.startswith("error: SLURM_STEP_NUM_TASKS=4: a check starts its ranks itself; start")


def test_one_rank_that_falls_behind_the_others_is_named(tmp_path: Path) -> None:
    reference = read_reference(written(tmp_path, sessions=3))
    now = reference.sessions[0].model_dump()
    now["cells"]["ddp/mpi"]["rank_images_per_s"] = [[16.0, 12.0]] * 4
    sitting = type(reference.sessions[0])(**now)
    comparisons = tuple(compare(reference, sitting, None))
    (slow,) = [one for one in comparisons if one.change.relation == "slower"]
    assert slow.title == "ddp/mpi rank 1 on vm"
    assert slow.change.ratio == pytest.approx(12 / 14)
    assert outcome(comparisons) == ("slower", "")


@pytest.mark.parametrize("ranks", [1, 16])
def test_of_a_thousand_simulated_checks_few_are_false_and_none_misses_a_tenth(ranks: int) -> None:
    """With the noise of a quiet machine, 1 % between sessions and 1.5 % between launches."""
    machine = Machine(between=0.01, within=0.015, ranks=ranks)
    checks = 1000 if ranks == 1 else 100
    as_it_is, slowed = (counts(machine, fall, checks, seed=1) for fall in (0.0, 0.1))
    assert as_it_is["slower"] <= 0.05 * checks
    assert as_it_is["within"] >= 0.9 * checks
    assert slowed["slower"] >= 0.995 * checks


def test_on_a_loud_machine_it_says_so_rather_than_something_wrong() -> None:
    """2 % between sessions, 7 % between launches: neither as it is nor slowed by a tenth."""
    machine = Machine(between=0.02, within=0.07, ranks=1)
    as_it_is, slowed = (counts(machine, fall, 500, seed=1) for fall in (0.0, 0.1))
    assert as_it_is["slower"] <= 25
    assert slowed["within"] <= 25
    assert as_it_is["could not measure"] + slowed["could not measure"] > 250


def test_trials_are_of_the_check_s_own_cells_and_of_its_fewest_launches() -> None:
    tried, shipped = read_study(ROOT / TRIED), read_study(find_study("check"))
    assert (tried.cells, tried.scaling) == (shipped.cells, shipped.scaling)
    assert tried.blocks == LEAST_LAUNCHES


def test_the_shipped_trials_keep_their_bars() -> None:
    shipped = ROOT / "results" / "check-trials"
    rows = rows_of(shipped / "trials.csv")
    assert [row["kind"] for row in rows] == schedule(20, 10)
    assert len(read_reference(shipped / "machine.json").sessions) == 5
    plain = [row["exit_code"] for row in rows if row["kind"] == "plain"]
    injected = [row["exit_code"] for row in rows if row["kind"] == "injected"]
    assert plain.count("1") <= 1
    assert injected == ["1"] * 10
    assert max(float(row["seconds"]) for row in rows) <= 600


def test_trials_are_spread_counted_and_slowed_by_a_tenth_of_a_step(tmp_path: Path) -> None:
    kinds = schedule(20, 10)
    assert (kinds.count("plain"), kinds.count("injected")) == (20, 10)
    assert kinds[:6].count("injected") == 2
    reference = read_reference(written(tmp_path))
    assert sleep_ms(reference) == 25.0  # of 8 images at 32 a second
    comparisons = tuple(compare(reference, reference.sessions[0], None))
    text = FORMATS["json"](Answer("within", "", 2, comparisons))
    line = row("plain", 0.0, 0, text, 300.4)
    assert line.keys() == {*COLUMNS}
    assert (line["ratio"], line["seconds"]) == (1.0, 300)
    rows: list[dict[str, str]] = [
        {"kind": kind, "exit_code": code, "seconds": "300"}
        for kind, codes in (("plain", "0" * 17 + "113"), ("injected", "1" * 9 + "0"))
        for code in codes
    ]
    assert count(rows) == [
        "called slower as it is: 2 of 20 (bar: at most 1)",
        "slowdown called slower: 9 of 10 (bar: all)",
        "could not measure: 1 of 20 and 0 of 10",
        "longest: 300 s (bar: 600 s)",
    ]


def test_the_installed_command_has_it_by_its_short_name() -> None:
    words = [sys.executable, "-m", "hvd_ddp", "check", "--ranks", "2"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --reference is missing; see hvd-ddp slurm check --help")


@pytest.mark.ranks
def test_a_real_reference_is_of_its_logs_and_holds(
    tmp_path: Path, check: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for any noise: how fast it is proves nothing here."""
    monkeypatch.delenv("MPIRUN")
    words = ["--cells", "ddp/mpi", "--ranks", "1"]
    code, out, err = check(*words, "--write-reference")
    assert code == 0, err
    reference: Reference = read_reference(tmp_path / "machine.json")
    folder = Path(out.strip().rpartition("logs: ")[2])
    speeds = [read_run(log).images_per_s for log in sorted((folder / "runs").glob("*.jsonl"))]
    assert reference.speeds("ddp/mpi") == [tuple(speeds)]
    assert reference.sessions[0].versions["torch"]
    code, out, err = check(*words, "--tolerance", "0.9999")
    assert code == 0, err
    assert "ddp/mpi, 1 ranks: within: " in out
