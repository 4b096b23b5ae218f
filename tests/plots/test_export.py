"""A table for a paper holds the very numbers of the logs."""

from __future__ import annotations

from pathlib import Path

from bench.study.frames import load
from plots.__main__ import main
from plots.analyse.study import analyse
from tests.plots import logs


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
