"""Mutated and hostile study and site files; many more: python -m tests.slurm.mutations --inputs
100000.
"""

from pathlib import Path

from slurm.load import read_site
from tests.slurm.mutations import Bench, look
from tests.slurm.studies import changed


def test_no_file_makes_a_traceback_and_no_shell_executes_a_value() -> None:
    bench = look(2000, seed=1)
    assert bench.faults == []
    assert bench.counts["rendered"] > 200
    assert bench.counts["scripts run"] > 10
    assert bench.counts["refused in one line"] + bench.counts["rendered"] == 2000


def test_a_script_that_bash_cannot_read_is_a_fault_unless_its_prologue_is_none(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, seed=1)
    site = changed(read_site("generic"), setup__prologue=['export A="'])
    bench._try_script('export A="\n', site, 0, (b"", b""))
    assert bench.faults == []
    bench._try_script('export A="\n', read_site("generic"), 0, (b"", b""))
    assert len(bench.faults) == 1
