"""A user's own backend, model and format, each written as a user would: a module on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORMAT = r"""
from plots.imports.observation import NUMBER, Format, matched

FORMAT = Format(
    read=matched(rf"(?P<epoch>\d+): rate (?P<images_per_s>{NUMBER})", marker="rate"),
    written_by="my own script",
)
"""
MODEL = """
from torch import nn


class Net(nn.Sequential):
    def prepare_on_images(self, batches):
        print("images:", sum(len(batch) for batch in batches))


def net(num_classes, config):
    print("width:", config.model_width)
    return Net(nn.Flatten(), nn.Linear(3 * config.image_size**2, num_classes))


def plain(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, num_classes))
"""


def python(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the project, with the modules in `path` on Python's path."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )


def test_a_format_is_named_by_its_module(tmp_path: Path) -> None:
    (tmp_path / "my_format.py").write_text(FORMAT)
    (tmp_path / "log.txt").write_text("epoch 0: rate 41.5\nepoch 1: rate 42.5\n")
    words = ["-m", "plots", "import", "my_format:FORMAT", str(tmp_path / "log.txt")]
    words += ["--world-size", "2", "--backend", "mine", "--out", str(tmp_path)]
    done = python(tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine, 2 ranks: images_per_s 42 (n = 2; ")
    words[3] = "my_format:Format"
    refused = python(tmp_path, *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: format 'my_format:Format' is a type; give a ")


def test_a_format_that_fails_is_one_line_and_its_own_traceback(tmp_path: Path) -> None:
    (tmp_path / "my_format.py").write_text("FORMAT = nothing\n")
    done = python(tmp_path, "-m", "plots", "import", "my_format:FORMAT", "log.txt")
    assert done.returncode == 2
    line, *trace = done.stderr.splitlines()
    assert line.startswith("error: format 'my_format:FORMAT': importing my_format failed (NameErr")
    assert "my_format.py" in trace[1]
    assert "/bench/factory.py" not in done.stderr


def test_a_model_may_ask_for_the_configuration_and_for_images(tmp_path: Path) -> None:
    (tmp_path / "my_net.py").write_text(MODEL)
    words = ["-m", "bench", "--dataset", "digits", "--image-size", "8", "--batch-per-rank", "4"]
    words += ["--warmup-steps", "3", "--windows", "2", "--model-width", "0.5", "--model"]
    done = python(tmp_path, *words, "my_net:net")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("width: 0.5\nimages: 1")
    refused = python(tmp_path, *words, "my_net:plain")
    assert refused.returncode == 2
    rule = "; model='my_net:plain' has one width, leave it out"
    line = refused.stderr.splitlines()[-1]
    assert line.startswith("error: model_width=0.5 is of inception_bn, ")
    assert line.endswith(rule)
