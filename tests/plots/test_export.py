"""Other programs' formats hold the very numbers of the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import analyse
from tests.plots import logs


def test_extra_p_has_a_value_for_each_launch_of_every_line_that_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds tell the lines apart: ranks by 0.1, batches by 0.01 and launches by 0.001."""
    seconds = {}
    for world_size, batch, launch in (
        (w, b, k) for w in (1, 2, 4) for b in (8, 16) for k in (0, 1)
    ):
        if (world_size, batch) != (4, 16):
            run = logs.config("ddp/mpi", world_size, batch, launch=launch)
            true = seconds[world_size, batch, launch] = (
                world_size / 10 + batch / 800 + launch / 1000
            )
            logs.write(tmp_path / "runs" / f"{world_size}-{batch}-{launch}.jsonl", run, true)
    path = tmp_path / "weak.txt"
    assert main(["export", "extra-p", str(tmp_path), "-o", str(path)]) == 0
    head, points, metric, region, *data = path.read_text().splitlines()
    assert (head, points, metric) == ("PARAMETER p", "POINTS 1 2 4", "METRIC step_seconds")
    assert region == "REGION ddp/mpi_8_images_per_rank"
    for world_size, line in zip((1, 2, 4), data, strict=True):
        values = [float(value) for value in line.removeprefix("DATA ").split()]
        assert values == pytest.approx([seconds[world_size, 8, launch] for launch in (0, 1)])
    left = "left out: ddp/mpi_16_images_per_rank, which has no 4 ranks"
    assert left in capsys.readouterr().out


def test_a_latex_table_has_each_ratio_with_interval_n_and_its_baseline(tmp_path: Path) -> None:
    study = logs.study(tmp_path / "study")
    for path in (study / "runs").iterdir():
        logs.edit(path, '"cpu": "Test CPU', '"cpu": "100 % \\\\input{/etc/passwd} $x_1^2~&#')
    path = tmp_path / "table.tex"
    assert main(["export", "latex", str(study), "-o", str(path)]) == 0
    text = path.read_text()
    assert "Horovod / DDP: images/s of Horovod over those of the baseline DDP" in text
    assert r"100 \% \textbackslash{}input\{/etc/passwd\} \$x\_1\textasciicircum{}2" in text
    estimates = [c.estimate for c in analyse(load(study)).comparisons]
    rows = [line for line in text.splitlines() if line.startswith("mpi & ")]
    assert len(rows) == len(estimates) == 3
    for e in estimates:
        assert e.shown
        numbers = f" & {e.value:.3f} [{e.shown[0]:.3f}, {e.shown[1]:.3f}] & {e.n} & "
        assert any(numbers in row and row.endswith(" \\\\") for row in rows)
