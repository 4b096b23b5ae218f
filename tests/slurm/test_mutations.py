"""Mutated and hostile study and site files; many more: python -m tests.slurm.mutations --inputs 100000."""

from tests.slurm.mutations import look


def test_no_file_makes_a_traceback_and_no_shell_executes_a_value() -> None:
    bench = look(2000, seed=1)
    assert bench.faults == []
    assert bench.counts["rendered"] > 200
    assert bench.counts["scripts run"] > 10
    assert bench.counts["refused in one line"] + bench.counts["rendered"] == 2000
