"""A backend's own environment: on the lines of its steps alone, never exported, and told to the
run.
"""

import re
from pathlib import Path

from bench.study.files import read_study
from bench.study.plan import plan
from slurm.directives import Request, own_env
from slurm.fit import fit, jobs, text_of
from slurm.load import find_study, read_site
from slurm.render import render_batch, render_job
from tests.slurm.scripts import SITES, shipped
from tests.slurm.studies import changed
from tests.slurm.test_batch_script import BatchJob
from tests.slurm.test_job_script import Job

OWN = {"env_per_backend": {"horovod": {"MV2_SUPPORT_DL": "1", "MVP_X": "two words"}}}
WORDS = "env BENCH_BACKEND_ENV=MV2_SUPPORT_DL MVP_X MV2_SUPPORT_DL=1 MVP_X=two words"


def command(out: Path) -> str:
    return next(line for line in out.read_text().splitlines() if line.startswith("mpirun "))


def test_only_that_backends_steps_get_it_behind_srun(tmp_path: Path) -> None:
    job = BatchJob(tmp_path, changes=OWN)
    code, _, err = job.finish()
    assert (code, err) == (0, "")
    assert {run.config.backend for run in job.runs} == {"ddp", "horovod"}
    for run in job.runs:
        said = command(run.log.with_suffix(".out"))
        assert said.startswith("mpirun --nodes=2 ")
        if run.config.backend == "horovod":
            assert f" --mpi=pmix {WORDS} " in said
        else:
            assert re.search(r" --mpi=pmix env \S+ -m bench ", said)
    assert not re.search(r"^\s*export MV2_SUPPORT_DL", job.script.read_text(), re.MULTILINE)
    # each cell is tried as it will run
    ddp, horovod = (
        (job.folder / "jobs" / f"n002-b00-77-0-preflight-{name}-gloo.out").read_text()
        for name in ("ddp", "horovod")
    )
    assert "MV2" not in ddp
    assert WORDS in horovod


def test_mpirun_gets_it_too(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.script.write_text(
        render_job(job.study, job.text, changed(read_site("local"), **OWN), job.runs, job.folder)
    )
    assert job.finish()[0] == 0
    for run in job.runs:
        said = command(run.log.with_suffix(".out"))
        assert (f"{WORDS} " in said) == (run.config.backend == "horovod")


def test_a_site_without_it_has_no_word_of_it() -> None:
    for name in ("perlmutter", "vista", "testcluster"):
        assert own_env(read_site(name)) == {}
    for name in SITES:
        said = "--own-env" in shipped(read_site(name), "smoke")[0]
        assert said == (name == "cardinal-mvapich")


def test_the_settings_of_the_older_study_reach_both_frameworks_but_one() -> None:
    source, site = find_study("smoke"), read_site("cardinal-mvapich")
    written = read_study(source)
    study = fit(written, site, (), source)
    assert study.cells == ("single", "ddp/mpi", "horovod/mpi")
    job = jobs(plan(study, 1, Path("runs"))[0], site)[-1]
    text = render_batch(
        study,
        text_of(study, written, source.read_text()),
        Request(site, "PAS1"),
        job,
        Path("results/smoke"),
    )
    exported = re.findall(r"^export (MV2_\w+)=(\S+)$", text, re.MULTILINE)
    assert dict(exported) == {
        "MV2_CPU_BINDING_POLICY": "hybrid",
        "MV2_HYBRID_BINDING_POLICY": "spread",
        "MV2_ENABLE_TOPO_AWARE_COLLECTIVES": "0",
        "MV2_DEBUG_SHOW_BACKTRACE": "0",
        "MV2_ENABLE_AFFINITY": "0",
    }
    assert "--own-env='horovod MV2_SUPPORT_DL=1'" in text
    assert "LD_PRELOAD" not in text
    assert "--mpi=pmi2" in text
