"""Other programs' formats hold the very numbers of the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import analyse
from tests.plots import logs


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = logs.study(tmp_path / "study")
    logs.study_toml(folder, blocks=6)
    return folder


def test_extra_p_has_a_value_for_each_block(study: Path, tmp_path: Path) -> None:
    path = tmp_path / "weak.txt"
    assert main(["export", "extra-p", str(study), "-o", str(path)]) == 0
    lines = path.read_text().splitlines()
    assert lines[:3] == ["PARAMETER p", "POINTS 1 2", "METRIC step_seconds"]
    regions = [line for line in lines if line.startswith("REGION ")]
    each = "_16_images_per_rank"
    assert regions == [f"REGION ddp/mpi{each}", f"REGION horovod/mpi{each}"]
    data = [[float(x) for x in line.split()[1:]] for line in lines if line.startswith("DATA ")]
    assert [len(values) for values in data] == [6] * 4
    runs = load(study).runs
    at = (runs["cell"] == "ddp/mpi") & (runs["world_size"] == 2) & (runs["batch_per_rank"] == 16)
    means = runs[at].groupby("block")["step_seconds_mean"].mean()
    assert data[1] == means.tolist(), "not rounded"


def test_extra_p_keeps_every_batch_and_names_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds tell the lines apart: ranks by 0.1 and batches by 0.01."""
    for world_size in (1, 2, 4):
        for batch in (8, 16, 32):
            if (world_size, batch) != (4, 32):
                run = logs.config("ddp/mpi", world_size, batch)
                true = world_size / 10 + batch / 1000
                logs.write(tmp_path / "runs" / f"{world_size}-{batch}.jsonl", run, true)
    path = tmp_path / "weak.txt"
    assert main(["export", "extra-p", str(tmp_path), "-o", str(path)]) == 0
    lines = path.read_text().splitlines()[3:]
    names, values = lines[::4], [lines[i : i + 4][1:] for i in range(0, len(lines), 4)]
    assert names == [f"REGION ddp/mpi_{n}_images_per_rank" for n in (16, 8)]
    seconds = [[float(line.removeprefix("DATA ")) for line in region] for region in values]
    assert seconds == [pytest.approx([n / 10 + b / 1000 for n in (1, 2, 4)]) for b in (16, 8)]
    left = "left out: ddp/mpi_32_images_per_rank, which has no 4 ranks"
    assert left in capsys.readouterr().out


def test_a_latex_table_has_each_ratio_with_interval_n_and_its_baseline(
    study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "table.tex"
    assert main(["export", "latex", str(study), "-o", str(path)]) == 0
    text = path.read_text()
    assert "Horovod / DDP: images/s of Horovod over those of the baseline DDP" in text
    for c in analyse(load(study)).comparisons:
        e = c.estimate
        assert e.shown
        row = f"{e.value:.3f} [{e.shown[0]:.3f}, {e.shown[1]:.3f}] & {e.n} & "
        assert row in text
    rows = [line for line in text.splitlines() if line.startswith("mpi & ")]
    assert len(rows) == 3
    assert all(row.count(" & ") == 6 and row.endswith(" \\\\") for row in rows)


def test_text_of_a_study_is_no_command_of_latex(tmp_path: Path) -> None:
    folder = logs.study(tmp_path, blocks=1)
    for path in (folder / "runs").iterdir():
        logs.edit(path, '"cpu": "Test CPU', '"cpu": "100 % \\\\input{/etc/passwd} $x_1^2~&#')
    path = tmp_path / "table.tex"
    assert main(["export", "latex", str(folder), "-o", str(path)]) == 0
    told = r"100 \% \textbackslash{}input\{/etc/passwd\} \$x\_1\textasciicircum{}2"
    assert told in path.read_text()
