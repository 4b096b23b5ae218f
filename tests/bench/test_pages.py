"""The two pages that answer users: every command of theirs runs, and what they promise is said."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.bench.ranks import ROOT, environment

BLOCK = re.compile(r"```sh\n(.*?)```", re.S)
PAGES = [ROOT / "bench" / name for name in ("LEAVING_HOROVOD.md", "WHY_SLOW.md")]


def blocks(page: Path) -> list[str]:
    found: list[str] = BLOCK.findall(page.read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a page's commands run: its later ones read logs of earlier ones."""
    folder = tmp_path_factory.mktemp("page")
    for room in ("results", "slurm"):
        (folder / room).symlink_to(ROOT / room)
    return folder


# what a command must print, by words of it; of others it is enough that they print something
PROMISED = {
    "bench parity": "parity holds: equal bit for bit",
    "plots settled results/local": r"DDP faster: \S+ % \[",
    "--one-rank one.jsonl": r"^(ok|warning) +speed-up +ddp/mpi: 2 ranks process at most \d",
    "--one-rank strides.jsonl": r"^ok +strides +all \d+ gradients lie as their parameters do",
    "read_run": r"^0 \d+\.\d+ ms in the middle",
    "## Scaling": r"ddp/mpi \| 2 \| common",
    "published.md": r"\| ",
    "hvd-ddp-fom": r'"network": null',
    "bench doctor --world-size": r"^ok +places +rank 0-1: cores \d",
    "plots compare": r"ratio",
    "--show-config": r"batch_per_rank = 32",
    "nccl_built": r"^0\.\d+\.\d+ True",
    "slurm render": r"^#SBATCH|^run ",
}


@pytest.mark.ranks
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_runs(page: Path, folder: Path) -> None:
    assert len(blocks(page)) >= 4
    for block in blocks(page):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env=environment({"PYTHONPATH": str(ROOT)}),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, block + done.stderr
        assert done.stdout, block
        assert "Traceback" not in done.stderr, done.stderr
        for path in re.findall(r"--trace (\S+)", block):
            assert '"name": "exposed"' in (folder / path).read_text(), block
        for words, pattern in PROMISED.items():
            if words in block:
                assert re.search(pattern, done.stdout + done.stderr, re.M), (block, done.stdout)


def test_every_promise_is_of_a_command() -> None:
    commands = "".join(block for page in PAGES for block in blocks(page))
    assert all(words in commands for words in PROMISED)


def test_twenty_questions_have_a_command_each() -> None:
    questions = re.split(r"^### ", PAGES[1].read_text(), flags=re.M)[1:]
    assert [question.split(".")[0] for question in questions] == [str(n) for n in range(1, 21)]
    assert all(BLOCK.search(question) for question in questions)
