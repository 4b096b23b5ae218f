"""Processes that the doctor starts: each with a limit, none left behind, and the lines that were
meant for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_END_S = 5.0


@dataclass(frozen=True)
class Ended:
    """How a child ended: its marked lines, decoded, and in `problem` why there may be fewer than
    expected.
    """

    answers: list[dict[str, Any]]
    problem: str | None


def python(*words: str) -> list[str]:
    """Command line of a module of ours."""
    return [sys.executable, "-m", *words]


def run(command: Sequence[str], env: Mapping[str, str], mark: str, limit_s: float) -> Ended:
    """Run to the end or to the limit; what the child prints after `mark` comes back."""
    # close_fds=False: under Hydra a rank talks to its daemon over an inherited descriptor
    path = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    with subprocess.Popen(
        command,
        env={**env, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        close_fds=False,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
            late = False
        except subprocess.TimeoutExpired:
            out, err = _end(process)
            late = True
        except BaseException:
            _end(process)
            raise
    answers = [json.loads(line.split(mark, 1)[1]) for line in out.splitlines() if mark in line]
    if late or process.returncode == -14:  # SIGALRM: the child's own limit
        return Ended(answers, f"no answer within {limit_s:g} s")
    if process.returncode:
        return Ended(answers, f"ended with status {process.returncode}: {_telling(err)}")
    return Ended(answers, None)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ask it to stop, so that a launcher takes its ranks along; then insist."""
    process.terminate()
    try:
        return process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return "", ""


def _telling(err: str) -> str:
    """The first line that looks like a reason, else the last one."""
    lines = [line.strip() for line in err.splitlines() if line.strip(" -*\t")]
    return next(
        (line for line in lines if "rror" in line or "undefined symbol" in line),
        lines[-1] if lines else "nothing was printed",
    )
