"""A user's own backend and model, each written as a user would: a module on the path."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.config import RunConfig, UsageError
from bench.data import load_images
from bench.models import build_model, prepare
from bench.record import read_run
from tests.bench.ranks import ROOT, bench, run
from tests.slurm.studies import SMALL

USERS = ROOT / "tests" / "user"
MODEL = """
from torch import nn


class Net(nn.Sequential):
    def prepare_on_images(self, batches):
        self.images = sum(len(batch) for batch in batches)


def net(num_classes, config):
    model = Net(nn.Flatten(), nn.Linear(3 * config.image_size**2, num_classes))
    model.width = config.model_width
    return model


def plain(num_classes):
    return nn.Linear(3 * 64, num_classes)
"""


def python(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the project, with the modules in `path` on Python's path."""
    return run([sys.executable, *words], {"PYTHONPATH": str(path)})


def test_a_model_may_ask_for_the_configuration_and_for_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_net.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    fields = {"batch_per_rank": 4, "dataset": "digits", "image_size": 8, "model_width": 0.5}
    config = RunConfig.model_validate({**fields, "model": "my_net:net"})
    model: Any = build_model(config, 10)
    prepare(model, config, load_images(config))
    assert (model.width, model.images) == (0.5, 1797)
    one_width = config.model_copy(update={"model": "my_net:plain"})
    with pytest.raises(UsageError, match=r"is of inception_bn, .*model='my_net:plain' has one wid"):
        build_model(one_width, 10)


def test_a_backend_is_found_by_its_name_planned_and_reported(tmp_path: Path) -> None:
    """Its module lies on Python's path, and is in the catalogue of every command."""
    shown = python(USERS, "-m", "bench", "--help")
    assert "--backend {single,ddp,horovod,handwritten,ps,fourth}" in shown.stdout
    cells = 'cells = ["single", "fourth/gloo", "horovod/gloo"]'
    sides = f'{cells}\nreference = "horovod"\ncandidate = "fourth"'
    (tmp_path / "small.toml").write_text(re.sub("cells = .*", sides, SMALL))
    words = ["-m", "slurm", "status", str(tmp_path / "small.toml"), "--results", str(tmp_path)]
    planned = python(USERS, *words)
    assert planned.returncode == 0, planned.stderr
    points = {"fourth-gloo-w1-b8", "fourth-gloo-w2-b8", "fourth-gloo-w2-b4"}
    assert set(re.findall(r"launch\d+-\d+-(fourth\S+)", planned.stdout)) == points
    code = "import sys; from pathlib import Path; from tests.plots.test_pairs import require_pair"
    code += "; require_pair(Path(sys.argv[1]), *sys.argv[2:], points=3)"
    names = ("horovod", "fourth", "Fourth against Horovod", "Fourth")
    reported = python(USERS, "-c", code, str(tmp_path / "study"), *names)
    assert reported.returncode == 0, reported.stderr


@pytest.mark.ranks
def test_a_backend_trains_and_its_code_is_evidence(tmp_path: Path) -> None:
    words = ["--backend", "fourth", "--world-size", "2", "--model", "mlp"]
    words += ["--dataset", "digits", "--image-size", "8", "--batch-per-rank", "4"]
    log = tmp_path / "run.jsonl"
    words += ["--warmup-steps", "3", "--windows", "1", "--log-path", str(log)]
    mine = {"PYTHONPATH": str(USERS)}
    done = bench(2, *words, extra=mine)
    assert done.returncode == 0, done.stderr
    code = "import sys; from pathlib import Path; from bench.record import read_run"
    code += "; run = read_run(Path(sys.argv[1])); print(run.problem, *run.host['user_code'])"
    read = python(USERS, "-c", code, str(log))
    assert read.stdout == "None hvd_ddp_backend_fourth.py\n"
    unknown = str(read_run(log).problem)  # in a process without the module
    assert unknown.endswith(", ps; or bring hvd_ddp_backend_fourth on Python's path")
    refused = bench(2, *words, extra={**mine, "FOURTH_KNOB": "1"})
    assert refused.returncode == 2
    said = r"error: (rank 1: )?FOURTH_KNOB='1' would change one framework unseen; unset it\n"
    assert re.search(said, refused.stderr)  # by rank 1 where rank 0 is late


ELSEWHERE = """from bench.backends.facts import BackendFacts
FACTS = BackendFacts(
    name="fifth", label="Fifth", short_label="Fifth", implementation="elsewhere:Fifth"
)
"""


@pytest.mark.parametrize(
    ("room", "text", "fault"),
    [
        ("slurm", "FACTS = nothing", "NameError: name 'nothing' is not defined"),
        ("plots", "FACTS = 5", "ValueError: FACTS must be BackendFacts with name='fifth'"),
        ("bench", ELSEWHERE, "ValueError: elsewhere:Fifth is outside of it; make it a"),
    ],
)
def test_a_backend_that_does_not_load_is_one_line(
    tmp_path: Path, room: str, text: str, fault: str
) -> None:
    (tmp_path / "hvd_ddp_backend_fifth.py").write_text(text)
    done = python(tmp_path, "-m", room, "--version")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("error: hvd_ddp_backend_fifth does not load (")
    assert fault in line
    assert line.endswith("; mend it, or take it off Python's path")
