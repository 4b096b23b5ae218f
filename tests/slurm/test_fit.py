"""A study meets its site: full nodes become ranks, runs become jobs with their time, and what does
not fit is refused.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import plan
from slurm.fit import Job, fit, jobs, minutes, nodes_of, text_of
from slurm.render import directives, exports, reaching_all_hosts, step_args
from slurm.site import Site, find_study, read_site
from tests.slurm.studies import changed, small, write


def fitted(study: str, site: str, nodes: Sequence[int] = ()) -> tuple[Study, Site]:
    source, where = find_study(study), read_site(site)
    return fit(read_study(source), where, nodes, source), where


def jobs_of(study: str, site: str, nodes: Sequence[int] = (), launches: int = 1) -> list[Job]:
    made, where = fitted(study, site, nodes)
    return jobs([run for launch in plan(made, launches, Path("runs")) for run in launch], where)


def test_full_nodes_and_one_rank_become_world_sizes() -> None:
    assert fitted("weak", "perlmutter")[0].world_sizes == (1, 4, 8, 16, 32, 64)
    assert fitted("weak", "lumi-g", (1, 3))[0].world_sizes == (1, 8, 24)
    # the site's limit comes first
    assert fitted("weak", "testcluster")[0].world_sizes == (1, 2, 4, 8)
    batch = fitted("batch", "cardinal", (2,))[0]
    assert batch.batch is not None
    assert (batch.world_sizes, batch.batch.world_sizes) == ((), (8,))


def test_the_site_gives_transport_device_data_and_threads(tmp_path: Path) -> None:
    study, _ = fitted("weak", "perlmutter")
    assert study.cells == ("single", "ddp/nccl", "horovod/nccl")
    assert (study.run["device"], study.run["data_dir"], study.run["threads"]) == ("cuda", "data", 1)
    source = write(tmp_path, cells='cells = ["ddp", "horovod/mpi"]', windows="threads = 3")
    study = fit(read_study(source), read_site("testcluster"), (), source)
    assert study.cells == ("ddp/gloo", "horovod/mpi")  # what the study says goes before the site
    assert (study.run["threads"], study.world_sizes) == (3, (1, 2))
    assert not {"device", "data_dir"} & {*study.run}


def test_the_fitted_study_is_kept_as_a_study_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    for name in ("weak", "batch", "smoke"):  # of which weak has arms
        study = fitted(name, "lumi-g")[0].model_copy(update={"question": 'How "fast" \U0001f680?'})
        path.write_text(text_of(study, read_study(find_study(name)), ""))
        assert read_study(path) == study
    study = small(tmp_path)  # of ranks: it stays as it is
    assert fit(study, read_site("perlmutter"), (), path) == study
    assert text_of(study, study, "as written") == "as written"


def test_half_full_nodes_too_many_or_no_transport_are_refused() -> None:
    site = read_site("cardinal")
    assert [nodes_of(world, site) for world in (1, 3, 4, 8, 128)] == [1, 1, 1, 2, 32]
    with pytest.raises(UsageError, match=r"world_size=6 does not fill nodes of 4 .*; use 4 or 8"):
        nodes_of(6, site)
    with pytest.raises(UsageError, match=r"33 nodes: site 'cardinal' allows 1 to 32 \(limits.max"):
        fitted("weak", "cardinal", (1, 33))
    local = changed(read_site("local"), transport="none")
    rule = "transport of 'ddp' to the site, and site 'local' names no"
    with pytest.raises(UsageError, match=rule):
        fit(read_study(find_study("weak")), local, (), find_study("weak"))
    with pytest.raises(UsageError, match=r"512 does not divide by world_size=12; use 504 or 516"):
        fitted("strong", "cardinal", (3,))


def test_a_job_asks_for_the_time_it_needs_and_the_site_allows() -> None:
    study, site = fitted("smoke", "testcluster")
    job = jobs_of("smoke", "testcluster")[0]
    assert len(job.runs) == 5
    assert minutes(job, study, site, None) == 20  # of 300 + 1.5 * (60 + 5 * 45) + 180 + 30 s
    assert minutes(job, study, site, 7) == 7
    with pytest.raises(UsageError, match=r"--minutes 61: site 'testcluster' allows 60 \(limits"):
        minutes(job, study, site, 61)
    with pytest.raises(UsageError, match=r"5 minutes are too few .* 180 s .*use --minutes 6"):
        minutes(job, study, site, 5)
    assert minutes(job, study, changed(site, limits__max_minutes=10), None) == 10


def test_directives_are_what_the_site_wants() -> None:
    study, site = fitted("weak", "lumi-g", (2,))
    job = jobs_of("weak", "lumi-g", (2,))[-1]
    lines = directives(study, changed(site, access__account="project_1"), job, 90)
    assert {"--account=project_1", "--gpus-per-node=8", "--time=01:30:00"} <= {*lines}
    assert step_args(site)[2].startswith("--cpu-bind=mask_cpu:fe000000000000,")
    assert exports(site) == {
        "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3",
        "GLOO_SOCKET_IFNAME": "hsn0",
        "HOROVOD_GLOO_IFACE": "hsn0",
        "NCCL_NET_GDR_LEVEL": "3",
    }


def test_what_a_site_exports() -> None:
    """Slurm's PMIx fences in a ring, and mpirun tells the hosts of a hostfile the variables."""
    site = read_site("generic")
    assert exports(changed(site, mpi="pmix_v4"))["SLURM_PMIX_FENCE"] == "ring"
    own = changed(site, mpi="pmix", env={"SLURM_PMIX_FENCE": "tree"})
    assert exports(own)["SLURM_PMIX_FENCE"] == "tree"
    hosts = changed(read_site("hostfile"), env={"NCCL_DEBUG": "WARN", "OMPI_MCA_x": "1"})
    words = "--bind-to none --hostfile hosts.txt -x NCCL_DEBUG"
    assert reaching_all_hosts(hosts).mpirun_args == tuple(words.split())
    study, site = fitted("weak", "vista", (2,))
    job = jobs_of("weak", "vista", (2,))[-1]
    lines = directives(study, site, job)
    assert "--ntasks=2" in lines
    assert not [line for line in lines if "gpu" in line.partition("=")[0] or "cpus" in line]
