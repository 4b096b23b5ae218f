"""The user's own model is evidence: its files are in the log, beside it, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.launch.provenance import digests, folder_of
from bench.record import read_run
from tests.bench.ranks import bench

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


@pytest.mark.ranks
def test_the_files_that_a_model_is_made_of_are_recorded_and_kept(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / "runs" / "run.jsonl"
    (tmp_path / "sitecustomize.py").touch()  # Debian has one outside the folders of packages
    done = bench(1, *SHORT, "--log-path", str(path), extra={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    trained = read_run(path)
    expected = digests({name: text.encode() for name, text in FILES.items()})
    late = {"my_net/late.py": expected.pop("my_net/late.py")}
    assert trained.host["user_code"] == expected, "none of the installed packages, none of ours"
    assert trained.end["user_code"] == late, "imported by the first step"
    copies = tmp_path / "runs" / folder_of(expected | late)
    assert copies.parent.name == "user_code", "as a bundle takes it"
    assert {name: (copies / name).read_text() for name in FILES} == FILES
