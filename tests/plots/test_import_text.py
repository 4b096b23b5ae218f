"""What stands around a log's lines: tags of ranks, colours, cut ends."""

from __future__ import annotations

import pytest

from tests.plots.importing import Import

SPEED = "INFO:root:Epoch[0] Batch [{}]\tSpeed: {} samples/sec\taccuracy=0.5\n"
LOG = SPEED.format(20, 100) + "\nwords\n" + SPEED.format(40, 300)


def each_line(prefix: str) -> object:
    return lambda log: "".join(prefix + line for line in log.splitlines(keepends=True))


WRAPPED = {
    "mpirun": each_line("[1,0]<stdout>:"),
    "prrte": each_line("[prterun-node-1-123@1,0]<stdout>: "),
    "srun -l": each_line("0: "),
    "torchrun": each_line("[default0]:"),
    "spaces": lambda log: log.replace("\t", "    "),
    "colours": lambda log: log.replace("Speed", "\x1b[32mSp\x1b[0meed"),
    "carriage returns": lambda log: log.replace("\n", "\r\r\n"),
}


@pytest.mark.parametrize("how", WRAPPED)
def test_wrappers_change_no_number(bring: Import, how: str) -> None:
    wrap = WRAPPED[how]
    ended = bring("mxnet", wrap(LOG), "--world-size", "1")  # type: ignore[operator]
    assert ended.value("images_per_s") == 150
    assert "0 of 2 lines with the format's marker were not understood" in ended.said


def test_tags_tell_ranks_apart(bring: Import) -> None:
    line = "Epoch[0] Batch [20]\tSpeed: {} samples/sec\n"
    log = "".join(f"{rank}: {line.format(100 + rank)}" for rank in range(3))
    ended = bring("mxnet", log)
    assert ended.value("images_per_s", world_size=3) == 303
    assert "world size 3 is inferred" in ended.said


@pytest.mark.parametrize("end", ["998.00", "998.", "9"])
def test_a_number_that_ends_the_file_is_warned_of(bring: Import, end: str) -> None:
    ended = bring("mxnet", f"Epoch[0] Time cost={end}", "--world-size", "1")
    assert "its last line has no line end: a number in it may be cut off" in ended.said
    whole = bring("mxnet", f"Epoch[0] Time cost={end}\n", "--world-size", "1")
    assert "may be cut off" not in whole.said


def test_a_line_of_slurm_itself_takes_no_rank_from_the_others(bring: Import) -> None:
    lines = [f"{rank}: Epoch[0] Time cost={5 + rank}\n" for rank in (0, 1)]
    log = "srun: job 7 queued\n" + "".join(lines) + "slurmstepd: error: *** STEP 7.0 CANCELLED\n"
    assert bring("mxnet", log).value("epoch_seconds", world_size=2) == 6


@pytest.mark.parametrize("number", ["3215,4", "3215,45", "0,3456", "9,100.0", "1INFO:"])
def test_lines_that_are_not_understood_are_counted(bring: Import, number: str) -> None:
    log = f"Epoch[0] Time cost={number}\nEpoch[1] Time cost=12.5\n"
    ended = bring("mxnet", log, "--world-size", "1")
    assert ended.value("epoch_seconds") == 12.5
    lines = "1 of 2 lines with the format's marker were not understood; the first is line 1"
    assert f"{lines}: 'Epoch[0] Time cost={number}'" in ended.said
    none = bring("mxnet", f"Time cost={number}\n", "--world-size", "1")
    assert (none.code, "1 of 1 lines with the format's marker were" in none.said) == (2, True)


def test_a_comma_between_numbers_is_none_of_a_number(bring: Import) -> None:
    pattern = r"(?P<step>\d+),(?P<step_ms>\d+),(?P<loss>\d)"
    options = ("--world-size", "1", "--pattern", pattern)
    ended = bring("pattern", "7,12,3\n8,14,2\n", *options)
    assert ended.value("step_seconds") == pytest.approx(0.013)
