"""A study with a mistake is refused when it is read, in one line with the value, the rule and the
way out.
"""

from pathlib import Path

import pytest

from bench.config import UsageError
from bench.study.files import read_study
from bench.study.plan import plan
from slurm.site import find_study
from tests.slurm.studies import SMALL, small, write

# key, the line that replaces it, words of the message after the file's name
BAD = [
    ("launches", "lanches = 2", "unknown key 'lanches'; did you mean 'launches'?"),
    ("launches", "blocks = 6", "blocks is of an earlier form; write launches"),
    ("cells", 'cells = ["ddp/mpi@x"]', "'ddp/mpi@x' is of an earlier form; write [arms.NAME]"),
    ("launches", "launches = 0", "launches=0: should be greater than or equal to 1"),
    ("launches", "launches = true", "launches=True: should be a valid integer"),
    ("launches", 'launches = "8"', "launches='8': should be a valid integer"),
    ("launches", "launches = 10001", "launches=10001: should be less than or equal to 10000"),
    (
        "launches",
        "launches = 8\nmax_launches = 6",
        "max_launches=6 is less than launches=8; raise it to 8",
    ),
    ("launches", "launches = 8\nmax_launches = 9", "max_launches=9 must be even"),
    ("question", "", "key 'question' is missing; add it"),
    ("name", 'name = "../up"', "name='../up' also names a folder; use lower-case letters, digits"),
    ("cells", 'cells = ["ddp/mip"]', "one of single, ddp/mpi, "),
    ("cells", 'cells = ["single", "single"]', "cells lists 'single' 2 times; once is enough"),
    ("launches", 'candidate = "ddp"', "none of its arms is compared with another; give one of its"),
    (
        "launches",
        'reference = "ddp/mpi"',
        "candidate='horovod' and reference='ddp/mpi' make no pair",
    ),
    ("scaling", 'scaling = ["weak", "strong", "batch"]', "without a table [batch]"),
    ("scaling", 'scaling = ["weak"]', "[strong] has no effect, scaling lacks 'strong'"),
    ("world_sizes", "", "world_sizes is missing: weak and strong scaling need it"),
    ("world_sizes", "world_sizes = [1, 3]", "strong.global_batch=8 does not divide by"),
    ("batch_per_rank", "batch_per_rnak = 8", "'weak.batch_per_rnak'; did you mean"),
    ("windows", "widnows = 2", "unknown key 'run.widnows'; did you mean 'windows'?"),
    ("windows", 'windows = "2"', "run.windows='2': should be a valid integer"),
    ("nesterov", 'nesterov = "yes"', "run.nesterov='yes': should be a valid boolean"),
    ("windows", 'backend = "ddp"', "run.backend='ddp': the plan sets backend of each run; list it"),
    ("windows", "accumulate = 8", "choose a divisor (at ddp-mpi-w2-b4)"),
    ("seed", 'primary = { curve = "weak", world_size = 2 }', "is none that this study plans"),
    ("seed", 'primary = { curve = "weak" }', "key 'primary.world_size' is missing"),
    ("nesterov", "[arms.a]\n[arms.b]\nprecison = 'bf16'", "'arms.b.precison'; did you"),
    ("nesterov", "[arms.'a b']\n[arms.b]", "arms.a b also names logs; use lower-case"),
    ("nesterov", "[arms.a]\n[arms.b]\ncells = ['ddp/mip']", "'ddp/mip', which cells does not; did"),
    (
        "nesterov",
        "[arms.a]\n[arms.b]\nover = 'c'",
        "arms.b.over='c' is not one of the other arms: a",
    ),
    ("nesterov", "[arms.a]\n[arms.b]\nover = 'b'", "arms.b.over='b' is not one of the other arms"),
    (
        "nesterov",
        "[arms.a]\ncells = ['single']\n[arms.b]\ncells = ['single']\nthreads = 2",
        "cells lists 'ddp/mpi', and no arm has it; add it to the cells of one",
    ),
    ("nesterov", "[arms.a]\n[arms.b]\nthreads = 'two'", "arms.b.threads='two': should be"),
    ("nesterov", "[arms.a]\n[arms.b]\nover = 'a'\nemulate = 'k80.json'", "compute that sleeps is"),
    ("nesterov", "[arms.a]\n[arms.b]\nclip_norm = -1.0", "arms.b.clip_norm=-1.0: should be"),
    ("seed", "seed = ", "Invalid value (at line 7, column 8)"),
    # what the first run that is planned says of it
    ("windows", "windows = 0", "run.windows=0: should be greater than or equal to 1"),
    ("windows", 'device = "cuda"', "with device=cuda use --transport nccl (at ddp-mpi-w1-b8)"),
    ("windows", "bucket_mib = 1.0", "bucket_mib has no effect with backend=ddp settings=shipped"),
]


@pytest.mark.parametrize(
    ("key", "line", "words"), BAD, ids=[line or f"no {key}" for key, line, _ in BAD]
)
def test_a_mistake_is_one_line(tmp_path: Path, key: str, line: str, words: str) -> None:
    path = write(tmp_path, **{key: line})
    with pytest.raises(UsageError) as caught:
        read_study(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batch_sweep_alone_has_world_sizes_of_its_own(tmp_path: Path) -> None:
    text = SMALL.replace('["weak", "strong"]', '["batch"]').partition("[weak]")[0]
    text += "[batch]\nbatch_per_rank = [2, 4]\nworld_sizes = [2]\n"
    with pytest.raises(UsageError, match="world_sizes has no effect without weak or strong"):
        read_study(write(tmp_path, text))


def test_defaults(tmp_path: Path) -> None:
    study = small(tmp_path, launches="", seed="", time_limit_s="")
    assert (study.launches, study.max_launches, study.seed, study.margin) == (6, 20, 0, 0.02)
    assert (study.looks[0], study.arms_of("single")) == (6, [""])
    whole = small(tmp_path, nesterov="clip_norm = 1")
    assert whole.run["clip_norm"] == 1, "a whole number is a number too"


PAIRS = 'cells = ["ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]'


def test_the_primary_comparison_is_one(tmp_path: Path) -> None:
    one = 'primary = { curve = "strong", world_size = 2, transport = "gloo" }'
    study = small(tmp_path, cells=PAIRS, seed=one)
    assert study.primary is not None
    assert study.primary.transport == "gloo"
    with pytest.raises(UsageError, match="and is horovod-mpi-w2-b4, horovod-gloo-w2-b4; add"):
        small(tmp_path, cells=PAIRS, seed='primary = { curve = "strong", world_size = 2 }')
    of_mpi = 'primary = { curve = "weak", world_size = 1, transport = "mpi"'
    two = '[arms.shipped]\n[arms.matched]\nsettings = "matched"\n'
    with pytest.raises(UsageError, match="and is horovod-mpi-w1-b8-shipped, horovod-mpi-w1-b8-mat"):
        read_study(write(tmp_path, SMALL + two, cells=PAIRS, seed=f"{of_mpi} }}"))
    named = f'{of_mpi}, arm = "matched" }}'
    chosen = read_study(write(tmp_path, SMALL + two, cells=PAIRS, seed=named))
    assert chosen.primary is not None


def test_a_study_is_found_by_name_or_path(tmp_path: Path) -> None:
    assert find_study(str(write(tmp_path))) == tmp_path / "study.toml"
    with pytest.raises(UsageError, match=r"'locl' is neither a shipped study .*mean 'local'\?"):
        find_study("locl")
    with pytest.raises(UsageError, match=r"gone\.toml: No such file or directory$"):
        read_study(tmp_path / "gone.toml")


def test_a_study_names_what_it_compares(tmp_path: Path) -> None:
    cells = 'cells = ["single", "ddp/mpi", "ddp/gloo", "horovod/mpi"]'
    assert small(tmp_path, cells=cells).pairs == [("ddp/mpi", "horovod/mpi")]
    turned = cells + '\nreference = "horovod"\ncandidate = "ddp"'
    assert small(tmp_path, cells=turned).pairs == [("horovod/mpi", "ddp/mpi")]
    two = cells + '\nreference = "ddp/gloo"\ncandidate = "ddp/mpi"'
    assert small(tmp_path, cells=two).pairs == [("ddp/gloo", "ddp/mpi")]
    absent = cells + '\nreference = "ddp/gloo"\ncandidate = "horovod/gloo"'
    assert small(tmp_path, cells=absent).pairs == []


def test_arms_are_compared_with_the_one_that_they_name(tmp_path: Path) -> None:
    arms = '[arms.once]\n[arms.again]\nover = "once"\n[arms.slow]\nover = "once"\ninject_ms = 5.0\n'
    one = 'cells = ["ddp/mpi"]\nreference = "ddp/mpi"\ncandidate = "ddp/mpi"'
    study = read_study(write(tmp_path, SMALL + arms, cells=one))
    ddp = [("ddp/mpi", name) for name in ("once", "again", "slow")]
    assert study.comparisons == [(ddp[0], ddp[1]), (ddp[0], ddp[2])]
    two = 'cells = ["single", "ddp/mpi", "horovod/mpi"]'
    naive = '[arms.usual]\n[arms.naive]\ncells = ["ddp/mpi"]\nover = "usual"\nclip_norm = 1.0\n'
    study = read_study(write(tmp_path, SMALL + naive, cells=two))
    assert study.comparisons == [(("ddp/mpi", "usual"), ("horovod/mpi", "usual"))]


def test_the_arm_of_a_log_is_the_one_that_it_names_if_it_has_its_fields(tmp_path: Path) -> None:
    arms = '[arms.plain]\n[arms.fast]\nprecision = "bf16-mixed"\n'
    study = read_study(write(tmp_path, SMALL + arms))
    planned = [run.config for run in plan(study, 1, tmp_path)[0]]
    assert {study.arm_of(config) for config in planned} == {"plain", "fast"}
    for config in planned:
        assert study.arm_of(config) == config.arm
        assert study.arm_of(config.model_copy(update={"arm": None})) == config.arm, "by its fields"
        with pytest.raises(ValueError, match="its arm='slow' is none of the study's"):
            study.arm_of(config.model_copy(update={"arm": "slow"}))
        with pytest.raises(ValueError, match=r"its precision=bf16, and \[arms\.\w+\] of the study"):
            study.arm_of(config.model_copy(update={"precision": "bf16"}))
