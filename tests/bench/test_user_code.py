"""The user's own model is evidence: its files are in the log, beside it, and compared."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from bench.launch.sources import digests, folder_of
from bench.record import read_run
from tests.bench.ranks import ROOT, bench, run

pytestmark = pytest.mark.ranks
NETS = """\
import torch
from my_net.parts import width

class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = torch.nn.Linear(width() * 64, classes)

    def forward(self, images):
        from my_net.late import flat
        return self.layer(flat(images))

def make(classes):
    return Net(classes)
"""
FILES = {
    "my_net/__init__.py": "",
    "my_net/nets.py": NETS,
    "my_net/parts.py": "def width():\n    return 3\n",
    "my_net/late.py": "def flat(images):\n    return images.flatten(1)\n",
}
SHORT = ["--model", "my_net.nets:make", "--dataset", "digits", "--image-size", "8"]
SHORT += ["--batch-per-rank", "4", "--warmup-steps", "3", "--windows", "1"]


def lay(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_the_files_that_a_model_is_made_of_are_recorded_and_kept(tmp_path: Path) -> None:
    lay(tmp_path)
    path = tmp_path / "runs" / "run.jsonl"
    done = bench(1, *SHORT, "--log-path", str(path), extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    trained = read_run(path)
    expected = digests({name: text.encode() for name, text in FILES.items()})
    late = {"my_net/late.py": expected.pop("my_net/late.py")}
    assert trained.host["user_code"] == expected, "none of the installed packages, none of ours"
    assert trained.end["user_code"] == late, "imported by the first step"
    copies = tmp_path / "runs" / folder_of(expected | late)
    assert {name: (copies / name).read_text() for name in FILES} == FILES
    # elsewhere, from these copies alone, the same files are found
    log = tmp_path / "again.jsonl"
    done = bench(1, *SHORT, "--log-path", str(log), extra={"PYTHONPATH": str(copies)})
    assert done.returncode == 0, done.stderr
    assert read_run(log).host["user_code"] == expected


STUDY = """\
name = "mine"
question = "Does my model run elsewhere?"
cells = ["single"]
scaling = ["weak"]
world_sizes = [1]
launches = 1
[weak]
batch_per_rank = 4
[run]
model = "my_net.nets:make"
dataset = "digits"
image_size = 8
warmup_steps = 3
windows = 1
"""


def test_the_bundle_of_a_study_has_the_users_model(tmp_path: Path) -> None:
    lay(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY)
    for words in (
        ("slurm", "run", str(tmp_path / "mine.toml"), "--results", str(tmp_path)),
        ("plots", "bundle", str(tmp_path / "mine")),
    ):
        done = run([sys.executable, "-m", *words], {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
        assert done.returncode == 0, done.stderr + done.stdout
    with tarfile.open(tmp_path / "mine.tar.gz") as archive:
        names = archive.getnames()
    folder = folder_of(digests({name: text.encode() for name, text in FILES.items()}))
    assert {f"mine/runs/{folder}/{name}" for name in FILES} <= {*names}
