"""Every log is either a row of the frame or listed with its reason; nothing disappears."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plots
from bench.config import RunConfig
from bench.record import append_event
from bench.study import comparability
from bench.study.frames import Loaded, load
from plots.report.findings import findings
from plots.report.page import markdown, page
from plots.report.write import analysed, summary
from tests.plots import logs

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
SHIPPED = sorted(
    path.parent for path in (ROOT / "results").glob("*/summary.json") if path.parent.name != "mine"
)


def reasons(loaded: Loaded) -> dict[str, str]:
    return {u.log: u.reason for u in loaded.unusable}


def test_step_times_add_up_to_the_windows_where_ranks_are_late_by_turns(tmp_path: Path) -> None:
    run = logs.config("ddp/mpi", 2, windows=4, steps_per_window=3, lead_in_steps=1)
    path = logs.write(tmp_path / "a.jsonl", run, 0.2)
    # the last rank ends its steps after 0.2, 0.4 and 0.6 s
    seconds = {"window": [[0.2, 0.15, 0.25], [0.15, 0.25, 0.15]], "lead_in": [[0.1], [0.3]]}
    events = map(json.loads, path.read_text().splitlines())
    late = (e | {"seconds": seconds.get(e.get("phase"), e.get("seconds"))} for e in events)
    path.write_bytes(logs.resealed("".join(json.dumps(e) + "\n" for e in late).encode()))
    row = load(tmp_path).runs.iloc[0]
    assert row["steps"] * row["step_seconds_median"] == pytest.approx(4 * 0.6)
    assert row["first_step_over_rest"] == pytest.approx(1), "the slowest ranks': 0.2 over 0.25"
    assert row["lead_in_over_rest"] == pytest.approx(1.5)


def test_a_real_log_of_an_older_schema_is_read(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "run-schema-9.jsonl", tmp_path)
    loaded = load(tmp_path)
    assert not loaded.unusable
    row = loaded.runs.iloc[0]
    assert (row["cell"], row["world_size"], row["exit_code"]) == ("ddp/gloo", 2, None)
    seconds = 0.0578770660004011 + 0.010262105000037991
    assert row["step_seconds_mean"] == pytest.approx(seconds / 4, rel=1e-12)
    assert row["images_per_s"] == pytest.approx(8 * 4 / seconds, rel=1e-12)
    # till the last rank ended each: rank 0's of the first window, rank 1's of the second
    steps = [0.045569763, 0.012302474, 0.006355183, 0.003902349]
    assert row["step_seconds_median"] == pytest.approx(np.median(steps), rel=1e-6)
    waited = 0.003760877999411605 + 0.00039801200000511017  # rank 1's
    assert row["input_share"] == pytest.approx(waited / seconds)
    facts = row["facts"]
    assert (row["hosts"], facts["versions.torch"]) == (("vm",), "2.13.0+cpu")
    assert facts["env.OMPI_MCA_mpi_yield_when_idle"] == "1"
    # one framework's own; it would make any pair differ
    assert not [name for name in facts if "HOROVOD" in name]


def differing(kept: Any, fresh: Any, at: str = "") -> Iterator[str]:
    """Yield where a fresh summary differs from a kept one, whose further keys are of what left.

    What holds is told by its data: the words of a check are not compared.
    """
    if isinstance(kept, dict) and isinstance(fresh, dict):
        yield from (f"{at}.{key} is new" for key in fresh.keys() - kept.keys())
        for key in (fresh.keys() & kept.keys()) - {"why"}:
            yield from differing(kept[key], fresh[key], f"{at}.{key}")
    elif at == ".checks":
        was, now = ({check["name"]: check for check in told} for told in (kept, fresh))
        # what holds now had a name that told of doubts
        now = {name: check for name, check in now.items() if name in was or not check["holds"]}
        yield from differing(was, now, ".checks by name")
    elif isinstance(kept, list) and isinstance(fresh, list) and len(kept) == len(fresh):
        for place, (one, other) in enumerate(zip(kept, fresh, strict=True)):
            yield from differing(one, other, f"{at}[{place}]")
    elif isinstance(kept, float) and isinstance(fresh, int | float):
        if fresh != pytest.approx(kept, rel=1e-9, abs=1e-12, nan_ok=True):
            yield f"{at}: {kept} was kept, {fresh} is fresh"
    elif kept != fresh:
        yield f"{at}: {str(kept)[:200]} was kept, {str(fresh)[:200]} is fresh"


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_shipped_logs_are_usable_and_say_what_the_shipped_summary_says(folder: Path) -> None:
    """Older schemas, read by today's rules: not a log of them is lost, and not a number changes."""
    a = analysed(folder)
    assert a.loaded.unusable == ()
    kept = json.loads((folder / "summary.json").read_text())
    fresh = json.loads(json.dumps(summary(a, kept["figures"])))
    assert [*differing(kept, fresh)] == []


@pytest.mark.parametrize("name", ["local", "emulated", "sync-async"])
def test_a_page_is_its_golden(name: str) -> None:
    folder = ROOT / "results" / name
    a = analysed(folder)
    kept = json.loads((folder / "summary.json").read_text())
    golden = folder / "report.md"
    assert markdown(page(a, findings(a), kept["figures"])) == golden.read_text(), (
        f"make report: {golden}"
    )


def test_a_log_that_gives_no_number_is_listed_with_the_reason(tmp_path: Path) -> None:
    runs, config = tmp_path / "runs", logs.config("single")
    logs.write(runs / "good.jsonl", config, 0.1)  # it crashed with all data written
    append_event(runs / "good.jsonl", "exit", code=139, timed_out=False, limit_s=60.0)
    logs.write(runs / "killed.jsonl", config, 0.1, windows=2)
    append_event(runs / "killed.jsonl", "exit", code=-9, timed_out=False, limit_s=60.0)
    logs.write(runs / "failed.jsonl", config, 0.1, end={"status": "failed: loss is nan"})
    logs.edit(logs.write(runs / "damaged.jsonl", config, 0.1), '"seconds"', '"secs"')
    changed = logs.write(runs / "changed.jsonl", config, 0.1)
    changed.write_text(changed.read_text().replace('"pid": ', '"pid": 9'))
    (runs / "folder.jsonl").mkdir()
    (runs / "empty.jsonl").write_text("")
    logs.write(runs / "good.attempt-1.jsonl", config, 9.9, windows=1)
    logs.write(runs / "good.attempt-2.jsonl", config, 9.9)
    loaded = load(tmp_path)
    assert loaded.runs[["log", "exit_code"]].to_numpy().tolist() == [["good.jsonl", 139]]
    assert reasons(loaded) == {
        "killed.jsonl": "exit code -9: no end event",
        "failed.jsonl": "exit code 0: loss is nan",
        "damaged.jsonl": "damaged log: line 2: steps.seconds: Field required",
        "changed.jsonl": "the log was changed after it was written: the digest in its end does "
        "not fit",
        "folder.jsonl": f"{runs / 'folder.jsonl'}: Is a directory",
        "empty.jsonl": "no end event: killed or still running",
    }
    assert [(u.log, u.state, u.reason) for u in loaded.superseded] == [
        ("good.attempt-1.jsonl", "interrupted", "killed together with its job"),
        ("good.attempt-2.jsonl", "ok", "complete, but repeated"),
    ]


def test_runs_by_hand_need_no_launch_no_curve_and_no_study(tmp_path: Path) -> None:
    by_hand: dict[str, Any] = {"launch": None, "curves": ()}
    logs.write(tmp_path / "a.jsonl", logs.config("single", **by_hand), 0.1)
    strong = logs.config("ddp/mpi", 2, **by_hand, batch_per_rank=None, global_batch=16)
    logs.write(tmp_path / "b.jsonl", strong, 0.1)
    loaded = load(tmp_path)
    assert loaded.runs["curves"].tolist() == [("weak",), ("strong",)]
    assert loaded.runs["launch"].nunique() == 1
    assert (loaded.study.margin, loaded.study.launches) == (0.02, 0)
    assert "margin of 2 %" in loaded.notes[0]
    logs.study_toml(tmp_path, launches=8, margin=0.03)
    loaded = load(tmp_path)
    assert (loaded.study.margin, loaded.study.launches, loaded.notes) == (0.03, 8, ())


def test_every_field_that_is_not_the_cell_or_the_place_is_work() -> None:
    base = comparability.facts(logs.config("ddp/mpi", 2), logs.host(2), {})
    changes = {"threads": 2, "seed": 9, "weight_decay": 0.0, "image_size": 64}
    for name, value in (changes | {"windows": 3}).items():
        fields: dict[str, Any] = {name: value}
        other = comparability.facts(logs.config("ddp/mpi", 2, **fields), logs.host(2), {})
        assert [d.split(":")[0] for d in comparability.differences([base, other])] == [name]
    tuned: dict[str, Any] = {"settings": "tuned", "bucket_mib": 5.0, "position": 4}
    same = comparability.facts(logs.config("ddp/mpi", 2, **tuned), logs.host(2), {})
    assert comparability.differences([base, same]) == [
        "settings: shipped, tuned",
        "tuned.bucket_mib: 5.0, None",
    ]


def test_matched_settings_must_match_in_bucket_and_exchanged_bytes() -> None:
    ends: list[dict[str, object]] = [{"exchange_bytes": [100, 50]}, {"exchange_bytes": [90, 60]}]
    for settings, bucket_mib, expected in (
        ("matched", None, ["exchange_bytes: [100, 50], [90, 60]"]),
        ("matched", 10.0, ["bucket_cap_mib: 10.0, 25.0", "exchange_bytes: [100, 50], [90, 60]"]),
        ("shipped", None, []),
    ):
        ddp = logs.config("ddp/mpi", 2, settings=settings)
        horovod = logs.config("horovod/mpi", 2, settings=settings, bucket_mib=bucket_mib)
        sides = zip((ddp, horovod), ends, strict=True)
        a, b = (comparability.facts(run, {}, end) for run, end in sides)
        assert comparability.differences([a, b], comparability.OF_A_SIDE) == expected


def of_ranks(**changes: object) -> dict[str, object]:
    """Make provenance whose two ranks are alike, and not as usual."""
    return {"ranks": [{**rank, **changes} for rank in logs.host(2)["ranks"]]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"versions": {"torch": "2.12.0"}}, "versions.torch: 2.12.0, 2.13.0+cpu"),
        ({"code_sha256": "b5"}, "code_sha256: b5, unset"),
        ({"malloc": "trim_threshold=1"}, "malloc: trim_threshold=1, unset"),
        ({"env": {}}, "env.OMP_NUM_THREADS: 1, unset"),
        ({"user_code": {"my/net.py": "b" * 64}}, "user_code.my/net.py: bbbbbbbbbbbb, unset"),
        (
            of_ranks(env={"UCX_NET_DEVICES": "eth1"}),
            f"env.of single ranks: {json.dumps([{'UCX_NET_DEVICES': 'eth1'}] * 2)}, unset",
        ),
        (of_ranks(hostname="node2"), "hostnames: node1, node2"),
        (of_ranks(affinity=[0]), "affinity: [[0, 1], [0, 1]], [[0], [0]]"),
        (of_ranks(cpu="Other CPU"), "cpu: Other CPU, Test CPU @ 2 GHz"),
    ],
)
def test_another_machine_is_named(changes: dict[str, object], field: str) -> None:
    run = logs.config("ddp/mpi", 2)
    hosts = logs.host(2), logs.host(2, **changes)
    one, other = ([comparability.facts(run, host, {})] for host in hosts)
    assert comparability.differences(one + other) == [field]


def test_an_analyst_gets_a_tidy_frame(tmp_path: Path) -> None:
    """One row a run; numbers and texts alone; images/s follows from seconds per step."""
    folder = logs.study(tmp_path, launches=2)
    frame = plots.load_runs(str(folder))
    assert len(frame) == len(list((folder / "runs").iterdir()))
    rates = frame["global_batch"] / frame["step_seconds_mean"]
    assert frame["images_per_s"].tolist() == pytest.approx(rates.tolist())
    assert set(frame["curves"]) == {"weak", "strong"}
    assert not any(isinstance(v, tuple | list | dict) for row in frame.to_numpy() for v in row)
    for column in frame.columns:  # each is explained
        assert f"`{column}`" in (plots.load_runs.__doc__ or "") or "step_seconds_p" in column


def test_runs_of_jobs_that_state_no_host_join_no_two_that_differ(tmp_path: Path) -> None:
    """A scheduler gives each job nodes and cores of its choice; two machines are still two."""
    for launch, name in enumerate(["job1", "job2", "job3", "node1", "node2", "node2"]):
        of_job = {"job": {"SLURM_JOB_ID": str(launch)}} if "job" in name else {}
        cores = [launch] if of_job else [0]
        place = logs.host(2, **of_job, **of_ranks(hostname=name, affinity=cores))
        run = logs.config("ddp/mpi", 2, launch=launch)
        logs.write(tmp_path / f"{launch}.jsonl", run, 0.1, provenance=place)
    aside = "runs of its point differ: hostnames: node1, node2; give each kind an --arm or a folder"
    aside += " of its own"
    assert reasons(load(tmp_path)) == {f"{launch}.jsonl": aside for launch in range(6)}
    for launch in (4, 5):
        (tmp_path / f"{launch}.jsonl").unlink()
    assert len(load(tmp_path).runs) == 4


def test_the_code_of_a_users_backend_is_a_fact_of_its_own_runs_alone() -> None:
    """Alike in all of them, and free between the sides of a comparison."""
    code = {"hvd_ddp_backend_ddp.py": "a" * 64, "hvd_ddp_backend_x/b.py": "b" * 64}
    host = {"user_code": {**code, "nets.py": "c" * 64}}
    config = RunConfig(backend="ddp", transport="gloo", world_size=2, batch_per_rank=4)
    facts = comparability.facts(config, host, {}, {})
    named = {name: value for name, value in facts.items() if value[:1] * 12 == value}
    own = f"{comparability.OWN_CODE}hvd_ddp_backend_ddp.py"
    assert named == {"user_code.nets.py": "c" * 12, own: "a" * 12}
    grown = facts | {f"{comparability.OWN_CODE}more.py": "d" * 12}
    assert comparability.differences([facts, grown]) == [
        "backend_code.more.py: dddddddddddd, unset"
    ]
    assert comparability.differences([facts, grown], comparability.OF_A_SIDE) == []
