"""Gaps: the report plans what slurm/ plans, and says which points and blocks are not there."""

import json
from pathlib import Path

import pytest

from bench.study.definition import MAX_BLOCKS
from bench.study.files import read_study
from bench.study.plan import plan
from plots.__main__ import main
from plots.analyse import coverage
from plots.analyse.points import NO_SETTINGS, tabulate
from plots.analyse.runs import load
from slurm.fit import fit, text_of
from slurm.load import find_study, read_site
from tests.plots import logs
from tests.slurm.studies import ROOT

STUDIES = sorted(p.stem for p in (ROOT / "slurm/studies").glob("*.toml"))
PLAN = """\
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak", "strong"]
world_sizes = [1, 2]
[weak]
batch_per_rank = 16
[strong]
global_batch = 32
"""


@pytest.mark.parametrize("site", ["local", "cardinal"])
@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_is_read_as_it_is_planned(tmp_path: Path, name: str, site: str) -> None:
    source = find_study(name)
    written = read_study(source)
    study = fit(
        written, read_site(site), (1,) if site == "local" and written.needs_site else (), source
    )
    (tmp_path / "study.toml").write_text(text_of(study, written, source.read_text()))
    logs.write(tmp_path / "x.jsonl", logs.config("single"), 0.1)
    found = coverage.planned(load(tmp_path).study)
    fields = {k for values in study.variants.values() for k in values}
    wanted = set()
    for run in plan(study, 1, tmp_path)[0]:
        p, variant = run.point, frozenset(f"{k}={getattr(run.config, k)}" for k in fields)
        settings = NO_SETTINGS if p.cell == "single" else p.settings
        wanted |= {
            (curve, settings, p.cell, p.world_size, p.batch_per_rank, variant) for curve in p.curves
        }
    assert {(curve, *p[:4], frozenset(p.variant)) for curve, p in found} == wanted
    assert len(found) == len(wanted)


def partial(folder: Path) -> Path:
    """Six blocks planned and made, of which block 5 lost Horovod at two ranks, where both curves
    meet.
    """
    logs.study(folder)
    logs.study_toml(folder)
    with (folder / "study.toml").open("a") as file:
        file.write(PLAN)
    for path in (folder / "runs").glob("5-*-horovod-mpi-2.jsonl"):
        path.unlink()
    return folder


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    loaded = load(partial(tmp_path))
    found = coverage.find(loaded.study, tabulate(loaded.runs))
    assert [
        (g.curve, g.point.cell, g.point.world_size, g.point.samples_per_rank, g.missing)
        for g in found
    ] == [
        ("weak", "horovod/mpi", 2, 16, (5,)),
        ("strong", "horovod/mpi", 2, 16, (5,)),
    ]


def test_a_variant_of_which_nothing_is_there_is_a_gap(tmp_path: Path) -> None:
    """No run differs from another then, so no point of the report has a variant."""
    logs.study(tmp_path, blocks=2, cells={"single": 1.0, "ddp/mpi": 1.1}, compression="none")
    logs.study_toml(tmp_path, blocks=2)
    variants = '[variants.plain]\n[variants.fp16]\ncompression = "fp16"\nprecision = "float32"\n'
    with (tmp_path / "study.toml").open("a") as file:
        file.write(PLAN.replace(', "horovod/mpi"', "") + variants)
    loaded = load(tmp_path)
    found = coverage.find(loaded.study, tabulate(loaded.runs))
    assert [
        (g.curve, g.point.cell, g.point.world_size, g.point.variant, g.missing) for g in found
    ] == [
        (curve, "ddp/mpi", world_size, ("compression=fp16", "precision=float32"), (0, 1))
        for curve, world_size in (("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2))
    ]
    assert main(["report", str(tmp_path)]) == 0
    assert (
        "| weak | ddp/mpi | shipped | compression=fp16, precision=float32 | 1 | 16 | 2 | 0 | all |"
        in (tmp_path / "report.md").read_text()
    )


def test_a_variant_is_no_gap_for_how_it_is_written_or_for_training_nothing(tmp_path: Path) -> None:
    logs.study(tmp_path, blocks=1, cells={"single": 1.0, "ddp/mpi": 1.1}, weight_decay=0.0)
    logs.study_toml(tmp_path, blocks=1)
    variants = (
        "[variants.free]\nweight_decay = 0\n[variants.loader]\nloader_only = true\n"
        "num_workers = 2\n"
    )
    with (tmp_path / "study.toml").open("a") as file:
        file.write(PLAN.replace(', "horovod/mpi"', "") + variants)
    loaded = load(tmp_path)
    assert coverage.find(loaded.study, tabulate(loaded.runs)) == []
    assert {point.variant for _, point in coverage.planned(loaded.study)} == {("weight_decay=0.0",)}


def test_the_report_lists_gaps(tmp_path: Path) -> None:
    partial(tmp_path)
    for path in (tmp_path / "runs").glob("*-horovod-mpi-1.jsonl"):
        path.unlink()
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "**Gaps:** 4 of 10 planned points without all planned blocks; see [Gaps](#gaps)." in text
    assert "| weak | horovod/mpi | shipped | 1 | 16 | 6 | 0 | all |" in text
    assert "| weak | horovod/mpi | shipped | 2 | 16 | 6 | 5 | 5 |" in text
    values = json.loads((tmp_path / "summary.json").read_text())["gaps"]
    assert [g["blocks_missing"] for g in values if g["world_size"] == 1] == [[0, 1, 2, 3, 4, 5]] * 2


def test_a_whole_study_has_none_and_a_study_by_hand_has_no_plan(tmp_path: Path) -> None:
    logs.study(tmp_path / "whole", blocks=2)
    logs.study_toml(tmp_path / "whole", blocks=2)
    assert main(["report", str(tmp_path / "whole")]) == 0
    assert (
        "## Gaps" not in (tmp_path / "whole" / "report.md").read_text()
    )  # the file names no cells
    with (tmp_path / "whole" / "study.toml").open("a") as file:
        file.write(PLAN)
    assert main(["report", str(tmp_path / "whole")]) == 0
    text = (tmp_path / "whole" / "report.md").read_text()
    assert "None: 10 planned points, each with usable runs in all 2 planned blocks." in text
    assert "**Gaps:**" not in text


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("blocks = 100000000", "blocks=100000000: Input should be less than or equal to 10000"),
        (f"world_sizes = {list(range(1, 2000))}", "at most 1000 items"),
    ],
)
def test_a_plan_that_no_memory_holds_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, rule: str
) -> None:
    logs.write(tmp_path / "runs" / "single.jsonl", logs.config("single"), 0.1)
    (tmp_path / "study.toml").write_text(f'name = "test"\ncells = ["single", "ddp/mpi"]\n{said}\n')
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert rule in line


def test_the_report_takes_as_many_blocks_as_a_study_may_plan() -> None:
    assert coverage.MOST_BLOCKS == MAX_BLOCKS
