"""Processes that the doctor starts: each with a limit, none left behind, and what they answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
_MARK = "doctor: "  # before each line of JSON that is meant for us
_END_S = 5.0


def python(*words: str) -> list[str]:
    """Command line of a module of ours."""
    return [sys.executable, "-m", *words]


def answer(value: Mapping[str, Any]) -> None:
    """What a child says to the doctor."""
    # one write: torchrun's ranks are unbuffered and share a pipe; print writes the line end apart
    sys.stdout.write(f"{_MARK}{json.dumps(value)}\n")
    sys.stdout.flush()


def first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def run(
    command: Sequence[str], env: Mapping[str, str], limit_s: float
) -> tuple[list[dict[str, Any]], str | None]:
    """Run to the end or to the limit: all answers, and why they may be fewer than expected."""
    path = os.pathsep.join(filter(None, (str(_ROOT), env.get("PYTHONPATH"))))
    # no session of its own: the launcher of this rank ends what is in the rank's.
    # close_fds=False: under Hydra a rank talks to its daemon over an inherited descriptor
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
        late = False
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            out, err = _end(process)
            late = True
        except BaseException:
            _end(process)
            raise
    answers = [json.loads(line.split(_MARK, 1)[1]) for line in out.splitlines() if _MARK in line]
    if late or process.returncode == -signal.SIGALRM:  # the child's own limit
        return answers, f"no answer within {limit_s:g} s"
    if process.returncode:
        return answers, f"ended with status {process.returncode}: {_telling(err)}"
    return answers, None


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
    reasons = [line for line in lines if "rror" in line or "undefined symbol" in line]
    return (reasons[:1] or lines[-1:] or ["nothing was printed"])[0]
