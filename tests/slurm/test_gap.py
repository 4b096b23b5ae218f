"""Between two steps a job script starts nothing that takes time; how much it takes: python -m
tests.slurm.gap.
"""

import itertools
from pathlib import Path

from tests.slurm.gap import Bare


def test_between_two_steps_nothing_slow_is_started(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    bare.watch()
    bare.run()
    assert len(bare.gaps_s()) == len(bare.runs) - 1
    calibrations = 2  # one on each of two nodes
    words = bare.started()
    steps = [n for n, name in enumerate(words) if name == "srun"][
        1 + calibrations : 1 + calibrations + len(bare.runs)
    ]
    between = {
        tuple(sorted(words[a + 1 : b])) for a, b in itertools.pairwise(steps)
    }  # a pipe's members start in any order
    # twice whether the log is complete, whether the kernel killed anything, how the log ends, its
    # digest, is there time for another run, and the limit, which waits for the step
    assert between == {
        tuple(
            sorted(
                ("grep", "awk", "tail", "wc", "cat", "sha256sum", "grep", "date", "awk", "timeout")
            )
        )
    }
