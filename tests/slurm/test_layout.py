"""All node counts of a block in one job: one order, the first hosts for every run, and what is left
when a host is lost.
"""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import PlannedRun, plan
from slurm.cost import Times, node_hours, run_times
from slurm.fit import Job, fit, jobs, minutes, nodes_of
from slurm.load import find_study, read_site
from slurm.site import Site
from tests.slurm.studies import SMALL, changed
from tests.slurm.test_batch_script import BatchJob

WEAK = SMALL.replace('["weak", "strong"]', '["weak"]').replace("[strong]\nglobal_batch = 8\n\n", "")

SINGLE: dict[str, object] = {"policy__layout": "single"}


class SingleJob(BatchJob):
    """Block 0 at one and three nodes of two ranks: one process alone, and two frameworks at 1, 2
    and 6 ranks.
    """

    def __init__(
        self, folder: Path, behaviours: dict[int, str] | None = None, no_kill: bool = False
    ) -> None:
        changes = {"policy__no_kill": no_kill, "policy__requeue": not no_kill, **SINGLE}
        super().__init__(folder, behaviours, nodes=(1, 3), text=WEAK, changes=changes)

    def hosts(self, run: PlannedRun) -> str:
        """The hosts that a run's step was given."""
        found = re.search(r"--nodelist=(\S+)", run.log.with_suffix(".out").read_text())
        assert found is not None
        return found[1]


def wanted(run: PlannedRun) -> str:
    return "r1,r2,r3" if run.config.world_size == 6 else "r1"


def test_runs_of_all_node_counts_are_interleaved_on_the_first_hosts(tmp_path: Path) -> None:
    job = SingleJob(tmp_path)
    assert [run.config.position for run in job.runs] == list(range(7))
    sizes = [run.config.world_size for run in job.runs]
    assert sizes != sorted(sizes)
    assert sizes != sorted(sizes, reverse=True)
    code, out, err = job.finish()
    assert (code, err) == (0, "")
    assert job.states() == ["ok"] * 7
    lines = out.splitlines()
    cells = ("ddp/gloo", "horovod/gloo")
    assert lines[:2] == [f"preflight of {cell} on 6 rank(s)" for cell in cells]
    lines = lines[1:]
    assert lines[1] == "calibration at the start, on 3 node(s)"
    assert lines[2:9] == [f"[{n}/7] {run.id}" for n, run in enumerate(job.runs, start=1)]
    begun = [run.log.stat().st_mtime_ns for run in job.runs]
    assert begun == sorted(begun)
    assert [job.hosts(run) for run in job.runs] == [wanted(run) for run in job.runs]
    for run in job.runs:
        ranks = run.config.world_size
        where = f" --nodes={3 if ranks == 6 else 1} --nodelist={wanted(run)} "
        counts = f"{where}--ntasks={ranks} --ntasks-per-node={min(ranks, 2)} "
        assert counts in run.log.with_suffix(".out").read_text()
    assert {path.name for path in (job.folder / "calibration").glob("*.jsonl")} == {
        f"all-b00-77-0-{when}-r{n}.jsonl" for when in ("start", "end") for n in (1, 2, 3)
    }
    assert [event["event"] for event in job.said()] == ["begin", *["calibration"] * 6, "end"]
    assert (job.folder / "jobs" / "all-b00.jsonl").exists()


def test_ibrun_fills_the_first_hosts_by_itself(tmp_path: Path) -> None:
    job = BatchJob(tmp_path, site="vista", nodes=(1, 2), text=WEAK, changes=SINGLE)
    assert job.finish()[0] == 0
    assert sorted(run.config.world_size for run in job.runs) == [1, 1, 1, 2, 2]
    for run in job.runs:
        said = run.log.with_suffix(".out").read_text().splitlines()[1]
        assert said.startswith(f"mpirun -n {run.config.world_size} -o 0 ")


def test_only_what_is_missing_is_done_again_on_as_few_nodes_as_it_needs() -> None:
    study, runs, site = smoke("testcluster")
    site = site.laid_out("single")
    whole = jobs(runs, site)
    assert shapes(whole) == [("all-b00", 2, 7), ("all-b01", 2, 7)]
    narrow = jobs([run for run in runs if run.config.world_size <= 2], site)
    assert shapes(narrow) == [("all-b00", 1, 5), ("all-b01", 1, 5)]
    assert node_hours(narrow, assumed(study)) < node_hours(whole, assumed(study))


def shapes(made: list[Job]) -> list[tuple[str, int, int]]:
    return [(job.id, job.nodes, len(job.runs)) for job in made]


def assumed(study: Study) -> Times:
    return run_times(study, [], [])


def smoke(site_name: str) -> tuple[Study, list[PlannedRun], Site]:
    source, site = find_study("smoke"), read_site(site_name)
    study = fit(read_study(source), site, (), source)
    return study, [run for block in plan(study, 2, Path("runs")) for run in block], site


def test_one_allocation_costs_its_width_at_every_count() -> None:
    study, runs, site = smoke("testcluster")
    apart, together = (jobs(runs, site.laid_out(layout)) for layout in ("blocks", "single"))
    # 7 runs and two calibrations of 45 s on two nodes all the time, and 60 s to start, in two
    # blocks
    assert node_hours(together, assumed(study)) == pytest.approx(2 * 2 * (60 + 9 * 45) / 3600)
    assert node_hours(together, assumed(study)) > node_hours(apart, assumed(study))
    assert minutes(together[0], study, site, None) >= minutes(apart[1], study, site, None)
    assert {nodes_of(run.config.world_size, site) for run in together[0].runs} == {1, 2}


@pytest.mark.parametrize("layout", ["single", "blocks"])
def test_a_lost_host_takes_only_the_runs_that_need_it(tmp_path: Path, layout: str) -> None:
    if layout == "single":
        job: BatchJob = SingleJob(tmp_path, no_kill=True)
    else:
        job = BatchJob(tmp_path, changes={"policy__no_kill": True})
    widest = [n for n, run in enumerate(job.runs) if run.config.world_size > 2]
    last = "r3" if layout == "single" else "r2"
    position = job.runs[widest[0]].config.position
    code, out, err = job.finish(STAND_IN=f'{{"{position}": "lose a node"}}')
    assert (code, err) == (1, "")
    expected = ["ok"] * len(job.runs)
    for n in widest:
        expected[n] = "node lost" if n == widest[0] else "planned"
    assert job.states() == expected
    assert f"host {last} is lost, see " in out
    later = f"[{widest[1] + 1}/{len(job.runs)}] {job.runs[widest[1]].id}"
    assert f"{later}: left for the next job, host {last} is lost" in out
    *_, calibration, end = out.splitlines()
    left = f"{len(job.runs)} runs, 1 failed, {len(widest) - 1} left for the next job"
    assert end == f"host {last} is lost: {left}"
    assert calibration == f"calibration at the end, on {2 if layout == 'single' else 1} node(s)"
    assert job.said()[-1]["reason"] == f"host {last} is lost"


def test_a_run_that_failed_by_itself_loses_no_host(tmp_path: Path) -> None:
    job = SingleJob(tmp_path, {0: "crash"}, no_kill=True)
    code, out, _ = job.finish()
    assert code == 1
    assert job.states() == ["failed"] + ["ok"] * 6
    assert "is lost" not in out


def test_where_slurm_itself_does_not_answer_no_host_is_taken_for_lost(tmp_path: Path) -> None:
    job = SingleJob(tmp_path, {1: "lose a node"}, no_kill=True)
    assert wanted(job.runs[1]) == "r1"  # where the script runs
    code, out, _ = job.finish()
    assert code == 1
    assert job.states() == ["ok", "node lost"] + ["failed"] * 5
    assert out.count("no step starts even on r1, see ") == 6
    assert "is lost" not in out
    assert out.splitlines()[-1] == "complete: 7 runs, 6 failed, 0 left for the next job"


def test_without_srun_no_lost_host_can_be_found() -> None:
    rule = r"policy.no_kill finds lost nodes with srun, and launch is 'ibrun'; leave it out"
    with pytest.raises(ValidationError, match=rule):
        changed(read_site("vista"), policy__no_kill=True)
